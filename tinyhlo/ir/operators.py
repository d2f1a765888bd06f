"""Arithmetic of nodes, written as arithmetic.

    1 / (1 + exp(-x))     # Elementwise nodes; Python numbers become splats of the node's type

Nothing is simplified here. `a > b` is LT(b, a), `>>` fills with zeros.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Union

from tinyhlo.ir.ops import Op

if TYPE_CHECKING:
    from tinyhlo.ir.graph import Node

Operand = Union["Operators", float]


class Operators:
    """What every Node can do, element by element."""

    __slots__ = ()
    __array_ufunc__ = None  # NumPy's numbers leave the operator to the node

    def __add__(self, other: Operand) -> Node:
        return apply(Op.ADD, self, other)

    def __radd__(self, other: float) -> Node:
        return apply(Op.ADD, other, self)

    def __sub__(self, other: Operand) -> Node:
        return apply(Op.SUB, self, other)

    def __rsub__(self, other: float) -> Node:
        return apply(Op.SUB, other, self)

    def __mul__(self, other: Operand) -> Node:
        return apply(Op.MUL, self, other)

    def __rmul__(self, other: float) -> Node:
        return apply(Op.MUL, other, self)

    def __truediv__(self, other: Operand) -> Node:
        return apply(Op.DIV, self, other)

    def __rtruediv__(self, other: float) -> Node:
        return apply(Op.DIV, other, self)

    def __neg__(self) -> Node:
        return apply(Op.NEG, self)

    def __abs__(self) -> Node:
        return apply(Op.ABS, self)

    def __and__(self, other: Operand) -> Node:
        return apply(Op.AND, self, other)

    def __or__(self, other: Operand) -> Node:
        return apply(Op.OR, self, other)

    def __xor__(self, other: Operand) -> Node:
        return apply(Op.XOR, self, other)

    def __invert__(self) -> Node:
        return apply(Op.NOT, self)

    def __lshift__(self, count: Operand) -> Node:
        return apply(Op.SHL, self, count)

    def __rshift__(self, count: Operand) -> Node:
        return apply(Op.SHR, self, count)

    def __lt__(self, other: Operand) -> Node:
        return apply(Op.LT, self, other)

    def __le__(self, other: Operand) -> Node:
        return apply(Op.LE, self, other)

    def __gt__(self, other: Operand) -> Node:
        return apply(Op.LT, other, self)

    def __ge__(self, other: Operand) -> Node:
        return apply(Op.LE, other, self)

    def equals(self, other: Operand) -> Node:
        """`==` compares identities."""
        return apply(Op.EQ, self, other)

    def differs(self, other: Operand) -> Node:
        return apply(Op.NE, self, other)


def apply(op: Op, *operands: Operand) -> Node:
    """`op` of nodes and of numbers like them."""
    from tinyhlo.ir.build import elementwise, full  # nodes come first

    (like, *_) = (operand for operand in operands if isinstance(operand, Operators))
    nodes = (
        operand if isinstance(operand, Operators) else full(operand, like.shape, like.dtype)  # type: ignore[attr-defined]
        for operand in operands
    )
    return elementwise(op, *nodes)  # type: ignore[arg-type]
