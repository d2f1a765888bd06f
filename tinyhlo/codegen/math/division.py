"""Quotients without dividing lane by lane.

Of 64-bit integers by floats: no processor divides integers in lanes. Below 2^51 an f64 holds them
exactly, does not round a quotient that is not whole to one that is, and nothing of the remainder;
larger ones are left to the instruction, one lane after the other.

Of floats by one divisor for all lanes: times its reciprocal, rounded, and a step of correction give
the quotient as IEEE 754 rounds it (Brisebarre, Muller, Raina, "Accelerating correctly rounded
floating-point division when the divisor is known in advance", 2004), where no intermediate is
denormal or infinite; dividends and divisors for which one might be are left to the instruction.
"""

from __future__ import annotations

from tinyhlo.codegen.expressions import Apply, Literal, apply, where
from tinyhlo.codegen.math.logarithm import to_float
from tinyhlo.codegen.math.terms import MAGIC, Term, rarely
from tinyhlo.ir.dtypes import F32, F64, U64, unsigned_of
from tinyhlo.ir.ops import Op

LIMIT = 1 << 51
# exponents of 2 up to which dividends and divisors, or their reciprocals, are multiplied
NEAR_ONE = {F32: (100, 24), F64: (900, 100)}


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
    """x / y of floats, y the same for many x; None for powers of two: LLVM multiplies by those."""
    if type(y) is Literal and y.bits % (1 << y.dtype.mantissa_bits) == 0:
        return None
    unsigned, (dividends, divisors) = unsigned_of(x.dtype), NEAR_ONE[x.dtype]
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
    reciprocal = y.constant(1.0) / y
    quotient = near * reciprocal
    corrected = (-quotient).fma(y, near).fma(reciprocal, quotient)
    usual = abs(corrected).with_sign(quotient.sign())  # a zero has lost it
    return rarely(far, "quotient", far_quotient, (x, y), usual)


def far_quotient(x: Term, y: Term) -> Term:
    """x / y, of floats as doubles: Intel's processors convert denormal numbers at once, but take
    a hundred cycles to divide them. The rounding to a double does not show (Figueroa, "When is
    double rounding innocuous?", 1995)."""
    return (x.cast(F64) / y.cast(F64)).cast(F32) if x.dtype is F32 else x / y


def divided(op: Op, x: Term, y: Term, usual: Term) -> Term:
    far = (x + LIMIT | y + LIMIT).as_float(U64) >= 2 * LIMIT
    return rarely(far, f"far_{op.label}", lambda a, b: apply(op, (a, b), a.dtype), (x, y), usual)
