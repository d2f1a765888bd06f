"""Print the forms of programs into the pages that explain them: those that `relu(x @ w + b)` takes
into docs/how-it-works.md, loops of whole kernels into docs/performance.md.

    python -m tools.print_forms docs/how-it-works.md docs/performance.md

A page holds blocks that begin with the comment "form: NAME"; the code fence after it is replaced
by what the compiler makes now. A test compares, so that pages cannot grow stale. The target is a
fixed processor, so that they do not depend on the machine they were printed on.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tinyhlo.codegen.lowering.kernel import lower_kernel
from tinyhlo.codegen.modules import Modules
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.codegen.render import render_kernels
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.simplify import simplify
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule import schedule
from tinyhlo.schedule.program import Kernel, Launch, Program

TARGET = named_target("x86-64-v3", threads=2)
CHECKOUT = Path(__file__).resolve().parents[1]
LONGEST = 60  # lines of a form that are shown
ALIKE = 3  # statements in a row that differ in their places alone, of which so many are shown
BLOCK = re.compile(r"(<!-- form: (\w+) -->\n```\w*\n).*?(^```$)", re.DOTALL | re.MULTILINE)


def model(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    return jax.nn.relu(x @ w + b)


def row_sums(x: jax.Array) -> jax.Array:
    return x.sum(axis=1)


def less_mean(x: jax.Array) -> jax.Array:
    return x - x.mean()


def convolution(x: jax.Array, w: jax.Array) -> jax.Array:
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout)


def depthwise(x: jax.Array, w: jax.Array) -> jax.Array:
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", feature_group_count=x.shape[1])


def columns(x: jax.Array) -> jax.Array:
    return jax.nn.softmax(x, axis=1)


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores), v)


# kernels of docs/performance.md: the shapes of their arguments
WHOLE: dict[Callable[..., jax.Array], tuple[tuple[int, ...], ...]] = {
    convolution: ((8, 56, 56, 64), (3, 3, 64, 64)),
    depthwise: ((8, 64, 56, 56), (64, 1, 3, 3)),
    columns: ((32, 128, 1024),),
    attention: ((4, 8, 512, 64),) * 3,
}


def lowered(function: Callable[..., jax.Array], shapes: tuple[tuple[int, ...], ...]) -> Any:
    """By JAX, for this platform."""
    arguments = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    return jax.jit(function).trace(*arguments).lower(lowering_platforms=("tiny",))


def stages_of(text: str) -> tuple[Graph, Program, Kernel]:
    """The graph, the program, and its first kernel."""
    module = import_module(text)
    graph = simplify(module.graph)
    # convolutions as sums: what Winograd's products are made of would be three kernels
    program = schedule(graph, module.name, module.aliases, TARGET, precise=True)
    return graph, program, next(s.kernel for s in program.body if isinstance(s, Launch))


def forms() -> dict[str, str]:
    """Name -> printed form: of the model in the order of the pipeline, then of whole kernels."""
    given = lowered(model, ((64, 128), (128, 32), (32,)))
    graph, program, kernel = stages_of(given.as_text(debug_info=True))
    modules = Modules(TARGET, print)
    rendered = render_kernels({kernel: 1.0}, TARGET, modules)[kernel]
    ((llvm, _),) = modules.part(rendered.inline).functions
    plain = lower_kernel(stages_of(lowered(row_sums, ((64, 128),)).as_text())[2], TARGET)
    centred = stages_of(lowered(less_mean, ((512, 512),)).as_text())[1]
    printed = {
        "stablehlo": given.as_text(),
        "graph": graph,
        "program": program,
        "why": centred,
        "loops": rendered.loops,
        "plain": plain,
        "moved": choose_moves(plain, TARGET, 1.0),
        "llvm": llvm,
    }
    for function, shapes in WHOLE.items():
        kernel = stages_of(lowered(function, shapes).as_text())[2]
        found = render_kernels({kernel: 1.0}, TARGET, Modules(TARGET, print))[kernel]
        printed[function.__name__] = without_repeats(str(found.loops))
    return {name: str(form).replace(f"{CHECKOUT}{os.sep}", "") for name, form in printed.items()}


def without_repeats(text: str) -> str:
    """Of statements one after another that set or add to the same name a few."""
    kept: list[str] = []
    begun, count = "", 0
    for line in text.split("\n"):
        begins = re.split(r"[\[=]", line)[0] if re.match(r" *\w+(\[.*?\])? \+?= ", line) else ""
        count = count + 1 if begins and begins == begun else 1
        begun = begins
        if count <= ALIKE:
            kept.append(line)
        elif count == ALIKE + 1:
            kept.append(" " * (len(line) - len(line.lstrip())) + "...")
    return "\n".join(kept)


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


def main(*paths: str) -> None:
    printed = forms()
    for page in map(Path, paths):
        page.write_text(fill(page.read_text(), printed))
        print(f"wrote {page}")


if __name__ == "__main__":
    main(*sys.argv[1:])
