"""Quotients without dividing lane by lane.

Of 64-bit integers by floats: no processor divides integers in lanes. Below 2^51 an f64 holds them
exactly, does not round a quotient that is not whole to one that is, and nothing of the remainder;
larger ones are left to the instruction, one lane after the other.

Of floats by one divisor for all lanes: times its reciprocal, rounded, and a step of correction give
the quotient as IEEE 754 rounds it (Brisebarre, Muller, Raina, "Accelerating correctly rounded
floating-point division when the divisor is known in advance", 2004), where no intermediate is
denormal or infinite; dividends and divisors for which one might be are left to the instruction. A
constant takes two operations (`reciprocals.py`).
"""

from __future__ import annotations

import numpy as np

from tinyhlo.codegen.expressions import Apply, Literal, apply, float_of, literal, where
from tinyhlo.codegen.math.logarithm import to_float
from tinyhlo.codegen.math.reciprocals import largest, reciprocal, smallest
from tinyhlo.codegen.math.terms import MAGIC, Term, rarely
from tinyhlo.ir.dtypes import F32, F64, U64, DType, unsigned_of
from tinyhlo.ir.ops import Op

LIMIT = 1 << 51
# exponents of 2 up to which dividends and divisors, or their reciprocals, are multiplied
NEAR_ONE = {F32: (100, 24), F64: (900, 100)}
SMALL = {F32: 64, F64: 512}  # exponents below which dividends are taken to be rare


def pays(x: Term, y: Term) -> bool:
    """A constant divisor is a factor to LLVM; products are what uses all 64 bits."""
    return type(y) is not Literal and not is_product(x)


def is_product(x: Term) -> bool:
    match x:
        case Apply(op=Op.ADD | Op.SUB, arguments=arguments):
            return any(map(is_product, arguments))
        case Apply(op=op):
            return op is Op.MUL
    return False


def quotient(x: Term, y: Term) -> Term:
    _, _, whole = in_floats(x, y)
    return divided(Op.DIV, x, y, where(y.equals(0), y.constant(-1), to_integer(whole, x)))


def remainder(x: Term, y: Term) -> Term:
    dividend, divisor, whole = in_floats(x, y)
    rest = to_integer((-whole).fma(divisor, dividend), x)
    return divided(Op.REM, x, y, where(y.equals(0), x, rest))


def in_floats(x: Term, y: Term) -> tuple[Term, Term, Term]:
    """(x, y, x / y without its fraction)."""
    dividend, divisor = to_float(x, F64), to_float(y, F64)
    return dividend, divisor, (dividend / divisor).trunc()


def to_integer(x: Term, like: Term) -> Term:
    """As many low bits of a sum as the number needs."""
    zero = x.constant(MAGIC[F64]).as_integer()
    return ((x + MAGIC[F64]).as_integer() - zero).as_float(like.dtype)


def by_one_divisor(x: Term, y: Term) -> Term | None:
    """x / y of floats, y the same for many x; None for what LLVM's division serves: powers of two,
    by which it multiplies, and constants far from one."""
    unsigned, (dividends, divisors) = unsigned_of(x.dtype), NEAR_ONE[x.dtype]
    y = as_number(y)
    if type(y) is Literal:
        parts = reciprocal(float_of(y), y.dtype)
        if parts is not None:
            return by_constant(x, y, *parts)
        if y.bits % (1 << y.dtype.mantissa_bits) == 0 or not is_near(y, divisors):
            return None
        if is_between(x, dividends):
            return corrected(*((x, y) if float_of(y) > 0 else (-x, -y)), y.constant(1.0) / abs(y))
    size, of_divisor = (abs(part).as_integer() for part in (x, y))

    def above(size: Term, exponent: int) -> Term:
        """How far above 2^-exponent, as bits; large if below."""
        return (size - x.constant(2.0**-exponent).as_integer()).as_float(unsigned)

    def span(exponent: int) -> int:
        return 2 * exponent << x.dtype.mantissa_bits

    known = above(of_divisor, divisors) <= span(divisors)
    # of a divisor that is not near one all dividends are far, and none of them is zero
    zero = where(known, size.constant(0), size.constant(-1))
    above_all = above(size, dividends)
    end = where(known, above_all.constant(span(dividends) + 1), above_all.constant(0))
    far = (above_all >= end) & size.differs(zero)

    near = where(far, x.constant(0.0), x)  # far ones would meet denormal numbers, which is slow
    inverse = y.constant(1.0) / y
    usual = corrected(near, y, inverse)
    if type(y) is not Literal or float_of(y) < 0:
        usual = abs(usual).with_sign((near * inverse).sign())  # a zero has lost it
    return rarely(far, "quotient", far_quotient, (x, y), usual)


