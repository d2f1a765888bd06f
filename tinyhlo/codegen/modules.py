"""The kernels of a program as LLVM modules.

In: the text of each kernel as it is rendered, the text of the entry at last. Out: module texts,
each given to `finish` as soon as it is long enough, so that LLVM compiles the first kernels while
Python renders the next. Which kernels share a module depends on the program and the Target alone:
an earlier process may have left the code of each in the cache.

    modules = Modules(target, texts.append)
    declarations = modules.part(inline=False).declarations
    modules.add("k0", 2, render_kernel(loops, target, "k0", False, declarations))
    texts.append(modules.last(entry, declarations, is_glue=True))

What does nothing but start loops is *glue* and has a module of its own, which LLVM compiles without
optimising, in a quarter of the time. So is the whole of a program that does next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tinyhlo.codegen.llvm.kernel import KernelText
from tinyhlo.codegen.llvm.types import QUICK
from tinyhlo.target import Target

# A module costs LLVM 1.5 ms before its first instruction, and 1.5 ms for each 1000 characters.
LONG_ENOUGH = 24_000  # characters
WORTH_A_MODULE = 2_500


class Part:
    """The functions of one module, each with the declarations of its kernels for other modules;
    `declarations` is what they need declared themselves."""

    def __init__(self, declarations: dict[str, str], head: str = "") -> None:
        self.declarations = declarations
        self.head = head
        self.functions: list[tuple[str, dict[str, str]]] = []
        self.length = 0

    def add(self, text: str, symbols: dict[str, str]) -> None:
        self.functions.append((text, symbols))
        self.length += len(text)

    @property
    def symbols(self) -> dict[str, str]:
        return {name: text for _, symbols in self.functions for name, text in symbols.items()}

    def __str__(self) -> str:
        functions = (text for text, _ in self.functions)
        return self.head + "\n\n".join([*self.declarations.values(), *functions])


class Modules:
    """`entry`: kernels that are inlined there; `glue`: what starts parallel loops; `open`: where
    the next loops go."""

    def __init__(self, target: Target, finish: Callable[[str], None]) -> None:
        self.target = target
        self.finish = finish
        self.entry, self.open = Part({}), Part({})
        self.glue = Part({}, QUICK)
        self.elsewhere: dict[str, str] = {}  # declares the kernels of finished modules

    def part(self, inline: bool) -> Part:
        """Where the next kernel goes."""
        if inline:
            return self.entry
        if self.open.length >= LONG_ENOUGH:
            self.close(self.open)
            self.open = Part({})
        return self.open

    def add(self, symbol: str, pointers: int, text: KernelText, inline: bool = False) -> None:
        """A kernel that takes so many pointers, rendered for `part(inline)`."""
        part = self.entry if inline else self.open
        own = {symbol: f"declare void @{symbol}({', '.join(['ptr'] * pointers)})"}
        if not text.is_glue:
            part.declarations |= text.declarations
            part.add(str(text), own)
            return
        for function in text.ranges.values():
            part.add(function, {})
        self.glue.declarations |= text.declarations
        self.glue.declarations |= {declaration: declaration for declaration in text.ranges}
        self.glue.add(text.rest, own)

    def close(self, part: Part) -> None:
        """A part is a module."""
        self.finish(str(part))
        self.elsewhere |= part.symbols

    def last(
        self, entry: str, declarations: dict[str, str], is_glue: bool, is_brief: bool = False
    ) -> str:
        """The last module, with the text of the entry and what it needs declared, once no kernel
        follows; `is_glue`: the entry does nothing but start kernels, each once; `is_brief`: running
        all of the program takes less than optimising it is worth."""
        if is_brief and not self.glue.functions:
            self.open.head = QUICK
            return self.with_entry(self.open, entry, declarations)
        worth = bool(self.glue.functions) or len(entry) >= WORTH_A_MODULE
        is_glue = is_glue and worth and not self.entry.functions
        parts = list(halves(self.open, self.target))
        home = self.glue if is_glue else parts.pop() if parts else Part({})
        if not is_glue and self.glue.functions:
            parts.append(self.glue)
        for part in parts:
            self.close(part)
        return self.with_entry(home, entry, declarations)

    def with_entry(self, home: Part, entry: str, declarations: dict[str, str]) -> str:
        """A part as the last module."""
        home.declarations = {
            **home.declarations, **self.entry.declarations, **declarations, **self.elsewhere
        }  # fmt: skip
        home.functions += [*self.entry.functions, (entry, {})]
        return str(home)


def halves(part: Part, target: Target) -> Iterator[Part]:
    """A part as two modules for two threads, where that saves time."""
    first, second = Part(part.declarations), Part(part.declarations)
    most = part.length if target.threads == 1 else max(part.length // 2, WORTH_A_MODULE)
    for text, symbols in part.functions:
        fits = first.length + len(text) // 2 <= most
        (first if fits else second).add(text, symbols)
    yield from (half for half in (first, second) if half.functions)
