"""Element types: one frozen DType each, in a table.

`F32.numpy` is the NumPy dtype, `F32.bits` the width, `F32.kind` one of
"bool", "signed", "unsigned", "float". Booleans are stored one a byte. `ALL` are the types that a
Graph computes in; complex and small types, which it stores as these, are in `ir/elements.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from functools import cache
from math import inf
from typing import Literal

import ml_dtypes
import numpy as np

from tinyhlo.records import dataclass

Kind = Literal["bool", "signed", "unsigned", "float", "complex"]


@dataclass(frozen=True, eq=False, slots=True)
class DType:
    """An element type, one object each; `name` is the StableHLO spelling."""

    name: str
    kind: Kind
    bits: int
    numpy: np.dtype = field(repr=False)

    @property
    def itemsize(self) -> int:
        """Bytes of one stored element."""
        return (self.bits + 7) // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("signed", "unsigned")

    @property
    def bounds(self) -> tuple[float, float]:
        """Smallest and largest value."""
        if self.is_float or self.kind == "bool":
            return (-inf, inf) if self.is_float else (False, True)
        first = -(1 << (self.bits - 1)) if self.kind == "signed" else 0
        return first, first + (1 << self.bits) - 1

    @property
    def exponent_bits(self) -> int:
        """Of a float."""
        return ml_dtypes.finfo(self.numpy).nexp

    @property
    def mantissa_bits(self) -> int:
        """Of a float, without the leading one."""
        return ml_dtypes.finfo(self.numpy).nmant

    @property
    def exponent_bias(self) -> int:
        return 1 - int(ml_dtypes.finfo(self.numpy).minexp)

    def __str__(self) -> str:
        return self.name


def _dtype(name: str, kind: Kind, bits: int, numpy: object) -> DType:
    return DType(name, kind, bits, np.dtype(numpy))  # type: ignore[call-overload]


BOOL = _dtype("i1", "bool", 8, np.bool_)
I8 = _dtype("i8", "signed", 8, np.int8)
I16 = _dtype("i16", "signed", 16, np.int16)
I32 = _dtype("i32", "signed", 32, np.int32)
I64 = _dtype("i64", "signed", 64, np.int64)
U8 = _dtype("ui8", "unsigned", 8, np.uint8)
U16 = _dtype("ui16", "unsigned", 16, np.uint16)
U32 = _dtype("ui32", "unsigned", 32, np.uint32)
U64 = _dtype("ui64", "unsigned", 64, np.uint64)
BF16 = _dtype("bf16", "float", 16, ml_dtypes.bfloat16)
F16 = _dtype("f16", "float", 16, np.float16)
F32 = _dtype("f32", "float", 32, np.float32)
F64 = _dtype("f64", "float", 64, np.float64)

ALL = (BOOL, I8, I16, I32, I64, U8, U16, U32, U64, BF16, F16, F32, F64)
BY_NAME = {dtype.name: dtype for dtype in ALL}
BY_NUMPY = {dtype.numpy: dtype for dtype in ALL}


def signed_of(dtype: DType) -> DType:
    """The signed integer type of the same width (for bit tricks)."""
    return BY_NAME[f"i{dtype.bits}"]


def unsigned_of(dtype: DType) -> DType:
    """The unsigned integer type of the same width."""
    return BY_NAME[f"ui{dtype.bits}"]


@cache
def is_lossless(source: DType, target: DType) -> bool:
    """Every value of `source` is a value of `target`."""
    if source == target or source.kind == "bool":
        return True
    if source.is_float:
        return (
            target.is_float
            and source.mantissa_bits <= target.mantissa_bits
            and source.exponent_bits <= target.exponent_bits
        )
    magnitude = source.bits - (source.kind == "signed")
    if target.is_float:
        return magnitude <= target.mantissa_bits + 1
    if source.kind == "signed" and target.kind != "signed":
        return False
    return target.kind != "bool" and magnitude <= target.bits - (target.kind == "signed")


def index_dtype(extents: Iterable[int]) -> DType:
    """i32 where it can address every one of `extents`, else i64."""
    return I32 if all(extent < 1 << 31 for extent in extents) else I64


def holds_positions(dtype: DType, extent: int) -> bool:
    """Whether every index below `extent` is a number of `dtype`: integers wrap, floats round."""
    most = 1 << (dtype.mantissa_bits + 1) if dtype.is_float else dtype.bounds[1]
    return extent - 1 <= most
