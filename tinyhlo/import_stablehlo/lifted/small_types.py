"""Integers under 8 bits, and floats of 8 bits and less: stored as ui8, computed in wider types.

    decode(bits, F8E5M2)     ->  f32, exactly
    encode(x, F8E5M2)        ->  ui8, rounded once, to nearest even
    decode(bits, I4)         ->  i8

Sources of the formats: OCP 8-bit Floating Point Specification 1.0; OCP Microscaling Formats 1.0;
Noune et al., "8-bit Numerical Formats for Deep Neural Networks", 2022 (the FNUZ kinds).
"""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np

from tinyhlo.import_stablehlo.operands import is_nan
from tinyhlo.ir import elements
from tinyhlo.ir.build import bitcast, cast, where
from tinyhlo.ir.dtypes import F32, F64, I8, U8, DType, unsigned_of
from tinyhlo.ir.graph import Node
from tinyhlo.records import dataclass


@dataclass(frozen=True, slots=True)
class Codes:
    """The largest finite number of a float format, its code and the special ones, without the sign
    bit unless said."""

    largest: float
    last: int
    overflow: int  # of numbers that round beyond `largest`
    nan: int  # what NaN is encoded as, with its sign; that of -0 in formats without NaN
    infinity: int | None
    first_nan: int | None  # every code from here on is NaN
    zero_sign_is_nan: bool  # the code of -0 is the only NaN


@cache
def codes_of(dtype: DType) -> Codes:
    """As ml_dtypes has them."""
    largest = float(ml_dtypes.finfo(dtype.numpy).max)
    values = np.array([largest, np.inf, np.nan], np.float32).astype(dtype.numpy)
    last, overflow, nan = map(int, values.view(np.uint8))
    has_infinity, has_nan = bool(np.isinf(values[1])), bool(np.isnan(values[2]))
    is_zero_sign = nan == 1 << (dtype.bits - 1)
    return Codes(
        largest,
        last,
        overflow,
        nan,
        infinity=overflow if has_infinity else None,
        first_nan=last + 1 + has_infinity if has_nan and not is_zero_sign else None,
        zero_sign_is_nan=has_nan and is_zero_sign,
    )


WIDE = (F32, F64)  # the types computed in


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
    return decode_float(bits, dtype)


def encode(value: Node, dtype: DType) -> Node:
    """The bits of values: floats rounded to nearest even, integers wrapped around."""
    if dtype in elements.SMALL_INTEGERS:
        return cast(value, U8) & ((1 << dtype.bits) - 1)
    if value.dtype not in WIDE:
        value = cast(value, F32)
    if dtype is elements.F8E8M0FNU:
        return encode_power_of_two(value)
    return encode_float(value, dtype)


def decode_integer(bits: Node, dtype: DType) -> Node:
    if dtype.kind == "unsigned":
        return bits
    top = bitcast(bits << (8 - dtype.bits), I8)
    return top.arithmetic_shift(8 - dtype.bits)


def decode_float(bits: Node, dtype: DType) -> Node:
    """Shifted into place and its bias put right, the code of a normal number is a float. That of a
    subnormal one comes out as half the smallest normal number and half of its value: twice that,
    less the smallest, is exact, and less where and only where the number is subnormal. No float on
    the way is denormal: many processors are slow with those, or take them as zero."""
    codes = codes_of(dtype)
    word = cast(bits, unsigned_of(F32))
    magnitude = word & ((1 << (dtype.bits - 1)) - 1)
    bias = (F32.exponent_bias - dtype.exponent_bias) << F32.mantissa_bits
    placed = (magnitude << (F32.mantissa_bits - dtype.mantissa_bits)) + bias
    normal = bitcast(placed, F32)
    subnormal = normal * 2.0 - 2.0 ** (1 - dtype.exponent_bias)
    scaled = normal.at_most(subnormal)
    sign = (word >> (dtype.bits - 1)) << (F32.bits - 1)
    if codes.infinity is not None:
        scaled = where(magnitude.equals(codes.infinity), np.inf, scaled)
    if codes.first_nan is not None:
        scaled = where(magnitude >= codes.first_nan, np.nan, scaled)
    value = bitcast(bitcast(scaled, word.dtype) | sign, F32)
    if codes.zero_sign_is_nan:
        value = where(word.equals(codes.nan), np.nan, value)
    return value


def encode_float(x: Node, dtype: DType) -> Node:
    """|x| in quanta (the format's last bit at that size) is rounded where a power of two is added
    whose last bit is one; the exponent is added to that count, as codes have it."""
    codes, word = codes_of(dtype), unsigned_of(x.dtype)
    mantissa, bias = x.dtype.mantissa_bits, x.dtype.exponent_bias
    size = abs(x)
    field = bitcast(size, word) >> mantissa  # biased exponent of x
    smallest = 1 - dtype.exponent_bias + bias  # the same for the format's smallest normal number
    field = field.at_least(smallest)
    # the inverse of the quantum, a normal number for every finite |x| in range
    inverse = bitcast((2 * bias + dtype.mantissa_bits - field) << mantissa, x.dtype)
    one = (mantissa + bias) << mantissa  # the bits of 2**mantissa
    count = bitcast(size * inverse + 2.0**mantissa, word) - one
    code = count + ((field - smallest) << dtype.mantissa_bits)
    # far beyond the range that inverse is none: those codes are not in order
    beyond = (code > codes.last) | (size >= 2.0 * codes.largest)
    code = where(beyond, codes.overflow, code)
    sign = bitcast(x, word) >> (x.dtype.bits - 1)
    if codes.zero_sign_is_nan:
        sign = where(code.equals(0), 0, sign)
    code = code | (sign << (dtype.bits - 1))
    return cast(where(is_nan(x), codes.nan, code), U8)


def decode_power_of_two(bits: Node) -> Node:
    """An exponent alone; 255 is NaN."""
    word = cast(bits, unsigned_of(F32))
    value = bitcast(word << 23, F32)
    value = where(word.equals(0), 2.0 ** (-127), value)
    return where(word.equals(255), np.nan, value)


def encode_power_of_two(x: Node) -> Node:
    """The nearest power of two, ties upwards; NaN for what is not positive."""
    word, mantissa = unsigned_of(x.dtype), x.dtype.mantissa_bits
    bits = bitcast(x, word)
    exponent = (bits + (1 << (mantissa - 1))) >> mantissa
    code = exponent - (x.dtype.exponent_bias - F32.exponent_bias)
    code = code.at_most(255)
    first = np.array(1.5 * 2.0**-127, x.dtype.numpy).view(word.numpy)  # nearest is not 2**-127
    code = where(bits < int(first), 0, code)
    finite_ = x < np.inf
    positive = (x > 0) & finite_
    return cast(where(positive, code, 255), U8)
