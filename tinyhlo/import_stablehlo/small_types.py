"""Integers under 8 bits, and floats of 8 bits and less: stored as ui8, computed in wider types.

    decode(bits, F8E5M2)     ->  f32, exactly
    encode(x, F8E5M2)        ->  ui8, rounded once, to nearest even
    decode(bits, I4)         ->  i8

Sources of the formats: OCP 8-bit Floating Point Specification 1.0; OCP Microscaling Formats 1.0;
Noune et al., "8-bit Numerical Formats for Deep Neural Networks", 2022 (the FNUZ kinds).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tinyhlo.import_stablehlo.operands import like
from tinyhlo.ir import elements
from tinyhlo.ir.build import bitcast, cast, elementwise, where
from tinyhlo.ir.dtypes import F32, F64, I8, U8, DType, unsigned_of
from tinyhlo.ir.graph import Node
from tinyhlo.ir.ops import Op


@dataclass(frozen=True, slots=True)
class Format:
    """A sign bit, `exponent` bits, `mantissa` bits. As codes without the sign: `infinity` if there
    is one, `largest` finite number, `nan` and every code from `first_nan` on. `overflow` is the
    code that numbers beyond the largest get. `zero_sign_is_nan`: the code of -0 is the only NaN."""

    exponent: int
    mantissa: int
    bias: int
    largest: int
    overflow: int
    nan: int
    infinity: int | None = None
    first_nan: int | None = None
    zero_sign_is_nan: bool = False

    @property
    def bits(self) -> int:
        """Width without the sign."""
        return self.exponent + self.mantissa


def ieee(exponent: int, mantissa: int) -> Format:
    """The largest exponent is for infinity and NaN."""
    infinity = ((1 << exponent) - 1) << mantissa
    quiet = infinity | 1 << (mantissa - 1)
    bias = (1 << (exponent - 1)) - 1
    return Format(exponent, mantissa, bias, infinity - 1, infinity, quiet, infinity, infinity + 1)


def unsigned_zero(exponent: int, mantissa: int, bias: int) -> Format:
    """No infinity and no -0, whose code is the NaN."""
    nan = 1 << (exponent + mantissa)
    return Format(exponent, mantissa, bias, nan - 1, nan, nan, zero_sign_is_nan=True)


def finite(exponent: int, mantissa: int, bias: int) -> Format:
    """Only numbers: beyond the largest stays the largest, NaN becomes -0."""
    largest = (1 << (exponent + mantissa)) - 1
    return Format(exponent, mantissa, bias, largest, largest, largest + 1)


FORMATS = {
    elements.F4E2M1FN: finite(2, 1, 1),
    elements.F6E2M3FN: finite(2, 3, 1),
    elements.F6E3M2FN: finite(3, 2, 3),
    elements.F8E3M4: ieee(3, 4),
    elements.F8E4M3: ieee(4, 3),
    elements.F8E5M2: ieee(5, 2),
    elements.F8E4M3FN: Format(4, 3, 7, 0x7E, 0x7F, 0x7F, first_nan=0x7F),
    elements.F8E4M3B11FNUZ: unsigned_zero(4, 3, 11),
    elements.F8E4M3FNUZ: unsigned_zero(4, 3, 8),
    elements.F8E5M2FNUZ: unsigned_zero(5, 2, 16),
}
WIDE = {F32: (8, 23), F64: (11, 52)}  # exponent and mantissa bits of the types computed in


def compute_type(dtype: DType) -> DType:
    """The type that arithmetic on `dtype` runs in: it holds every value exactly."""
    if dtype in elements.SMALL_INTEGERS:
        return I8 if dtype.kind == "signed" else U8
    return F32 if dtype in elements.SMALL else dtype


def decode(bits: Node, dtype: DType) -> Node:
    """The values of stored bits, in `compute_type(dtype)`."""
    if dtype in elements.SMALL_INTEGERS:
        return decode_integer(bits, dtype)
    if dtype is elements.F8E8M0FNU:
        return decode_power_of_two(bits)
    return decode_float(bits, FORMATS[dtype])


def encode(value: Node, dtype: DType) -> Node:
    """The bits of values: floats rounded to nearest even, integers wrapped around."""
    if dtype in elements.SMALL_INTEGERS:
        mask = (1 << dtype.bits) - 1
        low = cast(value, U8) if value.dtype.bits > 8 else bitcast(value, U8)
        return low & mask
    if value.dtype not in WIDE:
        value = cast(value, F32)
    if dtype is elements.F8E8M0FNU:
        return encode_power_of_two(value)
    return encode_float(value, FORMATS[dtype])


def decode_integer(bits: Node, dtype: DType) -> Node:
    if dtype.kind == "unsigned":
        return bits
    top = bitcast(bits << (8 - dtype.bits), I8)
    return elementwise(Op.SAR, top, like(8 - dtype.bits, top))


def decode_float(bits: Node, format_: Format) -> Node:
    """Shifted into place the code is a float with another bias, subnormals included; a multiply
    by a power of two, which is exact, puts that right."""
    exponent, mantissa = WIDE[F32]
    word = cast(bits, unsigned_of(F32))
    magnitude = word & ((1 << format_.bits) - 1)
    placed = bitcast(magnitude << (mantissa - format_.mantissa), F32)
    scaled = placed * 2.0 ** ((1 << (exponent - 1)) - 1 - format_.bias)
    sign = (word >> format_.bits) << (F32.bits - 1)
    if format_.infinity is not None:
        is_infinity = magnitude.equals(format_.infinity)
        scaled = where(is_infinity, np.inf, scaled)
    if format_.first_nan is not None:
        is_nan = format_.first_nan <= magnitude
        scaled = where(is_nan, np.nan, scaled)
    value = bitcast(bitcast(scaled, word.dtype) | sign, F32)
    if format_.zero_sign_is_nan:
        value = where(word.equals(format_.nan), np.nan, value)
    return value


def encode_float(x: Node, format_: Format) -> Node:
    """Round |x| to a multiple of its quantum (the format's last bit at that size), then move the
    exponent to the format's bias and drop the mantissa bits that are now zero."""
    exponent, mantissa = WIDE[x.dtype]
    word = unsigned_of(x.dtype)
    bias = (1 << (exponent - 1)) - 1
    size = abs(x)
    field = bitcast(size, word) >> mantissa  # biased exponent of x
    smallest = 1 - format_.bias + bias  # the same for the format's smallest normal number
    field = elementwise(Op.MAX, field, like(smallest, field))
    # 2**(mantissa - exponent) and its inverse, both normal numbers for every finite |x| in range
    inverse = bitcast(
        (2 * bias + format_.mantissa - field) << mantissa,
        x.dtype,
    )
    quantum = bitcast((field - format_.mantissa) << mantissa, x.dtype)
    rounded = elementwise(Op.RINT, size * inverse) * quantum
    scaled = rounded * 2.0 ** (format_.bias - bias)
    code = bitcast(scaled, word) >> (mantissa - format_.mantissa)
    largest = code_value(format_, format_.largest)
    code = where(largest < rounded, format_.overflow, code)
    # far beyond the range the quantum overflows: those never reach `rounded` in order
    far = 2.0 * largest <= size
    code = where(far, format_.overflow, code)
    sign = bitcast(x, word) >> (x.dtype.bits - 1)
    if format_.zero_sign_is_nan:
        sign = where(code.equals(0), 0, sign)
    code = code | (sign << format_.bits)
    code = where(x.differs(x), format_.nan, code)
    return cast(code, U8)


def code_value(format_: Format, code: int) -> float:
    """The number that a normal code stands for."""
    fraction = 1 + (code & ((1 << format_.mantissa) - 1)) / (1 << format_.mantissa)
    return fraction * 2.0 ** ((code >> format_.mantissa) - format_.bias)


def decode_power_of_two(bits: Node) -> Node:
    """An exponent alone; 255 is NaN."""
    word = cast(bits, unsigned_of(F32))
    value = bitcast(word << 23, F32)
    value = where(word.equals(0), 2.0 ** (-127), value)
    return where(word.equals(255), np.nan, value)


def encode_power_of_two(x: Node) -> Node:
    """The nearest power of two, ties upwards; NaN for what is not positive."""
    if x.dtype is F64:
        x = cast(x, F32)
    word = bitcast(x, unsigned_of(F32))
    code = (word + (1 << 22)) >> 23
    code = where(word < (3 << 21), 0, code)  # nearest is 2**-127
    finite_ = x < np.inf
    positive = (x > 0) & finite_
    return cast(where(positive, code, 255), U8)