def as_number(y: Term) -> Term:
    """A constant half that is cast to a float, as a float."""
    match y:
        case Apply(op=Op.CAST, arguments=(Literal(dtype=dtype) as half,)) if dtype.is_float:
            return y.constant(float_of(half))
        case _:
            return y


def corrected(x: Term, y: Term, inverse: Term) -> Term:
    """x / y, where no intermediate is denormal or infinite. If y is positive zeros keep their sign:
    what is subtracted of an exact quotient is +0."""
    quotient = x * inverse
    return (-quotient.fma(y, -x)).fma(inverse, quotient)


def is_near(y: Literal, exponent: int) -> bool:
    return 2.0**-exponent <= abs(float_of(y)) <= 2.0**exponent


def is_between(x: Term, exponent: int) -> bool:
    """Whether x is known to be a number between 2^-exponent and 2^exponent, or zero."""
    return smallest(x) >= 2.0**-exponent and 2 * largest(x) <= 2.0**exponent


def by_constant(x: Term, y: Literal, high: float, low: float) -> Term | None:
    """x / y by the `reciprocal` of y; None where too many dividends would be far."""
    least = least_dividend(low, x.dtype)
    if smallest(x) >= least:
        return x.fma(high, x * low)
    if least > 2.0 ** -SMALL[x.dtype]:
        return None
    unsigned, bits = unsigned_of(x.dtype), literal(least, x.dtype).bits
    size = abs(x).as_integer() - 1  # that of zero is, without a sign, the largest
    far = size.as_float(unsigned) < literal(bits - 1, unsigned)
    near = where(far, x.constant(0.0), x)  # far ones would meet denormal numbers, which is slow
    return rarely(far, "quotient", far_quotient, (x, y), near.fma(high, near * low))


def least_dividend(low: float, dtype: DType) -> float:
    """Dividends from here on have a small product that is no denormal number."""
    return 2 * float(np.finfo(dtype.numpy).tiny) / abs(low)


def is_never_far(x: Term, y: Term) -> bool:
    """Whether y is a constant by which all that x can be is divided in two or three operations."""
    y = as_number(y)
    if type(y) is not Literal:
        return False
    parts, (dividends, divisors) = reciprocal(float_of(y), y.dtype), NEAR_ONE[y.dtype]
    if parts is None:
        return is_near(y, divisors) and is_between(x, dividends)
    return smallest(x) >= least_dividend(parts[1], x.dtype)


def far_quotient(x: Term, y: Term) -> Term:
    """x / y, of floats as doubles: Intel's processors convert denormal numbers at once, but take
    a hundred cycles to divide them. The rounding to a double does not show (Figueroa, "When is
    double rounding innocuous?", 1995)."""
    return (x.cast(F64) / y.cast(F64)).cast(F32) if x.dtype is F32 else x / y


def divided(op: Op, x: Term, y: Term, usual: Term) -> Term:
    far = (x + LIMIT | y + LIMIT).as_float(U64) >= 2 * LIMIT
    return rarely(far, f"far_{op.label}", lambda a, b: apply(op, (a, b), a.dtype), (x, y), usual)
