"""The kernels of a Program, and the entry that calls them, as LLVM modules.

In: a Program and the Target it is for. Out: module texts, and the loops of each kernel. Equal
kernels are rendered once.

    rendered, last = render_program(program, kernels_of(program.body), target, texts.append)
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tinyhlo.codegen.llvm.entry import EntryRenderer, Probe
from tinyhlo.codegen.llvm.kernel import render_kernel
from tinyhlo.codegen.loops import Loop, LoopProgram
from tinyhlo.codegen.lowering.kernel import lower_kernel
from tinyhlo.codegen.modules import Modules
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.codegen.report import UNKNOWN_TRIPS
from tinyhlo.ir.graph import graph_key
from tinyhlo.schedule.program import Block, Kernel, Launch, Program, Switch, While, statements
from tinyhlo.target import Target

# Long chains of nodes and nested guards recurse in Python only, which needs no C stack.
sys.setrecursionlimit(max(sys.getrecursionlimit(), 100_000))

# Kernels of up to so many nodes are inlined into the entry. Straight-line code gains most: what it
# leaves for the next kernel stays in registers.
SMALL, STRAIGHT = 64, 256
COPIED = 4096  # nodes of all copies of one kernel


@dataclass(frozen=True, eq=False, slots=True)
class Rendered:
    """A kernel's symbol and loops; whether it is inlined where it is called."""

    symbol: str
    loops: LoopProgram
    inline: bool


def render_program(
    program: Program,
    kernels: Mapping[Kernel, float],
    target: Target,
    finish: Callable[[str], None],
    libraries: Mapping[Kernel, int] | None = None,
    probe: Callable[[Kernel], Probe] | None = None,
) -> tuple[dict[Kernel, Rendered], str]:
    """The code of kernels, and the last module; `finish` got those before (see EntryRenderer)."""
    modules = Modules(target, finish)
    launched = Counter(s.kernel for s in statements(program.body) if isinstance(s, Launch))
    rendered = render_kernels(kernels, target, modules, launched)
    symbols = {kernel: found.symbol for kernel, found in rendered.items()}
    declarations: dict[str, str] = {}
    entry = EntryRenderer(program, symbols.__getitem__, declarations, libraries, probe)
    runs_once = not any(isinstance(s, While) for s in statements(program.body))
    return rendered, modules.last(entry.render("entry"), declarations, runs_once)


def render_kernels(
    kernels: Mapping[Kernel, float],
    target: Target,
    modules: Modules,
    launched: Mapping[Kernel, int] | None = None,
) -> dict[Kernel, Rendered]:
    """Code of every kernel, given how often each runs and in how many places it is launched;
    structurally equal ones share it."""
    keys = {kernel: (graph_key(kernel.graph), kernel.in_place) for kernel in kernels}
    runs: dict[object, float] = {}
    for kernel, key in keys.items():
        runs[key] = runs.get(key, 0.0) + kernels[kernel]
    by_structure: dict[object, Rendered] = {}
    rendered: dict[Kernel, Rendered] = {}
    for kernel, key in keys.items():
        found = by_structure.get(key)
        if found is None:
            number = len(by_structure)
            places = launched[kernel] if launched else 1
            found = render(kernel, target, runs[key], places, number, modules)
            by_structure[key] = found
        rendered[kernel] = found
    return rendered


def render(
    kernel: Kernel, target: Target, runs: float, places: int, number: int, modules: Modules
) -> Rendered:
    name = "".join(c if c.isalnum() or c == "_" else "_" for c in kernel.name)
    symbol = f"k{number}_{name}"
    loops = lower_kernel(kernel, target)
    if not loops.moves:  # a contraction comes with its own
        loops = choose_moves(loops, target, runs)
    straight = not any(isinstance(statement, Loop) for statement in loops.body)
    most = STRAIGHT if straight else 0 if loops.moves else SMALL
    nodes = len(kernel.graph.nodes())
    inline = nodes <= most and nodes * places <= COPIED
    declarations = modules.part(inline).declarations
    text = render_kernel(loops, target, symbol, inline, declarations)
    modules.add(symbol, len(loops.reads + loops.writes), text, inline)
    return Rendered(symbol, loops, inline)


def kernels_of(block: Block, runs: float = 1.0) -> dict[Kernel, float]:
    """Kernels in order of first launch, and how often each runs when the block runs so often."""
    found: dict[Kernel, float] = {}
    for statement in block:
        match statement:
            case Launch(kernel=kernel):
                inner = {kernel: runs}
            case While(condition=condition, body=body, trip_count=trips):
                often = runs * (UNKNOWN_TRIPS if trips is None else trips)
                inner = kernels_of((*condition, *body), often)
            case Switch(blocks=blocks):
                inner = kernels_of(tuple(s for each in blocks for s in each), runs)
            case _:
                continue
        for kernel, count in inner.items():
            found[kernel] = found.get(kernel, 0.0) + count
    return found
