"""Executables on the host: native code called through its entry, or the NumPy interpreter.

In: what the compiler's stages produced. Out: `Executable`.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tinyhlo.config import Config, variable
from tinyhlo.devices import kind_of
from tinyhlo.ir.elements import stored
from tinyhlo.ir.graph import TensorType
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.report import Timing, kernel_line
from tinyhlo.runtime import core
from tinyhlo.runtime.arrays import aligned_copy, put
from tinyhlo.runtime.compile import Compiled
from tinyhlo.runtime.executable import Executable
from tinyhlo.runtime.functions import pointer_of
from tinyhlo.runtime.jit import link
from tinyhlo.runtime.library import Function, Library, host_call, python_call
from tinyhlo.runtime.trace import trace_to
from tinyhlo.signature import Signature

if TYPE_CHECKING:
    from tinyhlo.codegen.wgsl.plan import Plan
    from tinyhlo.import_stablehlo import Module
    from tinyhlo.schedule import Program


def native(module: Module, program: Program, compiled: Compiled, config: Config) -> Executable:
    """An Executable around compiled code."""
    if compiled.plan is not None:
        return following(compiled.plan, module, compiled, config)
    on_host = kind_of(config.device).on_host
    constants = tuple(
        map(aligned_copy if on_host else put, [each.value for each in program.constants])
    )
    constants += tuple(library.descriptor for library in compiled.libraries)
    linked = link(compiled.pieces, program.name)
    entry, run = linked.entry, None
    if config.debug >= 2 and compiled.counters is not None:
        run = reporting(entry, compiled, config)
        entry = core.address("tiny_python_entry")
        constants = (np.array([0, pointer_of(run)], np.int64), *constants)

    trace = trace_to(config.profile)
    if trace:
        trace.describe(module.name, compiled.first_number, compiled.kernels)

    return Executable(
        name=module.name,
        signature=module.signature,
        aliases=program.aliases,
        entry=entry,
        arena_bytes=compiled.arena_bytes,
        scratch_bytes=compiled.scratch_bytes,
        constants=constants,
        estimated_seconds=compiled.estimated_seconds,
        kernels=compiled.kernels,
        code_bytes=sum(map(len, compiled.pieces)),
        keepalive=(compiled, linked, constants, run),
        effects=bool(module.graph.effects),
        synchronous=any(library.synchronous for library in compiled.libraries),
        on_host=on_host,
        counters=compiled.counters,
    )


def following(plan: Plan, module: Module, compiled: Compiled, config: Config) -> Executable:
    """An Executable that follows a plan on a device of WebGPU."""
    from tinyhlo.runtime.devices.device import open_named
    from tinyhlo.runtime.webgpu.run import Running

    running = Running(plan, open_named(config.device))
    return replace(
        calling(module.name, module.signature, called(running, module.signature)),
        kernels=compiled.kernels,
        code_bytes=len(plan.source),
        synchronous=bool(plan.calls),
        effects=bool(module.graph.effects),
    )


def reporting(entry: int, compiled: Compiled, config: Config) -> Callable[..., int]:
    """The entry, followed by a line per kernel that ran (TINYHLO_DEBUG=2), and by one that says why
    they may have been slow."""
    native = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4)(entry)

    def run(*tables: int) -> int:
        counters = compiled.counters
        assert counters is not None
        before = counters.copy()
        core.library().tiny_met_denormals()
        status = native(*tables)
        slow = core.library().tiny_met_denormals()
        for report, (calls, nanoseconds) in zip(compiled.kernels, counters - before, strict=True):
            if calls:
                print(kernel_line(Timing(report, int(calls), nanoseconds * 1e-9)), file=sys.stderr)
        if slow and not config.flush:
            hint = f"{variable('flush')}=1 makes them zeros"
            print(f"denormal numbers: slow on some processors; {hint}", file=sys.stderr)
        return status

    return run


def interpreted(module: Module) -> Executable:
    """An Executable that runs the Graph in the NumPy interpreter (TINYHLO_DEVICE=PYTHON)."""
    function = called(partial(run_graph, module.graph), module.signature)
    made = calling(module.name, module.signature, function)
    return replace(made, effects=bool(module.graph.effects))


def for_buffers(executable: Executable) -> Executable:
    """One of the host's for callers whose arrays it cannot read: it runs on copies."""
    signature = executable.signature
    library = host_call(called(as_stored(executable), signature), *types_of(signature))
    made = calling(executable.name, signature, library)
    return replace(
        made,
        kernels=executable.kernels,
        code_bytes=executable.code_bytes,
        effects=executable.effects,
        counters=executable.counters,
        keepalive=(made.keepalive, executable),
    )


def as_stored(executable: Executable) -> Function:
    """It as a function of arrays as they are stored."""
    signature = executable.signature

    def function(arrays: list[np.ndarray]) -> list[np.ndarray]:
        given = map(same_bytes, arrays, signature.inputs)
        return [*map(same_bytes, executable(*given), map(stored, signature.outputs))]

    return function


def same_bytes(array: np.ndarray, type_: TensorType) -> np.ndarray:
    """An array as one of another type: complex numbers as their parts, and back."""
    return array.reshape(-1).view(type_.dtype.numpy).reshape(type_.shape)


def types_of(signature: Signature) -> tuple[list[TensorType], list[TensorType]]:
    """Of the inputs and the outputs, as they are stored."""
    return [*map(stored, signature.inputs)], [*map(stored, signature.outputs)]


def called(function: Function, signature: Signature) -> Library:
    """A Python function of arrays as they are stored."""
    return python_call(function, *types_of(signature))


def calling(name: str, signature: Signature, library: Library) -> Executable:
    """An Executable that calls a function of the whole program."""
    return Executable(
        name=name,
        signature=signature,
        aliases=(),
        entry=core.address("tiny_library_entry"),
        arena_bytes=0,
        constants=(library.descriptor,),
        estimated_seconds=1.0,  # never worth blocking the caller for
        kernels=(),
        code_bytes=0,
        keepalive=library,
    )
