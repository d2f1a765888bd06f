"""A Program as native code.

In: a Program, the Target it is for, the Config. Out: `Compiled`: the address of

    int32_t entry(void** inputs, void** outputs, void* arena, void** constants)

and what is known of each kernel. Equal kernels are compiled once.

    compiled = compile_program(schedule(graph), host_target(threads=2), Config())
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tinyhlo.codegen.llvm.entry import EntryRenderer, Probe
from tinyhlo.codegen.llvm.kernel import render_kernel
from tinyhlo.codegen.loops import Loop, LoopProgram
from tinyhlo.codegen.lower_kernel import library_call_of, lower_kernel
from tinyhlo.codegen.modules import Modules
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.codegen.report import (
    UNKNOWN_TRIPS,
    estimate_seconds,
    kernel_seconds,
    report,
    scratch_bytes,
)
from tinyhlo.codegen.target import Target
from tinyhlo.config import Config
from tinyhlo.ir.graph import graph_key
from tinyhlo.runtime.executable import KernelReport
from tinyhlo.runtime.jit import Linked, link
from tinyhlo.runtime.library import Library
from tinyhlo.runtime.object_code import ObjectCode
from tinyhlo.runtime.targets import bind
from tinyhlo.runtime.trace import Trace, trace_to
from tinyhlo.schedule.program import Block, Kernel, Launch, Program, Switch, While, statements

# Long chains of nodes and nested guards recurse in Python only, which needs no C stack.
sys.setrecursionlimit(max(sys.getrecursionlimit(), 100_000))

# Kernels of up to so many nodes are inlined into the entry. Straight-line code gains most: what it
# leaves for the next kernel stays in registers.
SMALL, STRAIGHT = 64, 256


@dataclass(frozen=True, eq=False, slots=True)
class Compiled:
    """Code that can be called, as long as this object lives; `modules` are its LLVM IR. The
    addresses of the descriptors of `libraries` follow the program's constants in the table that the
    entry takes."""

    entry: int
    kernels: tuple[KernelReport, ...]
    estimated_seconds: float
    pieces: tuple[bytes, ...] = field(repr=False)  # object code
    modules: tuple[str, ...] = field(repr=False)
    loops: tuple[LoopProgram, ...] = field(repr=False)
    libraries: tuple[Library, ...] = field(repr=False)
    linked: Linked = field(repr=False)
    counters: np.ndarray | None = field(default=None, repr=False)  # (calls, ns) of each kernel
    scratch_bytes: int = 0  # of the kernel that allocates most
    first_number: int = 0  # of the kernels in the trace

    def __str__(self) -> str:
        return "\n\n".join([*map(str, self.loops), *self.modules])


@dataclass(frozen=True, eq=False, slots=True)
class Rendered:
    """A kernel's symbol and loops; whether it is inlined where it is called."""

    symbol: str
    loops: LoopProgram
    inline: bool


def compile_program(program: Program, target: Target, config: Config) -> Compiled:
    """Lower, schedule, render, compile and link a Program.

    Raises UnsupportedOp, naming every kernel that cannot be compiled.
    """
    kernels = kernels_of(program.body)
    libraries = bind_libraries(kernels)
    counters = np.zeros((len(kernels), 2), np.int64) if is_profiled(config) else None
    trace = trace_to(config.profile)
    first = trace.reserve(len(kernels)) if trace else 0
    texts: list[str] = []
    with ObjectCode(target, config if counters is None else replace(config, cache=0)) as code:

        def finish(text: str) -> None:
            texts.append(text)
            code.add(text)

        rendered, last = render_program(
            program,
            {kernel: runs for kernel, runs in kernels.items() if kernel not in libraries},
            target,
            finish,
            {kernel: len(program.constants) + k for k, kernel in enumerate(libraries)},
            None if counters is None else probes(counters, kernels, first, trace),
        )
        pieces = code.pieces(last)
    linked = link(pieces)
    loops = {kernel: r.loops for kernel, r in rendered.items()}
    reports = {kernel: report(kernel, loops.get(kernel, "")) for kernel in kernels}
    seconds = {
        kernel: libraries[kernel].seconds
        if kernel in libraries
        else kernel_seconds(kernel, reports[kernel], rendered[kernel].inline, runs, target)
        for kernel, runs in kernels.items()
    }
    return Compiled(
        entry=linked.address("entry"),
        kernels=tuple(reports.values()),
        estimated_seconds=estimate_seconds(program, seconds),
        pieces=pieces,
        modules=(*texts, last),
        loops=tuple({r.symbol: r.loops for r in rendered.values()}.values()),
        libraries=tuple(libraries.values()),
        linked=linked,
        counters=counters,
        scratch_bytes=max(
            (scratch_bytes(r.loops.body, target.threads) for r in rendered.values()), default=0
        ),
        first_number=first,
    )


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
    rendered = render_kernels(kernels, target, modules)
    symbols = {kernel: found.symbol for kernel, found in rendered.items()}
    declarations: dict[str, str] = {}
    entry = EntryRenderer(program, symbols.__getitem__, declarations, libraries, probe)
    runs_once = not any(isinstance(s, While) for s in statements(program.body))
    return rendered, modules.last(entry.render("entry"), declarations, runs_once)


def is_profiled(config: Config) -> bool:
    """Whether kernels are timed one by one."""
    return config.debug >= 2 or bool(config.profile)


def probes(
    counters: np.ndarray, kernels: Iterable[Kernel], first: int, trace: Trace | None
) -> Callable[[Kernel], Probe]:
    """Each kernel's row of `counters`, and its number in the trace, from `first` on."""
    table, cursor, capacity = trace.addresses() if trace else (0, 0, 0)
    start, step = counters.ctypes.data, counters.strides[0]
    return {
        kernel: Probe(start + k * step, first + k, table, cursor, capacity)
        for k, kernel in enumerate(kernels)
    }.__getitem__


def bind_libraries(kernels: Iterable[Kernel]) -> dict[Kernel, Library]:
    """The descriptors of the kernels that are library calls."""
    calls = ((kernel, library_call_of(kernel)) for kernel in kernels)
    return {kernel: bind(call) for kernel, call in calls if call is not None}


def render_kernels(
    kernels: Mapping[Kernel, float], target: Target, modules: Modules
) -> dict[Kernel, Rendered]:
    """Code of every kernel, given how often each runs; structurally equal ones share it."""
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
            found = by_structure[key] = render(kernel, target, runs[key], number, modules)
        rendered[kernel] = found
    return rendered


def render(kernel: Kernel, target: Target, runs: float, number: int, modules: Modules) -> Rendered:
    name = "".join(c if c.isalnum() or c == "_" else "_" for c in kernel.name)
    symbol = f"k{number}_{name}"
    loops = lower_kernel(kernel, target)
    if not loops.moves:  # a contraction comes with its own
        loops = choose_moves(loops, target, runs)
    straight = not any(isinstance(statement, Loop) for statement in loops.body)
    most = STRAIGHT if straight else 0 if loops.moves else SMALL
    inline = len(kernel.graph.nodes()) <= most
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
