"""Element types that users pass and that the IR stores as others.

    complex<f32>  ->  f32, real and imaginary part along a new last axis
    f8E4M3FN, i4  ->  ui8, their bits
    token         ->  i1, of no elements

They appear in the types of an executable's arguments and results, never on a node of a Graph:
import turns every op on them into ops on what is stored.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tinyhlo.ir.dtypes import ALL, BOOL, F32, F64, U8, DType
from tinyhlo.ir.graph import TensorType

TOKEN = DType("token", "bool", 8, np.dtype(np.bool_))
C64 = DType("complex<f32>", "complex", 64, np.dtype(np.complex64))
C128 = DType("complex<f64>", "complex", 128, np.dtype(np.complex128))
PLANES = {C64: F32, C128: F64}  # complex type -> type of its real and its imaginary part
SMALL_INTEGERS = (
    DType("i2", "signed", 2, np.dtype(ml_dtypes.int2)),
    DType("i4", "signed", 4, np.dtype(ml_dtypes.int4)),
    DType("ui2", "unsigned", 2, np.dtype(ml_dtypes.uint2)),
    DType("ui4", "unsigned", 4, np.dtype(ml_dtypes.uint4)),
)
F8E8M0FNU = DType("f8E8M0FNU", "float", 8, np.dtype(ml_dtypes.float8_e8m0fnu))  # unsigned
SMALL_FLOATS = (
    DType("f4E2M1FN", "float", 4, np.dtype(ml_dtypes.float4_e2m1fn)),
    DType("f6E2M3FN", "float", 6, np.dtype(ml_dtypes.float6_e2m3fn)),
    DType("f6E3M2FN", "float", 6, np.dtype(ml_dtypes.float6_e3m2fn)),
    DType("f8E3M4", "float", 8, np.dtype(ml_dtypes.float8_e3m4)),
    DType("f8E4M3", "float", 8, np.dtype(ml_dtypes.float8_e4m3)),
    DType("f8E4M3B11FNUZ", "float", 8, np.dtype(ml_dtypes.float8_e4m3b11fnuz)),
    DType("f8E4M3FN", "float", 8, np.dtype(ml_dtypes.float8_e4m3fn)),
    DType("f8E4M3FNUZ", "float", 8, np.dtype(ml_dtypes.float8_e4m3fnuz)),
    DType("f8E5M2", "float", 8, np.dtype(ml_dtypes.float8_e5m2)),
    DType("f8E5M2FNUZ", "float", 8, np.dtype(ml_dtypes.float8_e5m2fnuz)),
    F8E8M0FNU,
)
SMALL = frozenset(SMALL_INTEGERS + SMALL_FLOATS)

ELEMENTS = (*ALL, *PLANES, *SMALL_INTEGERS, *SMALL_FLOATS)
BY_NAME = {dtype.name: dtype for dtype in ELEMENTS}


def stored(type_: TensorType) -> TensorType:
    """The type of the buffer that holds an array of `type_`."""
    if type_.dtype in PLANES:
        return TensorType((*type_.shape, 2), PLANES[type_.dtype])
    kept = U8 if type_.dtype in SMALL else BOOL if type_.dtype is TOKEN else type_.dtype
    return TensorType(type_.shape, kept)
