"""A Program for a device of WebGPU: `Compiled` with a plan, and the Executable that follows it."""

from __future__ import annotations

import ctypes

from tinyhlo.codegen.render import kernels_of
from tinyhlo.codegen.report import report
from tinyhlo.codegen.wgsl.plan import plan_of
from tinyhlo.config import Config
from tinyhlo.errors import TinyhloError
from tinyhlo.import_stablehlo import Module
from tinyhlo.ir.elements import stored
from tinyhlo.runtime import core
from tinyhlo.runtime.compile import Compiled
from tinyhlo.runtime.executable import ENTRY, Executable
from tinyhlo.runtime.library import REGISTRY, python_call
from tinyhlo.runtime.webgpu.device import open_named
from tinyhlo.runtime.webgpu.run import Running
from tinyhlo.schedule.program import Program
from tinyhlo.target import Target


def compile_program(program: Program, target: Target, config: Config) -> Compiled:
    """Raises UnsupportedOp for what the device cannot compute; TinyhloError for options that are
    for processors."""
    if config.beam or config.schedules:
        raise TinyhloError("device WEBGPU: schedules are searched for processors alone")
    plan = plan_of(program, target, REGISTRY)
    return Compiled(
        kernels=tuple(report(kernel, "") for kernel in kernels_of(program.body)),
        estimated_seconds=1.0,  # never worth blocking the caller for
        pieces=(),
        modules=(),
        loops=(),
        libraries=(),
        source=plan.source,
        plan=plan,
    )


def executable(module: Module, compiled: Compiled, config: Config) -> Executable:
    """What runs the plan on copies of arrays of the host."""
    assert compiled.plan is not None
    running = Running(compiled.plan, open_named(config.device))
    signature = module.signature
    inputs, outputs = map(stored, signature.inputs), map(stored, signature.outputs)
    library = python_call(running, tuple(inputs), tuple(outputs))

    def run(arguments, results, arena, constants) -> int:  # type: ignore[no-untyped-def]
        address = library.descriptor.ctypes.data
        return core.library().tiny_library_call(address, arguments, results)

    entry = ENTRY(run)
    return Executable(
        name=module.name,
        signature=signature,
        aliases=(),
        entry=ctypes.cast(entry, ctypes.c_void_p).value or 0,
        arena_bytes=0,
        constants=(),
        estimated_seconds=compiled.estimated_seconds,
        kernels=compiled.kernels,
        code_bytes=len(compiled.source),
        keepalive=(entry, library, running),
        effects=bool(module.graph.effects),
        synchronous=bool(compiled.plan.calls),
    )
