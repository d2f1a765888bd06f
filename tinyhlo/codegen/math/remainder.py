"""The remainder as primitives: what a whole multiple of the divisor leaves, exactly.

In |x| - n |y| nothing is rounded, for n = trunc(|x| / |y|) below 2^22 (2^51 in f64) or one more
than that: where the quotient was rounded up to a whole number, |y| is added back. Larger quotients,
infinities and zero divisors are rare and left to the library function of f64, which is exact.
"""

from __future__ import annotations

from tinyhlo.codegen.expressions import where
from tinyhlo.codegen.math.terms import Term, rarely
from tinyhlo.ir.dtypes import F32, F64

MANY = {F32: 2.0**22, F64: 2.0**51}


def remainder(x: Term, y: Term) -> Term:
    """As C's fmod: with the sign of x."""
    size, divisor = abs(x), abs(y)
    quotient = size / divisor
    rest = (-quotient.trunc()).fma(divisor, size)
    rest = where(rest < 0.0, rest + divisor, rest)
    usual = where(size < divisor, size, rest).with_sign(x.sign())
    is_far = ~(quotient < MANY[x.dtype])  # NaN is neither
    return rarely(is_far, "far_remainder", far_remainder, (x, y), usual)


def far_remainder(x: Term, y: Term) -> Term:
    if x.dtype is F64:
        return x.remainder(y)
    return x.cast(F64).remainder(y.cast(F64)).cast(F32)
