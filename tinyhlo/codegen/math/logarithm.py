"""log and log1p as primitives: log x = e log(2) + log m, x = 2^e m, 1/2 <= m^2 < 2."""

from __future__ import annotations

from math import inf, nan

from tinyhlo.codegen.expressions import literal, where
from tinyhlo.codegen.math.tables import LN2, LOG_F32, LOG_F64
from tinyhlo.codegen.math.terms import MAGIC, Term, polynomial
from tinyhlo.ir.dtypes import F32, F64, DType

ROOT = {F32: 0x3F3504F3, F64: 0x3FE6A09E667F3BCD}  # the bits of sqrt(1/2)


def split(x: Term) -> tuple[Term, Term]:
    """(e, m), e an integer, for a positive normal x."""
    bits, digits = x.as_integer(), x.dtype.mantissa_bits
    exponent = (bits - ROOT[x.dtype]).arithmetic_shift(digits)
    return exponent, (bits - (exponent << digits)).as_float(x.dtype)


def split_any(x: Term) -> tuple[Term, Term]:
    """(e, m), e a float, for a positive x that may be denormal."""
    lift = x.dtype.mantissa_bits + 1
    denormal = x < 2.0 ** (1 - x.dtype.exponent_bias)
    exponent, m = split(where(denormal, x * 2.0**lift, x))
    number = to_float(exponent, x.dtype)
    return where(denormal, number - float(lift), number), m


def to_float(exponent: Term, dtype: DType) -> Term:
    """A small integer as a float. AVX2 converts no 64-bit integers: it is added to MAGIC's bits."""
    if dtype is F32:
        return exponent.cast(F32)
    return (exponent + literal(MAGIC[F64], F64).bits).as_float(F64) - MAGIC[F64]


def log1p_of_rest(f: Term, exponent: Term) -> Term:
    """exponent * log(2) + log(1 + f)."""
    high, low = LN2[f.dtype]
    square = f * f
    if f.dtype is F32:
        tail = (square * f).fma(polynomial(f, LOG_F32), exponent * low)
        return exponent.fma(high, f + square.fma(-0.5, tail))
    # as in FDLIBM's e_log.c: f - (f^2/2 - s (f^2/2 + R))
    s = f / (f + 2.0)
    z = s * s
    half = square * 0.5
    rest = s.fma(half + z * polynomial(z, LOG_F64), exponent * low)
    return exponent.fma(high, f - (half - rest))


def with_limits(x: Term, value: Term) -> Term:
    """log's value where it is no number: -inf at 0, NaN below, inf at inf."""
    outside = where(x.equals(0.0), x.constant(-inf), x.constant(nan))
    return where(x > 0.0, where(x.equals(inf), x, value), outside)


def logarithm(x: Term) -> Term:
    number, m = split_any(x)
    return with_limits(x, log1p_of_rest(m - 1.0, number))


def log1p(x: Term) -> Term:
    """log(u) for u = 1 + x rounded; what the rounding lost joins m - 1."""
    digits = x.dtype.mantissa_bits
    tiny = abs(x) < 2.0 ** -(digits + 2)  # x itself; powers of it would be denormal
    y = where(tiny, x.constant(0.0), x)
    u = y + 1.0
    lost = y - (u - 1.0)
    exponent, m = split(u)
    shift = exponent.at_most(100) << digits  # further up nothing was lost
    scale = (shift.constant(x.dtype.exponent_bias << digits) - shift).as_float(x.dtype)
    value = log1p_of_rest(lost.fma(scale, m - 1.0), to_float(exponent, x.dtype))
    return where(tiny, x, with_limits(u, value))
