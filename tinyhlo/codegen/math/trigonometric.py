"""sin, cos, tan and atan2 of f32 as primitives.

An angle is a whole number of quarter turns and a rest r, |r| <= pi/4. Up to `NEAR` the multiple of
pi/2 is taken off in three parts: the first difference is exact, as both numbers are multiples of
2^-24 and it is below 1, and only the second is rounded where that matters (Cody and Waite, Software
Manual for the Elementary Functions, 1980). Larger angles are rare, and reduced in f64 by a function
of their own: 2 x / pi = a whole number of quarters + t, t in [-1/2, 1/2]. The whole turns of a huge
x come from leading bits of 2/pi that x turns into multiples of 4, so those bits are left out from
the start (Payne and Hanek, Radian Reduction for Trigonometric Functions, 1983): `QUARTERS[k]` is
2/pi without a multiple of 4/2^(27 k). The remaining product x * high stays below 2^51, so that
adding 1.5 * 2^52 rounds it and shows the quarter in the low bits, and the fused multiply-add gives
its fraction exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi
from typing import NamedTuple

from tinyhlo.codegen.expressions import where
from tinyhlo.codegen.math.tables import ATAN_F32, COS_F32, HALF_PI_F32, QUARTERS, SIN_F32
from tinyhlo.codegen.math.terms import Term, polynomial, rarely
from tinyhlo.ir.dtypes import F32, F64, I32

LIMITS = (2.0**50, 2.0**77, 2.0**104)  # up to LIMITS[k], QUARTERS[k] is right
NEAR = 2.0**15  # up to here three parts of pi/2 are enough
ROUND_F32, ROUND_F64 = 1.5 * 2.0**23, 1.5 * 2.0**52  # added, round and show the integer


class Angle(NamedTuple):
    """The angle is quarter * pi/2 + r, where only the last two bits of the integer count."""

    quarter: Term
    r: Term


def reduce_near(x: Term) -> Angle:
    """Quarter turns of an f32 angle up to NEAR."""
    shifted = x.fma(2 / pi, ROUND_F32)
    turns = shifted - ROUND_F32
    r = x
    for part in HALF_PI_F32:
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
    shifted = wide.fma(high, ROUND_F64)
    rest = wide.fma(low, wide.fma(high, -(shifted - ROUND_F64)))
    return Angle(shifted.as_integer().cast(I32), (rest * (pi / 2)).cast(F32))


def sine_and_cosine(r: Term) -> tuple[Term, Term]:
    """Of the rest of a reduction."""
    square = r * r
    sine = polynomial(square, SIN_F32).fma(r * square, r)
    cosine = (square * square).fma(polynomial(square, COS_F32), square.fma(-0.5, 1.0))
    return sine, cosine


def sine_of(x: Term, angle: Angle) -> Term:
    sine, cosine = sine_and_cosine(angle.r)
    value = where((angle.quarter & 1).differs(0), cosine, sine)
    return where(x.equals(0.0), x, value.flip_sign((angle.quarter & 2) << 30))


def cosine_of(_: Term, angle: Angle) -> Term:
    sine, cosine = sine_and_cosine(angle.r)
    value = where((angle.quarter & 1).differs(0), sine, cosine)
    return value.flip_sign(((angle.quarter + 1) & 2) << 30)


def tangent_of(x: Term, angle: Angle) -> Term:
    sine, cosine = sine_and_cosine(angle.r)
    odd = (angle.quarter & 1).differs(0)
    value = where(odd, cosine, sine) / where(odd, sine, cosine)
    return where(x.equals(0.0), x, value.flip_sign((angle.quarter & 1) << 31))


def of_angle(name: str, rule: Callable[[Term, Angle], Term]) -> Callable[[Term], Term | None]:
    """A function of x by `rule`, which has it reduced."""

    def expansion(x: Term) -> Term | None:
        if x.dtype is not F32:
            return None
        far = ~(abs(x) < NEAR)  # NaN is neither
        return rarely(far, name, lambda y: rule(y, reduce_far(y)), (x,), rule(x, reduce_near(x)))

    return expansion


sin = of_angle("far_sine", sine_of)
cos = of_angle("far_cosine", cosine_of)
tan = of_angle("far_tangent", tangent_of)


def atan2(y: Term, x: Term) -> Term | None:
    """atan of the smaller by the larger, then unfolded into the octant."""
    if x.dtype is not F32:
        return None
    across, up = abs(x), abs(y)
    larger, smaller = across.at_least(up), across.at_most(up)
    # 0/0 is 0 and inf/inf is 1 here, so that atan2 of them is a multiple of pi/4
    ratio = where(smaller.equals(larger), x.constant(1.0), smaller / larger)
    ratio = where(larger.equals(0.0), larger, ratio)
    square = ratio * ratio
    angle = (polynomial(square, ATAN_F32) * square).fma(ratio, ratio)
    angle = where(across < up, x.constant(pi / 2) - angle, angle)
    angle = where(x.as_integer() < 0, x.constant(pi) - angle, angle)
    return angle.with_sign(y.sign())
