"""Arithmetic of nodes, written as arithmetic.

    1 / (1 + exp(-x))     # Elementwise nodes; Python numbers become splats of the node's type

Nothing is simplified here. `a > b` is LT(b, a), `>>` fills with zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Union

from tinyhlo.ir.ops import Op

if TYPE_CHECKING:
    from tinyhlo.ir.graph import Node

Operand = Union["Operators", float]


def unary(op: Op) -> Callable[[Operators], Node]:
    return lambda self: apply(op, self)


def binary(op: Op) -> Callable[[Operators, Operand], Node]:
    return lambda self, other: apply(op, self, other)


def exchanged(op: Op) -> Callable[[Operators, Operand], Node]:
    """Of the operands in the other order."""
    return lambda self, other: apply(op, other, self)


class Operators:
    """What every Node can do, element by element."""

    __slots__ = ()
    __array_ufunc__ = None  # NumPy's numbers leave the operator to the node

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


def apply(op: Op, *operands: Operand) -> Node:
    """`op` of nodes and of numbers like them."""
    from tinyhlo.ir.build import elementwise, full  # nodes come first

    (like, *_) = (operand for operand in operands if isinstance(operand, Operators))
    nodes = (
        operand if isinstance(operand, Operators) else full(operand, like.shape, like.dtype)  # type: ignore[attr-defined]
        for operand in operands
    )
    return elementwise(op, *nodes)  # type: ignore[arg-type]
