"""Reciprocals of constants by which quotients are exact, and dividends that they serve.

    x / 3  ->  fma(x, high, x * low)        ; high + low is 1/3 with twice the digits

The sum is rounded once. It is less than two last digits of `low` from the quotient, and so could be
rounded differently only where a quotient lies as close to the middle between two floats: the few
dividends where that is so are computed here, and tried (Brisebarre and Muller, "Correctly rounded
multiplication by arbitrary precision constants", 2008). One divisor in 14 fails, none short.

`high` is rounded to zero, so that both products have the sign of the quotient: infinities and zeros
come out right, and sums that overflow have to. What must not be is that x * low is denormal and
loses digits. Most dividends that a program computes cannot be as small: see `smallest`. Divisors
that fail, such as 0.1 and 0.2, are divisors like those known before a loop (`division.py`), whose
dividends have an upper bound, too: see `largest`.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from math import copysign, frexp, inf, isfinite, ldexp

import ml_dtypes
import numpy as np

from tinyhlo.codegen.expressions import Apply, IndexValue, Literal, float_of
from tinyhlo.codegen.math.terms import Term
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.ops import Op

DEPTH = 6  # operations that `smallest` looks through
OF_PARTS = (Op.NEG, Op.ABS, Op.MAX, Op.MIN)  # the result is an argument, but for its sign


@lru_cache(maxsize=256)
def reciprocal(divisor: float, dtype: DType) -> tuple[float, float] | None:
    """1 / divisor as the sum of two normal numbers by which quotients come out exact. None where
    there are none such, and for powers of two: LLVM multiplies by those."""
    info, digits, of_type = np.finfo(dtype.numpy), dtype.mantissa_bits + 1, dtype.numpy.type
    if not isfinite(divisor) or divisor == 0:
        return None
    fraction, exponent = frexp(abs(divisor))
    whole = int(ldexp(fraction, digits))
    high, rest = divmod(1 << 2 * digits - 1, whole)
    if rest == 0 or exponent <= info.minexp:
        return None
    nearest, scale = of_type(rest / whole), ldexp(copysign(1, divisor), 1 - digits - exponent)
    for low in (nearest, *(np.nextafter(nearest, of_type(end)) for end in (0, 1))):
        off = (
            (x * high - middle + Fraction(float(of_type(x) * low))) * k <= 0
            for x, middle, k in close(whole, digits)
        )
        if not any(off):
            found = high * scale, float(low) * scale
            return found if abs(found[1]) >= info.tiny else None
    return None


def close(whole: int, digits: int) -> Iterator[tuple[int, int, int]]:
    """Dividends x whose quotients by `whole`, both integers of so many digits, lie closest to the
    middle m between two floats: x 2^s - m whole = k, s = `digits` where the quotient is 1 or more,
    else one more. In units of x * `high` the quotient is k 2^(2 digits - 1 - s) / whole from the
    middle, and sums are less than 2 from it: |k| < 8. Yields x, m in these units, k."""
    power = whole & -whole  # k is an odd multiple of it, as m is odd
    for s in (digits, digits + 1):
        step = (1 << s) // power
        inverse = pow(whole // power, -1, step)
        for k in range(power, 8, 2 * power):
            for signed in (k, -k):
                first = -(signed // power) * inverse % step
                start = first + -(-((1 << digits) - first) // step) * step
                for m in range(start, 2 << digits, step):
                    x = (signed + m * whole) >> s
                    if 1 << (digits - 1) <= x < 1 << digits:
                        yield x, m << (2 * digits - 1 - s), signed


def smallest(x: Term, depth: int = DEPTH) -> float:
    """Nothing in x lies nearer to zero but zero itself; 0 where that is not known."""
    if depth == 0:
        return 0.0

    def of(*parts: Term) -> float:
        return min(smallest(part, depth - 1) for part in parts)

    match x:
        case Literal():
            return abs(float_of(x)) or inf
        case IndexValue():
            return 1.0
        case Apply(op=Op.CAST, arguments=(a,)):
            is_float = a.dtype.is_float
            return float(ml_dtypes.finfo(a.dtype.numpy).smallest_subnormal) if is_float else 1.0
        case Apply(op=Op.ADD | Op.SUB, arguments=(a, b)) if is_zero(b):
            return of(a)
        case Apply(op=Op.ADD | Op.SUB, arguments=(a, Literal() as c) | (Literal() as c, a)):
            # a multiple of the last digit of either, be `a` a product that is not rounded before
            return ldexp(abs(float_of(c)), -2 * x.dtype.mantissa_bits - 4)
        case Apply(op=Op.MUL, arguments=(a, Literal() as c) | (Literal() as c, a)):
            return of(a) * abs(float_of(c)) / 2
        case Apply(op=Op.DIV, arguments=(a, Literal() as c)) if float_of(c) != 0:
            return of(a) / abs(float_of(c)) / 2
        case Apply(op=Op.WHERE, arguments=(_, *parts)):
            return of(*parts)
        case Apply(op=op, arguments=parts) if op in OF_PARTS:
            return of(*parts)
    return 0.0


def largest(x: Term, depth: int = DEPTH) -> float:
    """x is never NaN and lies nearer to zero than twice this; infinite where that is not known."""
    if depth == 0:
        return inf

    def of(*parts: Term) -> float:
        return max(largest(part, depth - 1) for part in parts)

    match x:
        case Literal():
            found = abs(float_of(x))
        case IndexValue():
            found = 2.0**64
        case Apply(op=Op.CAST, arguments=(a,)):
            found = float(max(map(abs, a.dtype.bounds)))
        case Apply(op=Op.ADD | Op.SUB, arguments=(a, b)):
            found = of(a) + of(b)
        case Apply(op=Op.MUL, arguments=(a, b)):
            found = of(a) * of(b)
        case Apply(op=Op.DIV, arguments=(a, Literal() as c)) if float_of(c) != 0:
            found = of(a) / abs(float_of(c))
        case Apply(op=Op.WHERE, arguments=(_, *parts)):
            found = of(*parts)
        case Apply(op=op, arguments=parts) if op in OF_PARTS:
            found = of(*parts)
        case _:
            return inf
    return found if found < inf else inf  # not NaN


def is_zero(x: Term) -> bool:
    """Zero or NaN, such as the products of complex numbers with an imaginary part of zero."""
    match x:
        case Apply(op=Op.MUL, arguments=(_, Literal() as c)):
            return float_of(c) == 0
        case _:
            return type(x) is Literal and float_of(x) == 0
