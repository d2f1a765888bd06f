"""The remainder of f32 as primitives: what a whole multiple of the divisor leaves, exactly.

In |x| - n |y| nothing is rounded, for n = trunc(|x| / |y|) below 2^22 or one more than that: where
the quotient was rounded up to a whole number, |y| is added back. Larger quotients, infinities and
zero divisors are rare; f64 holds both operands and the result of its library function exactly.
"""

from __future__ import annotations

from tinyhlo.codegen.expressions import where
from tinyhlo.codegen.math.terms import Term, rarely
from tinyhlo.ir.dtypes import F32, F64

MANY = 2.0**22


def remainder(x: Term, y: Term) -> Term | None:
    """As C's fmod: with the sign of x."""
    if x.dtype is not F32:
        return None
    size, divisor = abs(x), abs(y)
    quotient = size / divisor
    rest = (-quotient.trunc()).fma(divisor, size)
    rest = where(rest < 0.0, rest + divisor, rest)
    usual = where(size < divisor, size, rest).with_sign(x.sign())
    is_far = ~(quotient < MANY)  # NaN is neither
    return rarely(is_far, "far_remainder", far_remainder, (x, y), usual)


def far_remainder(x: Term, y: Term) -> Term:
    return x.cast(F64).remainder(y.cast(F64)).cast(F32)
