"""NumPy arrays over native memory, native pointers to NumPy arrays, C structures as words.

view(address, f32[2,3])  ->  the array that lies there, not copied
pointers([x, y])         ->  void*[2], and arrays_at(its address, types) the arrays
got(put(x))              ->  x, by way of where programs find arrays
mismatch(x, f32[2,3])    ->  "must be f32[2,3], got f64[2,3]: convert it to float32"
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyhlo.errors import ExecutionError, OutOfMemory
from tinyhlo.ir import elements
from tinyhlo.ir.graph import TensorType
from tinyhlo.runtime import core

if TYPE_CHECKING:
    from tinyhlo.import_stablehlo.refine import ArgumentType

ALIGNMENT = 64
POOLED = 1 << 25  # bytes of an array of the host that C libraries ask the system for


def view(address: int | None, type_: TensorType) -> np.ndarray:
    """The array at `address`, not copied."""
    if type_.size == 0 or not address:
        return np.empty(type_.shape, type_.dtype.numpy)
    raw: Any = (ctypes.c_uint8 * type_.nbytes).from_address(address)
    return np.ndarray(type_.shape, type_.dtype.numpy, raw)


def arrays_at(table: int, types: Sequence[TensorType]) -> list[np.ndarray]:
    """The arrays at the addresses of a table, not copied."""
    addresses = (ctypes.c_void_p * len(types)).from_address(table)
    return [*map(view, addresses, types)]


def pointers(arrays: Sequence[np.ndarray]) -> ctypes.Array[ctypes.c_void_p]:
    """The addresses of arrays, as C takes them; one NULL for none."""
    return (ctypes.c_void_p * max(1, len(arrays)))(*(array.ctypes.data for array in arrays))


class Words:
    """Memory of C structures, as long as this object lives. Each of their fields fills a word of 8
    bytes: narrower ones are followed by padding."""

    def __init__(self) -> None:
        self.alive: list[np.ndarray] = []

    def array(self, values: Any, dtype: Any = np.int64) -> np.ndarray:
        self.alive.append(np.array(values, dtype))
        return self.alive[-1]

    def address(self, values: Any, dtype: Any = np.int64) -> int:
        return self.array(values, dtype).ctypes.data


def aligned_empty(type_: TensorType) -> np.ndarray:
    """An uninitialised array of the host's whose data start on a cache line. A large one comes from
    the pool: C libraries give it back to the system, which clears the pages of a new one."""
    if type_.nbytes >= POOLED and not core.library().tiny_memory_is_devices():
        return pooled(type_)
    return aligned(np.empty(type_.nbytes + ALIGNMENT, np.uint8), type_)


def pooled(type_: TensorType) -> np.ndarray:
    """An uninitialised array in memory that goes back to the pool with the last view of it."""
    library, count = core.library(), type_.nbytes + ALIGNMENT
    address = library.tiny_allocate_buffer(count)
    if not address:
        raise OutOfMemory(f"out of memory: {count} bytes for an array")
    raw = (ctypes.c_uint8 * count).from_address(address)
    finalizer = weakref.finalize(raw, library.tiny_free_buffer, address, count)
    finalizer.atexit = False
    return aligned(np.ctypeslib.as_array(raw), type_)


def aligned(raw: np.ndarray, type_: TensorType) -> np.ndarray:
    """The array that begins on the first cache line of some bytes."""
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + type_.nbytes].view(type_.dtype.numpy).reshape(type_.shape)


def aligned_copy(value: np.ndarray) -> np.ndarray:
    """A copy whose data start on a cache line."""
    copy = aligned_empty(TensorType(value.shape, BY_NUMPY[value.dtype]))
    copy[...] = value
    return copy


# --- buffers: arrays where programs find them ----------------------------------------------------


def buffer(type_: TensorType) -> np.ndarray:
    """An uninitialised one. Where the memory of a device is apart, only programs, `put` and `got`
    may look at its elements."""
    return pooled(type_) if core.library().tiny_memory_is_devices() else aligned_empty(type_)


def put(value: np.ndarray) -> np.ndarray:
    """A copy as a buffer. Raises ExecutionError with what the device says."""
    copy = buffer(TensorType(value.shape, BY_NUMPY[value.dtype]))
    dense = np.ascontiguousarray(value)
    moved("tiny_put", copy, dense)
    return copy


def got(copy: np.ndarray) -> np.ndarray:
    """What is in a buffer: itself, or an array of the host's where the device's memory is apart."""
    if not core.library().tiny_memory_is_apart():
        return copy
    values = np.empty(copy.shape, copy.dtype)
    moved("tiny_get", values, copy)
    return values


def copied(to: np.ndarray, source: np.ndarray, on_host: bool) -> None:
    """All elements of one array into another, both of the host's or both buffers."""
    if on_host:
        np.copyto(to, source)
    else:
        moved("tiny_copy", to, source)


def moved(function: str, to: np.ndarray, source: np.ndarray) -> None:
    """All bytes of one array into another, of which either may be a buffer."""
    if getattr(core.library(), function)(to.ctypes.data, source.ctypes.data, source.nbytes):
        raise ExecutionError(core.last_error() or "a copy failed")


def checked(
    values: Sequence[Any], types: Sequence[TensorType | ArgumentType], what: str = "argument"
) -> list[np.ndarray]:
    """The values as dense arrays of the expected types.

    Raises ExecutionError when number, shapes or dtypes differ.
    """
    if len(values) != len(types):
        raise ExecutionError(f"expected {len(types)} {what}s, got {len(values)}")
    arrays = [np.ascontiguousarray(value).reshape(np.shape(value)) for value in values]
    for position, (array, type_) in enumerate(zip(arrays, types, strict=True)):
        if array.dtype != type_.dtype.numpy or not fits(array.shape, type_.shape):
            raise ExecutionError(f"{what} {position} {mismatch(array, type_)}")
    return arrays


def fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    """Whether an array of this shape will do where sizes of None are any."""
    return shape == wanted or (
        len(shape) == len(wanted)
        and all(size in (None, found) for found, size in zip(shape, wanted, strict=True))
    )


def mismatch(array: np.ndarray, wanted: TensorType | ArgumentType) -> str:
    """What to say of an array that is not of the type wanted."""
    found = BY_NUMPY.get(array.dtype, array.dtype)
    text = f"must be {wanted}, got {found}[{','.join(map(str, array.shape))}]"
    is_other = array.dtype != wanted.dtype.numpy and fits(array.shape, wanted.shape)
    return f"{text}: convert it to {wanted.dtype.numpy}" if is_other else text


BY_NUMPY = {dtype.numpy: dtype for dtype in elements.ELEMENTS}
