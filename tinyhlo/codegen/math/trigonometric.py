"""sin, cos, tan and atan2 of f32 as primitives.

An angle is reduced in f64: 2 x / pi = a whole number of quarter turns + t, t in [-1/2, 1/2]. The
whole turns of a huge x come from leading bits of 2/pi that x turns into multiples of 4, so those
bits are left out from the start (Payne and Hanek, Radian Reduction for Trigonometric Functions,
1983): `QUARTERS[k]` is 2/pi without a multiple of 4/2^(27 k). The remaining product x * high stays
below 2^51, so that adding 1.5 * 2^52 rounds it and shows the quarter in the low bits, and the fused
multiply-add gives its fraction exactly.
"""

from __future__ import annotations

from math import pi
from typing import NamedTuple

from tinyhlo.codegen.folding import where
from tinyhlo.codegen.math.tables import ATAN_F32, COS_F32, QUARTERS, SIN_F32
from tinyhlo.codegen.math.terms import Term, polynomial
from tinyhlo.ir.dtypes import F32, F64, I32

LIMITS = (2.0**50, 2.0**77, 2.0**104)  # up to LIMITS[k], QUARTERS[k] is right
ROUND = 1.5 * 2.0**52  # added to a number, rounds it and shows the integer in the low bits


class Quarters(NamedTuple):
    """The angle is quarter * pi/2 + r; `sine` and `cosine` are those of r."""

    quarter: Term  # an integer, of which only the last two bits count
    sine: Term
    cosine: Term


def reduce(x: Term) -> Quarters:
    """Quarter turns of an f32 angle; NaN for infinities."""
    wide = x.cast(F64)
    size = abs(x)
    high, low = (wide.constant(part) for part in QUARTERS[-1])
    for limit, (first, second) in zip(reversed(LIMITS), reversed(QUARTERS[:-1]), strict=True):
        near = size < limit
        high = where(near, wide.constant(first), high)
        low = where(near, wide.constant(second), low)
    shifted = wide.fma(high, ROUND)
    rest = wide.fma(low, wide.fma(high, -(shifted - ROUND)))
    r = (rest * (pi / 2)).cast(F32)
    square = r * r
    sine = (polynomial(square, SIN_F32) * square).fma(r, r)
    cosine = (square * square).fma(polynomial(square, COS_F32), square.fma(-0.5, 1.0))
    return Quarters(shifted.as_integer().cast(I32), sine, cosine)


def sin(x: Term) -> Term | None:
    if x.dtype is not F32:
        return None
    quarter, sine, cosine = reduce(x)
    value = where((quarter & 1).differs(0), cosine, sine)
    return where(x.equals(0.0), x, value.flip_sign((quarter & 2) << 30))


def cos(x: Term) -> Term | None:
    if x.dtype is not F32:
        return None
    quarter, sine, cosine = reduce(x)
    value = where((quarter & 1).differs(0), sine, cosine)
    return value.flip_sign(((quarter + 1) & 2) << 30)


def tan(x: Term) -> Term | None:
    if x.dtype is not F32:
        return None
    quarter, sine, cosine = reduce(x)
    odd = (quarter & 1).differs(0)
    value = where(odd, cosine, sine) / where(odd, sine, cosine)
    return where(x.equals(0.0), x, value.flip_sign((quarter & 1) << 31))


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
