"""Arrays as a device of WebGPU keeps them: words of 32 bits, an element of a narrower type in one.

bf16 and f16 are their bits; booleans 0 or 1.
"""

from __future__ import annotations

import numpy as np

from tinyhlo.ir.dtypes import BOOL, DType
from tinyhlo.ir.graph import TensorType


def words_from(array: np.ndarray, dtype: DType) -> np.ndarray:
    """An array of that type as u32."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if dtype.bits >= 32:
        return flat.view(np.uint32)
    if dtype is BOOL:
        return flat.astype(np.uint32)
    if dtype.is_float:
        return flat.view(np.uint16).astype(np.uint32)
    return flat.astype(np.int32).view(np.uint32)


def array_from(words: np.ndarray, type_: TensorType) -> np.ndarray:
    """The array that words stand for."""
    dtype = type_.dtype
    if dtype.bits >= 32:
        flat = words.view(dtype.numpy)
    elif dtype is BOOL:
        flat = words != 0
    elif dtype.is_float:
        flat = words.astype(np.uint16).view(dtype.numpy)
    else:
        flat = words.astype(f"u{dtype.itemsize}").view(dtype.numpy)
    return flat.reshape(type_.shape)
