"""Executables on the host: native code called through its entry, or the NumPy interpreter.

In: what the compiler's stages produced. Out: `Executable`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from tinyhlo.config import Config
from tinyhlo.import_stablehlo import Module
from tinyhlo.ir.elements import stored
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.report import KernelReport, Timing, kernel_line
from tinyhlo.runtime import core
from tinyhlo.runtime.arrays import aligned_copy
from tinyhlo.runtime.compile import Compiled
from tinyhlo.runtime.executable import ENTRY, Executable
from tinyhlo.runtime.jit import link
from tinyhlo.runtime.library import Function, python_call
from tinyhlo.runtime.trace import trace_to
from tinyhlo.schedule import Program


def native(module: Module, program: Program, compiled: Compiled, config: Config) -> Executable:
    """An Executable around compiled code."""
    if compiled.plan is not None:
        from tinyhlo.runtime.devices.device import open_named
        from tinyhlo.runtime.webgpu.run import Running

        plan, running = compiled.plan, Running(compiled.plan, open_named(config.device))
        return calling(module, running, compiled.kernels, len(plan.source), bool(plan.calls))
    constants = tuple(aligned_copy(constant.value) for constant in program.constants)
    constants += tuple(library.descriptor for library in compiled.libraries)
    linked = link(compiled.pieces, program.name)
    entry = ENTRY(linked.entry)
    if config.debug >= 2 and compiled.counters is not None:
        entry = ENTRY(reporting(entry, compiled))

    trace = trace_to(config.profile)
    if trace:
        trace.describe(module.name, compiled.first_number, compiled.kernels)

    return Executable(
        name=module.name,
        signature=module.signature,
        aliases=program.aliases,
        entry=core.address_of(entry),
        arena_bytes=compiled.arena_bytes,
        scratch_bytes=compiled.scratch_bytes,
        constants=constants,
        estimated_seconds=compiled.estimated_seconds,
        kernels=compiled.kernels,
        code_bytes=sum(map(len, compiled.pieces)),
        keepalive=(compiled, linked, constants, entry),
        effects=bool(module.graph.effects),
        synchronous=any(library.synchronous for library in compiled.libraries),
        counters=compiled.counters,
    )


def reporting(entry: Callable[..., int], compiled: Compiled) -> Callable[..., int]:
    """The entry, followed by a line per kernel that ran (TINYHLO_DEBUG=2)."""

    def run(arguments, results, arena, constants) -> int:  # type: ignore[no-untyped-def]
        counters = compiled.counters
        assert counters is not None
        before = counters.copy()
        status = entry(arguments, results, arena, constants)
        for report, (calls, nanoseconds) in zip(compiled.kernels, counters - before, strict=True):
            if calls:
                print(kernel_line(Timing(report, int(calls), nanoseconds * 1e-9)), file=sys.stderr)
        return int(status)

    return run


def interpreted(module: Module) -> Executable:
    """An Executable that runs the Graph in the NumPy interpreter (TINYHLO_DEVICE=PYTHON)."""
    return calling(module, lambda arrays: run_graph(module.graph, arrays))


def calling(
    module: Module,
    function: Function,
    kernels: tuple[KernelReport, ...] = (),
    code_bytes: int = 0,
    synchronous: bool = False,
) -> Executable:
    """An Executable that calls a Python function of arrays as they are stored."""
    signature = module.signature
    library = python_call(
        function, tuple(map(stored, signature.inputs)), tuple(map(stored, signature.outputs))
    )

    def run(arguments, results, arena, constants) -> int:  # type: ignore[no-untyped-def]
        address = library.descriptor.ctypes.data
        return core.library().tiny_library_call(address, arguments, results)

    entry = ENTRY(run)
    return Executable(
        name=module.name,
        signature=signature,
        aliases=(),
        entry=core.address_of(entry),
        arena_bytes=0,
        constants=(),
        estimated_seconds=1.0,  # never worth blocking the caller for
        kernels=kernels,
        code_bytes=code_bytes,
        keepalive=(entry, library),
        effects=bool(module.graph.effects),
        synchronous=synchronous,
    )
