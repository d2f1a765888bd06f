"""Quotients and remainders of 64-bit integers by floats: no processor divides integers in lanes.

Below 2^51 an f64 holds them exactly, does not round a quotient that is not whole to one that is,
and nothing of the remainder; larger ones are left to the instruction, one lane after the other.
"""

from __future__ import annotations

from tinyhlo.codegen.expressions import Apply, Literal, apply, where
from tinyhlo.codegen.math.logarithm import to_float
from tinyhlo.codegen.math.terms import MAGIC, Term, rarely
from tinyhlo.ir.dtypes import F64, U64
from tinyhlo.ir.ops import Op

LIMIT = 1 << 51


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


def divided(op: Op, x: Term, y: Term, usual: Term) -> Term:
    far = (x + LIMIT | y + LIMIT).as_float(U64) >= 2 * LIMIT
    return rarely(far, f"far_{op.label}", lambda a, b: apply(op, (a, b), a.dtype), (x, y), usual)
