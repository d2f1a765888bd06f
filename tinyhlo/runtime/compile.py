"""A Program as native code.

In: a Program, the Target it is for, the Config. Out: `Compiled`: object code with

    int32_t entry(void** inputs, void** outputs, void* arena, void** constants)

to be linked (`jit.py`, `shared_library.py`), and what is known of each kernel.

    compiled = compile_program(program, target, Config())
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import field, replace
from typing import TYPE_CHECKING

import numpy as np

from tinyhlo.codegen.llvm.entry import Probe
from tinyhlo.codegen.llvm.scratch import scratch_of
from tinyhlo.codegen.loops import LoopProgram
from tinyhlo.codegen.lowering.kernel import library_call_of
from tinyhlo.codegen.render import Rendered, kernels_of, render_program
from tinyhlo.codegen.report import estimate_seconds, kernel_seconds, report
from tinyhlo.config import Config, schedules_file
from tinyhlo.records import dataclass
from tinyhlo.recursion import deep_recursion
from tinyhlo.report import KernelReport
from tinyhlo.runtime.library import REGISTRY, Library
from tinyhlo.runtime.object_code import ObjectCode
from tinyhlo.runtime.targets import bind
from tinyhlo.runtime.trace import trace_to
from tinyhlo.schedule.program import Kernel, Program
from tinyhlo.target import Target

if TYPE_CHECKING:
    from tinyhlo.codegen.wgsl.plan import Plan
    from tinyhlo.runtime.search.store import Found


@dataclass(frozen=True, eq=False, slots=True)
class Compiled:
    """Object code in `pieces`, which counts in `counters` if there are any; `modules` are its LLVM
    IR. The addresses of the descriptors of `libraries` follow the program's constants in the table
    that the entry takes. A device's own compiler has had `source`."""

    kernels: tuple[KernelReport, ...]
    estimated_seconds: float
    pieces: tuple[bytes, ...] = field(repr=False)
    modules: tuple[str, ...] = field(repr=False)
    loops: tuple[LoopProgram, ...] = field(repr=False)
    libraries: tuple[Library, ...] = field(repr=False)
    counters: np.ndarray | None = field(default=None, repr=False)  # (calls, ns) of each kernel
    arena_bytes: int = 0
    scratch_bytes: int = 0  # of its kernels at once, on all threads
    first_number: int = 0  # of the kernels in the trace
    found: tuple[Found, ...] = ()  # by searches for schedules
    source: str = field(default="", repr=False)
    plan: Plan | None = field(default=None, repr=False)  # for a device of WebGPU

    def __str__(self) -> str:
        return "\n\n".join([*map(str, self.loops), *filter(None, [self.source]), *self.modules])


@deep_recursion()
def compile_program(program: Program, target: Target, config: Config) -> Compiled:
    """Lower, schedule, render and compile a Program.

    Raises UnsupportedOp, naming every kernel that cannot be compiled.
    """
    kernels = kernels_of(program.body)
    libraries = bind_libraries(kernels, target)
    counters, first, probe = profile_of(kernels, config)
    own = {kernel: runs for kernel, runs in kernels.items() if kernel not in libraries}
    found = schedules_of(own, target, config)
    texts: list[str] = []
    config = config if counters is None else replace(config, cache=0)
    with closing(ObjectCode(target, config)) as code:

        def finish(text: str) -> None:
            texts.append(text)
            code.add(text)

        rendered, last = render_program(
            program,
            own,
            target,
            finish,
            {kernel: len(program.constants) + k for k, kernel in enumerate(libraries)},
            probe,
            {kernel: each.schedule for kernel, each in found.items()},
        )
        pieces = code.pieces(last)
    say_what_is_ignored(found, rendered, config)
    if config.verify:
        from tinyhlo.codegen.verifier import verify_loops

        for each in rendered.values():
            verify_loops(each.loops)
    loops = {kernel: r.loops for kernel, r in rendered.items()}
    reports = {kernel: report(kernel, loops.get(kernel, "")) for kernel in kernels}
    seconds = {
        kernel: libraries[kernel].seconds
        if kernel in libraries
        else kernel_seconds(kernel, reports[kernel], rendered[kernel].inline, runs, target)
        for kernel, runs in kernels.items()
    }
    return Compiled(
        kernels=tuple(reports.values()),
        estimated_seconds=estimate_seconds(program, seconds),
        pieces=pieces,
        modules=(*texts, last),
        loops=tuple({r.symbol: r.loops for r in rendered.values()}.values()),
        libraries=tuple(libraries.values()),
        counters=counters,
        arena_bytes=program.arena_bytes,
        scratch_bytes=scratch_of(r.loops.body for r in rendered.values()).total(target.threads),
        first_number=first,
        found=tuple(found.values()),
    )


def schedules_of(
    kernels: Mapping[Kernel, float], target: Target, config: Config
) -> dict[Kernel, Found]:
    """What searches found, now or before, where the user asks for it."""
    if not config.beam and not config.schedules:
        return {}
    from tinyhlo.runtime.search.beam import search

    return search(kernels, target, config)


def say_what_is_ignored(
    found: Mapping[Kernel, Found], rendered: Mapping[Kernel, Rendered], config: Config
) -> None:
    """Say once what schedules ask for in vain."""
    for kernel, each in found.items():
        if rendered[kernel].ignored:
            from tinyhlo.runtime.search.store import say_ignored

            say_ignored(schedules_file(config), each.kernel, rendered[kernel].ignored)


def profile_of(
    kernels: Collection[Kernel], config: Config
) -> tuple[np.ndarray | None, int, Callable[[Kernel], Probe] | None]:
    """(calls, nanoseconds) of each kernel, the number of the first one in the trace, and where each
    one counts; nothing where kernels are not timed one by one."""
    trace = trace_to(config.profile)
    first = trace.reserve(len(kernels)) if trace else 0
    if config.debug < 2 and not config.profile and not config.viz:
        return None, first, None
    counters = np.zeros((len(kernels), 2), np.int64)
    table, cursor, capacity = trace.addresses() if trace else (0, 0, 0)
    start, step = counters.ctypes.data, counters.strides[0]
    probes = {
        kernel: Probe(start + k * step, first + k, table, cursor, capacity)
        for k, kernel in enumerate(kernels)
    }
    return counters, first, probes.__getitem__


def bind_libraries(kernels: Iterable[Kernel], target: Target) -> dict[Kernel, Library]:
    """The descriptors of the kernels that are library calls."""
    calls = ((kernel, library_call_of(kernel, target, REGISTRY)) for kernel in kernels)
    return {kernel: bind(call) for kernel, call in calls if call is not None}
