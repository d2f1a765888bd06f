"""Print every form that `relu(x @ w + b)` takes into docs/how-it-works.md.

    python -m tools.print_forms docs/how-it-works.md

The page holds blocks that begin with the comment "form: NAME"; the code fence after it is replaced
by what the compiler makes now. A test compares, so the page cannot grow stale. The target is a
fixed processor, so that the page does not depend on the machine it was printed on.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from tinyhlo.codegen.loops import LoopProgram
from tinyhlo.codegen.lowering.kernel import lower_kernel
from tinyhlo.codegen.modules import Modules
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.codegen.render import render_kernels
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.simplify import simplify
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule import schedule
from tinyhlo.schedule.program import Launch

TARGET = named_target("x86-64-v3", threads=2)
CHECKOUT = Path(__file__).resolve().parents[1]
LONGEST = 60  # lines of a form that are shown
BLOCK = re.compile(r"(<!-- form: (\w+) -->\n```\w*\n).*?(^```$)", re.DOTALL | re.MULTILINE)


def model(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    return jax.nn.relu(x @ w + b)


def row_sums(x: jax.Array) -> jax.Array:
    return x.sum(axis=1)


def loops_of(function: Callable[..., jax.Array], *shapes: tuple[int, ...]) -> list[LoopProgram]:
    """The loops of its one kernel, before the heuristics and after."""
    arguments = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    text = jax.jit(function).trace(*arguments).lower(lowering_platforms=("tiny",)).as_text()
    module = import_module(text)
    program = schedule(simplify(module.graph), module.name, module.aliases, TARGET)
    kernel = next(s.kernel for s in program.body if isinstance(s, Launch))
    found = lower_kernel(kernel, TARGET)
    return [found, choose_moves(found, TARGET, 1.0)]


def forms() -> dict[str, str]:
    """Name -> printed form, in the order of the pipeline."""
    shapes = ((64, 128), (128, 32), (32,))
    arguments = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    lowered = jax.jit(model).trace(*arguments).lower(lowering_platforms=("tiny",))
    text = lowered.as_text()
    module = import_module(lowered.as_text(debug_info=True))
    graph = simplify(module.graph)
    program = schedule(graph, module.name, module.aliases, TARGET)
    kernel = next(s.kernel for s in program.body if isinstance(s, Launch))
    modules = Modules(TARGET, print)
    rendered = render_kernels({kernel: 1.0}, TARGET, modules)[kernel]
    ((llvm, _),) = modules.part(rendered.inline).functions
    printed = {
        "stablehlo": text,
        "graph": graph,
        "program": program,
        "loops": rendered.loops,
        **dict(zip(("plain", "moved"), loops_of(row_sums, (64, 128)), strict=True)),
        "llvm": llvm,
    }
    return {name: str(form).replace(f"{CHECKOUT}{os.sep}", "") for name, form in printed.items()}


def fill(page: str, printed: dict[str, str]) -> str:
    """The page with every block replaced."""

    def block(match: re.Match[str]) -> str:
        return match[1] + shortened(printed[match[2]]) + "\n" + match[3]

    return BLOCK.sub(block, page)


def shortened(text: str) -> str:
    """At most `LONGEST` lines."""
    lines = text.strip("\n").split("\n")
    if len(lines) <= LONGEST:
        return "\n".join(lines)
    return "\n".join([*lines[:LONGEST], f"... {len(lines) - LONGEST} more lines"])


def main(path: str) -> None:
    page = Path(path)
    page.write_text(fill(page.read_text(), forms()))
    print(f"wrote {page}")


if __name__ == "__main__":
    main(sys.argv[1])
