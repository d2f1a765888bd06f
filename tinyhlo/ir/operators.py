"""Arithmetic of values, written as arithmetic: of the nodes of a Graph, of codegen's expressions.

    1 / (1 + exp(-x))     # Elementwise nodes, or Apply expressions; numbers become constants like x

Nothing is simplified here. `a > b` is LT(b, a), `>>` fills with zeros.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, Union

from tinyhlo.ir.dtypes import DType, signed_of
from tinyhlo.ir.ops import Op

T = TypeVar("T", bound="Operators[Any]")
Operand = Union["Operators[T]", float]


def unary(op: Op) -> Callable[[Operators[T]], T]:
    return lambda self: self.combined(op, (self,), None)  # type: ignore[arg-type]


def binary(op: Op) -> Callable[[Operators[T], Operand[T]], T]:
    return lambda self, other: self.combined(op, (self, alike(self, other)), None)  # type: ignore[arg-type]


def exchanged(op: Op) -> Callable[[Operators[T], Operand[T]], T]:
    """Of the operands in the other order."""
    return lambda self, other: self.combined(op, (alike(self, other), self), None)  # type: ignore[arg-type]


def alike(value: Operators[T], other: Operand[T]) -> T:
    """A number as a value like the first."""
    return other if isinstance(other, Operators) else value.constant(other)  # type: ignore[return-value]


class Operators(Generic[T]):
    """What values of type T, which have a `dtype`, can do element by element."""

    # Said here, not by dataclasses: Python 3.12.3 forgets it in classes with a generic base.
    __slots__ = ("__weakref__",)
    __array_ufunc__ = None  # NumPy's numbers leave the operator to the value
    known: int | None = None  # the integer that the value is known to be

    @abstractmethod
    def constant(self, value: float) -> T:
        """`value` as a value like this one."""

    @abstractmethod
    def combined(self, op: Op, operands: Sequence[T], dtype: DType | None) -> T:
        """`op` of values like this one; `dtype` is that of the result where `op` leaves it open."""

    __neg__, __abs__, __invert__ = unary(Op.NEG), unary(Op.ABS), unary(Op.NOT)
    __add__, __radd__ = binary(Op.ADD), exchanged(Op.ADD)
    __sub__, __rsub__ = binary(Op.SUB), exchanged(Op.SUB)
    __mul__, __rmul__ = binary(Op.MUL), exchanged(Op.MUL)
    __truediv__, __rtruediv__ = binary(Op.DIV), exchanged(Op.DIV)
    __and__, __or__, __xor__ = binary(Op.AND), binary(Op.OR), binary(Op.XOR)
    __lshift__, __rshift__ = binary(Op.SHL), binary(Op.SHR)
    __lt__, __gt__ = binary(Op.LT), exchanged(Op.LT)
    __le__, __ge__ = binary(Op.LE), exchanged(Op.LE)
    # `==` and `!=` compare identities
    equals, differs = binary(Op.EQ), binary(Op.NE)
    at_least, at_most = binary(Op.MAX), binary(Op.MIN)
    arithmetic_shift = binary(Op.SAR)  # to the right: the sign fills
    remainder = binary(Op.REM)  # with the sign of the dividend
    rint, trunc = unary(Op.RINT), unary(Op.TRUNC)

    def ordered(self, other: T) -> T:
        """Whether neither is NaN."""
        return apply(Op.AND, apply(Op.EQ, self, self), apply(Op.EQ, other, other))

    def fma(self, factor: Operand[T], addend: Operand[T]) -> T:
        """self * factor + addend, rounded once."""
        return apply(Op.FMA, self, factor, addend)

    def scaled(self, exponent: Operand[T]) -> T:
        """self * 2^floor(exponent), rounded once."""
        return apply(Op.SCALE, self, exponent)

    def looked_up(self, op: Op, dtype: DType) -> T:
        """An entry of a table, by the last four bits of an integer."""
        return apply(op, self, dtype=dtype)

    def cast(self, dtype: DType) -> T:
        return self.combined(Op.CAST, (self,), dtype)  # type: ignore[arg-type]

    def as_integer(self) -> T:
        """The representation as a signed integer of the same width."""
        return self.as_float(signed_of(dtype_of(self)))

    def as_float(self, dtype: DType) -> T:
        """An integer read as the representation of a float."""
        return self.combined(Op.BITCAST, (self,), dtype)  # type: ignore[arg-type]

    def sign(self) -> T:
        """The sign bit of a float, as an integer with only that bit."""
        return apply(Op.AND, self.as_integer(), -(1 << (dtype_of(self).bits - 1)))

    def with_sign(self, sign: Operand[T]) -> T:
        """A float that is not negative, with the sign bit `sign`."""
        return apply(Op.OR, self.as_integer(), sign).as_float(dtype_of(self))

    def flip_sign(self, sign: Operand[T]) -> T:
        return apply(Op.XOR, self.as_integer(), sign).as_float(dtype_of(self))


def dtype_of(value: Any) -> DType:
    """Of a value of a class with Operators: fields named so may not override one of the base."""
    return value.dtype


def apply(op: Op, *operands: Operand[T], dtype: DType | None = None) -> T:
    """`op` of values and of numbers like them."""
    like = next(operand for operand in operands if isinstance(operand, Operators))
    return like.combined(op, [alike(like, operand) for operand in operands], dtype)
