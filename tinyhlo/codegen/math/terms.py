"""Formulas over expressions, written as formulas.

    x = Term(expression)
    (x * 2.0 + 1.0).fma(x, x)          # Apply nodes; Python numbers become literals of x's type

Nothing is simplified or evaluated here: `a * b + c` stays a product and a sum, `a.fma(b, c)` is
a * b + c rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinyhlo.codegen.expressions import Apply, Expression, literal
from tinyhlo.ir.dtypes import BOOL, DType, signed_of
from tinyhlo.ir.ops import Op


@dataclass(frozen=True, slots=True)
class Term:
    """An expression with arithmetic."""

    expression: Expression

    @property
    def dtype(self) -> DType:
        return self.expression.dtype

    def constant(self, value: float) -> Term:
        """A literal of this term's type."""
        return Term(literal(value, self.dtype))

    def lift(self, other: Term | float) -> Term:
        return other if isinstance(other, Term) else self.constant(other)

    def apply(self, op: Op, *others: Term | float, dtype: DType | None = None) -> Term:
        arguments = (self.expression, *(self.lift(other).expression for other in others))
        return Term(Apply(op, arguments, dtype or self.dtype))

    # --- arithmetic ---------------------------------------------------------------------------

    def __add__(self, other: Term | float) -> Term:
        return self.apply(Op.ADD, other)

    def __sub__(self, other: Term | float) -> Term:
        return self.apply(Op.SUB, other)

    def __mul__(self, other: Term | float) -> Term:
        return self.apply(Op.MUL, other)

    def __truediv__(self, other: Term | float) -> Term:
        return self.apply(Op.DIV, other)

    def __neg__(self) -> Term:
        return self.apply(Op.NEG)

    def __abs__(self) -> Term:
        return self.apply(Op.ABS)

    def fma(self, factor: Term | float, addend: Term | float) -> Term:
        """self * factor + addend, rounded once."""
        return self.apply(Op.FMA, factor, addend)

    def rint(self) -> Term:
        return self.apply(Op.RINT)

    def trunc(self) -> Term:
        return self.apply(Op.TRUNC)

    def at_least(self, bound: Term | float) -> Term:
        return self.apply(Op.MAX, bound)

    def at_most(self, bound: Term | float) -> Term:
        return self.apply(Op.MIN, bound)

    # --- bits ---------------------------------------------------------------------------------

    def bits(self) -> Term:
        """The representation as a signed integer of the same width."""
        return self.apply(Op.BITCAST, dtype=signed_of(self.dtype))

    def as_float(self, dtype: DType) -> Term:
        """An integer read as the representation of a float."""
        return self.apply(Op.BITCAST, dtype=dtype)

    def cast(self, dtype: DType) -> Term:
        return self.apply(Op.CAST, dtype=dtype)

    def __and__(self, other: Term | int) -> Term:
        return self.apply(Op.AND, other)

    def __or__(self, other: Term | int) -> Term:
        return self.apply(Op.OR, other)

    def __xor__(self, other: Term | int) -> Term:
        return self.apply(Op.XOR, other)

    def __lshift__(self, count: int) -> Term:
        return self.apply(Op.SHL, count)

    def __rshift__(self, count: int) -> Term:
        """Arithmetic: the sign fills."""
        return self.apply(Op.SAR, count)

    def sign(self) -> Term:
        """The sign bit of a float, as an integer with only that bit."""
        return self.bits() & -(1 << (self.dtype.bits - 1))

    def with_sign(self, sign: Term) -> Term:
        """A float that is not negative, with the sign bit `sign`."""
        return (self.bits() | sign).as_float(self.dtype)

    def flip_sign(self, sign: Term) -> Term:
        return (self.bits() ^ sign).as_float(self.dtype)

    # --- choice -------------------------------------------------------------------------------

    def __lt__(self, other: Term | float) -> Term:
        return self.apply(Op.LT, other, dtype=BOOL)

    def __gt__(self, other: Term | float) -> Term:
        return self.lift(other) < self

    def equals(self, other: Term | float) -> Term:
        return self.apply(Op.EQ, other, dtype=BOOL)

    def differs(self, other: Term | float) -> Term:
        return self.apply(Op.NE, other, dtype=BOOL)


def where(condition: Term, then: Term, other: Term) -> Term:
    """`then` where `condition` holds."""
    arguments = (condition.expression, then.expression, other.expression)
    return Term(Apply(Op.WHERE, arguments, then.dtype))


def polynomial(x: Term, coefficients: Sequence[float]) -> Term:
    """c0 + c1 x + c2 x^2 + ... by Horner's rule."""
    *rest, last = coefficients
    total = x.constant(last)
    for coefficient in reversed(rest):
        total = total.fma(x, coefficient)
    return total


def paired(x: Term, coefficients: Sequence[float]) -> Term:
    """The same in pairs (Estrin's scheme): as many steps as the logarithm of the length, where
    other work does not fill the waiting of Horner's rule."""
    terms = [x.constant(coefficient) for coefficient in coefficients]
    while len(terms) > 1:
        pairs = [high.fma(x, low) for low, high in zip(terms[::2], terms[1::2], strict=False)]
        x = x * x
        if len(terms) % 2:
            pairs[-1] = terms[-1].fma(x, pairs[-1])
        terms = pairs
    return terms[0]
