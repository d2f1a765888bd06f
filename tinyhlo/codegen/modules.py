"""The kernels of a program as LLVM modules.

In: the text of each kernel as it is rendered, the text of the entry at last. Out: module texts,
each given to `finish` as soon as it is long enough, so that LLVM compiles the first kernels while
Python renders the next. Which kernels share a module depends on the program alone: an earlier
process may have left the code of each in the cache.

    modules = Modules(target, texts.append)
    part = modules.part(inline=False)
    part.add("k0", 2, render_kernel(loops, target, "k0", False, part.declarations))
    texts.append(modules.last(entry))
"""

from __future__ import annotations

from collections.abc import Callable

from tinyhlo.codegen.llvm import half
from tinyhlo.codegen.target import Target

# A module costs LLVM 3 ms before its first instruction, and 3 ms for each 1000 characters.
LONG_ENOUGH = 24_000  # characters


class Part:
    """The functions of one module, and what they need declared."""

    def __init__(self, target: Target) -> None:
        self.declarations: dict[str, str] = {} if target.half else dict(half.FUNCTIONS)
        self.functions: list[str] = []
        self.symbols: dict[str, str] = {}  # what declares each kernel in other modules
        self.length = 0

    def add(self, symbol: str, pointers: int, text: str) -> None:
        """A kernel that takes so many pointers."""
        self.functions.append(text)
        self.symbols[symbol] = f"declare void @{symbol}({', '.join(['ptr'] * pointers)})"
        self.length += len(text)

    def __str__(self) -> str:
        return "\n\n".join([*self.declarations.values(), *self.functions])


class Modules:
    """`entry`: the module of the entry, of the kernels that are inlined there, and of those that
    would not fill a module of their own."""

    def __init__(self, target: Target, finish: Callable[[str], None]) -> None:
        self.target = target
        self.finish = finish
        self.entry = Part(target)
        self.open = Part(target)

    def part(self, inline: bool) -> Part:
        """Where the next kernel goes."""
        if inline:
            return self.entry
        if self.open.length >= LONG_ENOUGH:
            self.finish(str(self.open))
            self.entry.declarations |= self.open.symbols
            self.open = Part(self.target)
        return self.open

    def last(self, entry: str) -> str:
        """The last module, with the text of the entry, once no kernel follows."""
        self.entry.declarations |= self.open.declarations
        self.entry.functions += [*self.open.functions, entry]
        return str(self.entry)
