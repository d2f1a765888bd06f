"""NumPy arrays over native memory, and native pointers to NumPy arrays.

view(address, f32[2,3])  ->  the array that lies there, not copied
pointers([x, y])         ->  void*[2]
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


def view(address: int | None, type_: TensorType) -> np.ndarray:
    """The array at `address`, not copied."""
    if type_.size == 0 or not address:
        return np.empty(type_.shape, type_.dtype.numpy)
    raw = (ctypes.c_uint8 * type_.nbytes).from_address(address)
    return np.ctypeslib.as_array(raw).view(type_.dtype.numpy).reshape(type_.shape)


def pointers(arrays: Sequence[np.ndarray]) -> ctypes.Array[ctypes.c_void_p]:
    """The addresses of arrays, as C takes them; one NULL for none."""
    return (ctypes.c_void_p * max(1, len(arrays)))(*(array.ctypes.data for array in arrays))


def raw_bytes(count: int) -> np.ndarray:
    """Uninitialised memory that programs may be given: a device's, once it has been installed."""
    library = core.library()
    if not library.tiny_memory_is_shared():
        return np.empty(count, np.uint8)
    address = library.tiny_allocate_buffer(count)
    if not address:
        raise OutOfMemory(f"out of memory: {count} bytes for an array")
    raw = (ctypes.c_uint8 * count).from_address(address)
    finalizer = weakref.finalize(raw, library.tiny_free_buffer, address, count)
    finalizer.atexit = False
    return np.ctypeslib.as_array(raw)


def aligned_empty(type_: TensorType) -> np.ndarray:
    """An uninitialised array whose data start on a cache line."""
    raw = raw_bytes(type_.nbytes + ALIGNMENT)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + type_.nbytes].view(type_.dtype.numpy).reshape(type_.shape)


def aligned_copy(value: np.ndarray) -> np.ndarray:
    """A copy whose data start on a cache line."""
    copy = aligned_empty(TensorType(value.shape, BY_NUMPY[value.dtype]))
    copy[...] = value
    return copy


def shared(values: list[np.ndarray]) -> list[np.ndarray]:
    """The same arrays where programs find them: copies, when a device has memory of its own."""
    return list(map(aligned_copy, values)) if core.library().tiny_memory_is_shared() else values


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
    is_other = array.dtype != wanted.dtype.numpy
    return f"{text}: convert it to {wanted.dtype.numpy}" if is_other else text


BY_NUMPY = {dtype.numpy: dtype for dtype in elements.ELEMENTS}
