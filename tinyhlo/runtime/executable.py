"""A compiled program that can be called, and what the plugin needs to call it without Python.

In: linked code and what is known of it, from `host.py` or `saved.py`. Out: `Executable`, called
with NumPy arrays, or through its native entry

    int32_t entry(void** inputs, void** outputs, void* arena, void** constants)

which returns 0, or an error code whose text `tiny_last_error()` gives. For each alias
(output, input) the caller passes the same pointer in both lists.
"""

from __future__ import annotations

import ctypes
from dataclasses import field
from typing import Any

import numpy as np

from tinyhlo.errors import ExecutionError
from tinyhlo.ir.dtypes import U8
from tinyhlo.ir.graph import TensorType
from tinyhlo.records import dataclass
from tinyhlo.report import KernelReport, Timing
from tinyhlo.runtime import core
from tinyhlo.runtime.arrays import aligned_empty, buffer, checked, copied, got, pointers, put
from tinyhlo.runtime.functions import causes
from tinyhlo.signature import Signature

Pointers = ctypes.POINTER(ctypes.c_void_p)
ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, Pointers, Pointers, ctypes.c_void_p, Pointers)
Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Executable:
    """`entry` is the address of the native entry; `keepalive` holds what the code needs.
    `effects`: it calls functions for what they do. `synchronous`: it is over when its call is.
    `on_host`: it reads and writes the host's memory, not buffers of a device's. `stored`: the file
    that keeps its code, if one does."""

    name: str
    signature: Signature
    aliases: tuple[tuple[int, int], ...]
    entry: int
    arena_bytes: int
    constants: tuple[np.ndarray, ...]
    estimated_seconds: float
    kernels: tuple[KernelReport, ...]
    code_bytes: int
    keepalive: Any = field(default=None, repr=False)
    effects: bool = False
    synchronous: bool = False
    on_host: bool = True
    scratch_bytes: int = 0  # of its kernels at once, on all threads
    counters: np.ndarray | None = field(default=None, repr=False)  # (calls, ns) of each kernel
    stored: str = field(default="", repr=False)

    def profile(self) -> list[Timing]:
        """What each kernel took since it was compiled; nothing unless the program was compiled with
        TINYHLO_DEBUG >= 2, TINYHLO_PROFILE or TINYHLO_VIZ."""
        if self.counters is None:
            return []
        return [
            Timing(kernel, int(calls), float(nanoseconds) * 1e-9)
            for kernel, (calls, nanoseconds) in zip(self.kernels, self.counters, strict=True)
        ]

    def __call__(self, *arguments: np.ndarray) -> Arrays:
        """Run on host arrays; returns new arrays.

        Raises ExecutionError when number, shapes or dtypes do not match the inputs, with what the
        program says, or when its scratch does not fit.
        """
        given = checked(arguments, self.signature.inputs)
        empty = aligned_empty if self.on_host else buffer
        if not self.on_host:
            given = [*map(put, given)]
        needed = self.arena_bytes + self.scratch_bytes
        if needed > core.MOST_BYTES:
            raise ExecutionError(f"out of memory: {needed} bytes of scratch for {self.name}")
        results = [empty(type_) for type_ in self.signature.outputs]
        for output, position in self.aliases:
            copied(results[output], given[position], self.on_host)
            given[position] = results[output]
        arena = empty(TensorType((self.arena_bytes,), U8))
        entry = ENTRY(self.entry)
        with causes() as raised:
            tables = pointers(given), pointers(results), arena.ctypes.data, pointers(self.constants)
            if status := entry(*tables):
                reason = core.last_error() or f"code {status}"
                failed = f"{self.name} failed: {reason}"
                raise ExecutionError(failed) from next(reversed(raised), None)
        return tuple(results if self.on_host else map(got, results))
