"""sin, cos, tan and atan2 as primitives.

An angle is a whole number of quarter turns and a rest r, |r| <= pi/4.

Up to `near` the multiple of pi/2 is taken off in three parts (Cody and Waite, Software Manual for
the Elementary Functions, 1980): the first difference is exact, as both numbers are multiples of
2^-24 (2^-53 in f64) and it is below 1, and only the second is rounded where that matters.

Larger angles are rare and get functions of their own: in f64 the library's, in f32 one that works
in f64. The quarters are the whole part of 2 x / pi. Leading bits of 2/pi that a huge x turns into
multiples of 4, whole turns, are left out from the start (Payne and Hanek, Radian Reduction for
Trigonometric Functions, 1983): `QUARTERS[k]` is 2/pi without a multiple of 4/2^(27 k). The product
x * high stays below 2^51, so adding `MAGIC` rounds it and leaves the quarter in the low bits, and
the fused multiply-add gives its fraction exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan, pi
from typing import NamedTuple

from tinyhlo.codegen.expressions import literal, where
from tinyhlo.codegen.math.tables import (
    ATAN_F32,
    ATAN_F64,
    COS_F32,
    COS_F64,
    HALF_PI_F32,
    HALF_PI_F64,
    QUARTERS,
    SIN_F32,
    SIN_F64,
    Table,
)
from tinyhlo.codegen.math.terms import MAGIC, Term, polynomial, rarely
from tinyhlo.ir.dtypes import F32, F64, I32, U32, U64, DType
from tinyhlo.ir.operators import apply
from tinyhlo.ir.ops import Op
from tinyhlo.records import dataclass

LIMITS = (2.0**50, 2.0**77, 2.0**104)  # up to LIMITS[k], QUARTERS[k] is right

# 2/pi as words of 32 bits, the first one in front of the point; pi/2 in units of 2^-31
TWO_OVER_PI = (
    0x0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB,
)  # fmt: skip
HALF_PI_WORD = 0xC90FDAA2

TAN_EIGHTH = 2.0**0.5 - 1  # tan(pi/8)
QUARTER_PI_REST = HALF_PI_F64[1] / 2  # what rounding took off pi/4
HUGE = 2.0**1000


@dataclass(frozen=True, slots=True)
class Format:
    """Numbers of a float type. Up to `near` three parts of pi/2 are enough."""

    half_pi: Table
    sine: Table
    cosine: Table
    near: float


FORMATS: dict[DType, Format] = {
    F32: Format(HALF_PI_F32, SIN_F32, COS_F32, 2.0**15),
    F64: Format(HALF_PI_F64, SIN_F64, COS_F64, 2.0**30),
}


class Angle(NamedTuple):
    """The angle is quarter * pi/2 + r, where only the last two bits of the integer count."""

    quarter: Term
    r: Term


def reduce_near(x: Term) -> Angle:
    """Quarter turns of an angle up to `near`."""
    shifted = x.fma(2 / pi, MAGIC[x.dtype])
    turns = shifted - MAGIC[x.dtype]
    r = x
    for part in FORMATS[x.dtype].half_pi:
        r = turns.fma(-part, r)
    return Angle(shifted.as_integer(), r)


def reduce_far(x: Term) -> Angle:
    """Quarter turns of any f32 angle; NaN for infinities."""
    wide = x.cast(F64)
    size = abs(x)
    high, low = (wide.constant(part) for part in QUARTERS[-1])
    for limit, (first, second) in zip(reversed(LIMITS), reversed(QUARTERS[:-1]), strict=True):
        near = size < limit
        high = where(near, wide.constant(first), high)
        low = where(near, wide.constant(second), low)
    shifted = wide.fma(high, MAGIC[F64])
    rest = wide.fma(low, wide.fma(high, -(shifted - MAGIC[F64])))
    return Angle(shifted.as_integer().cast(I32), (rest * (pi / 2)).cast(F32))


def reduce_far_by_words(x: Term) -> Angle:
    """The same by integers, for devices without f64: 96 bits of 2/pi, from the first one of which x
    does not make multiples of 4."""
    bits = apply(Op.BITCAST, x, dtype=U32)
    whole = (bits & 0x7FFFFF | 0x800000).cast(U64)
    first = (bits >> 23 & 0xFF).cast(I32) - 120
    word, shift = first >> 5, (first & 31).cast(U64)

    def window(number: int) -> Term:
        high, low = (chosen_word(word, number + k) for k in (0, 1))
        return (high << 32 | low) << shift >> 32

    high, middle, low = (whole * window(number) for number in range(3))
    turns = (high << 32) + middle + (low >> 32)  # in units of 2^-62 quarters
    rest = turns << 2
    next_is_nearer = (rest >> 63).cast(I32)
    quarter = (turns >> 62).cast(I32) + next_is_nearer
    rest = where(next_is_nearer.differs(0), 0 - rest, rest)
    zeros = apply(Op.CLZ, rest | 1)
    angle = (rest << zeros >> 32) * HALF_PI_WORD
    sign = x.as_integer() & -(1 << 31)
    scale = sign ^ (next_is_nearer << 31) | (64 - zeros).cast(I32) << 23
    r = where(abs(x) < inf, angle.cast(F32) * scale.as_float(F32), x.constant(nan))
    return Angle(where(sign.equals(0), quarter, 0 - quarter), r)


def chosen_word(number: Term, further: int) -> Term:
    """The word of 2/pi `further` behind one of the first five."""
    found, *before = (literal(TWO_OVER_PI[k + further], U64) for k in reversed(range(5)))
    for k, word in zip(reversed(range(4)), before, strict=True):
        found = where(number.equals(k), word, found)
    return found


def sine_and_cosine(r: Term) -> tuple[Term, Term]:
    """Of the rest of a reduction."""
    form, square = FORMATS[r.dtype], r * r
    sine = polynomial(square, form.sine).fma(r * square, r)
    cosine = (square * square).fma(polynomial(square, form.cosine), square.fma(-0.5, 1.0))
    return sine, cosine


def sine_of(x: Term, angle: Angle) -> Term:
    sine, cosine = sine_and_cosine(angle.r)
    value = where((angle.quarter & 1).differs(0), cosine, sine)
    return where(x.equals(0.0), x, value.flip_sign((angle.quarter & 2) << x.dtype.bits - 2))


def cosine_of(x: Term, angle: Angle) -> Term:
    sine, cosine = sine_and_cosine(angle.r)
    value = where((angle.quarter & 1).differs(0), sine, cosine)
    return value.flip_sign(((angle.quarter + 1) & 2) << x.dtype.bits - 2)


def tangent_of(x: Term, angle: Angle) -> Term:
    sine, cosine = sine_and_cosine(angle.r)
    odd = (angle.quarter & 1).differs(0)
    value = where(odd, cosine, sine) / where(odd, sine, cosine)
    return where(x.equals(0.0), x, value.flip_sign((angle.quarter & 1) << x.dtype.bits - 1))


def of_angle(
    op: Op, rule: Callable[[Term, Angle], Term], reduce: Callable[[Term], Angle] = reduce_far
) -> Callable[[Term], Term]:
    """The function `op` of x by `rule`, which has it reduced, large ones by `reduce`."""

    def far(x: Term) -> Term:
        return rule(x, reduce(x)) if x.dtype is F32 else apply(op, x)

    def expansion(x: Term) -> Term:
        is_far = ~(abs(x) < FORMATS[x.dtype].near)  # NaN is neither
        return rarely(is_far, f"far_{op.label}", far, (x,), rule(x, reduce_near(x)))

    return expansion


OF_ANGLES = {Op.SIN: sine_of, Op.COS: cosine_of, Op.TAN: tangent_of}


def atan2(y: Term, x: Term) -> Term:
    """atan of the smaller by the larger, then unfolded into the octant."""
    across, up = abs(x), abs(y)
    larger, smaller = across.at_least(up), across.at_most(up)
    angle = (arc_tangent_f32 if x.dtype is F32 else arc_tangent_f64)(smaller, larger)
    angle = where(across < up, x.constant(pi / 2) - angle, angle)
    angle = where(x.as_integer() < 0, x.constant(pi) - angle, angle)
    return angle.with_sign(y.sign())


def arc_tangent_f32(smaller: Term, larger: Term) -> Term:
    """atan(smaller / larger), where 0/0 is 0 and inf/inf 1: multiples of pi/4."""
    ratio = where(smaller.equals(larger), larger.constant(1.0), smaller / larger)
    ratio = where(larger.equals(0.0), larger, ratio)
    square = ratio * ratio
    return (polynomial(square, ATAN_F32) * square).fma(ratio, ratio)


def arc_tangent_f64(smaller: Term, larger: Term) -> Term:
    """The same; above tan(pi/8), atan(a / b) = pi/4 + atan((a - b) / (a + b))."""
    scale = where(larger > HUGE, larger.constant(2.0**-10), larger.constant(1.0))
    a, b = smaller * scale, larger * scale  # their sum is finite
    same = smaller.equals(larger)
    turned = (a > b * TAN_EIGHTH) | same
    ratio = where(turned, a - b, a) / where(turned, a + b, b)
    ratio = where(same, larger.constant(0.0), ratio)
    square = ratio * ratio
    rest = (polynomial(square, ATAN_F64) * square).fma(ratio, ratio)
    return where(larger.equals(0.0), larger, where(turned, (rest + QUARTER_PI_REST) + pi / 4, rest))
