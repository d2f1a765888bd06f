"""Executables around Python functions, to hold the plugin still while it is looked at.

with compiled(stand_in(kernel, [f32(8)], [f32(8)], seconds=1.0)):
    y = jax.jit(lambda x: x * 3, backend="tiny")(x)     # runs `kernel` on the stream
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from unittest import mock

import numpy as np

from tinyhlo.ir import dtypes
from tinyhlo.ir.graph import TensorType
from tinyhlo.pjrt_plugin import bridge
from tinyhlo.report import KernelReport
from tinyhlo.runtime import core
from tinyhlo.runtime.executable import Executable
from tinyhlo.signature import Signature

Pointers = ctypes.POINTER(ctypes.c_void_p)
ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, Pointers, Pointers, ctypes.c_void_p, Pointers)
Kernel = Callable[[list[np.ndarray], list[np.ndarray]], None]


def f32(*shape: int) -> TensorType:
    return TensorType(shape, dtypes.F32)


def view(address: int, type_: TensorType) -> np.ndarray:
    raw = (ctypes.c_uint8 * type_.nbytes).from_address(address)
    return np.frombuffer(raw, type_.dtype.numpy).reshape(type_.shape)


def stand_in(
    kernel: Kernel,
    inputs: Sequence[TensorType],
    outputs: Sequence[TensorType],
    aliases: tuple[tuple[int, int], ...] = (),
    seconds: float = 0.0,
) -> Executable:
    """An Executable whose entry calls `kernel(inputs, outputs)`; one that raises fails the run."""

    def call(given, results, arena, constants):  # type: ignore[no-untyped-def]
        try:
            kernel(
                [view(given[k], type_) for k, type_ in enumerate(inputs)],
                [view(results[k], type_) for k, type_ in enumerate(outputs)],
            )
        except Exception as error:
            core.library().tiny_set_error(13, str(error).encode())
            return 1
        return 0

    entry = ENTRY(call)
    return Executable(
        name="jit_stand_in",
        signature=Signature(tuple(inputs), tuple(outputs)),
        aliases=aliases,
        entry=ctypes.cast(entry, ctypes.c_void_p).value or 0,
        arena_bytes=256,
        constants=(),
        estimated_seconds=seconds,
        kernels=(KernelReport("k", "", flops=8, bytes_read=32, bytes_written=32),),
        code_bytes=100,
        keepalive=entry,
    )


@contextlib.contextmanager
def compiled(executable: Executable) -> Iterator[None]:
    """Whatever is jitted inside becomes `executable`."""
    with mock.patch.object(bridge, "compile_program", lambda program, options: executable):
        yield
