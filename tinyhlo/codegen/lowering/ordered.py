"""Maxima and minima of 16-bit floats as those of integers in the same order.

    max(max0, f32(x[i]))  ->  max(max0, key(x[i])), and f32(x of the key max0) after the loop

A float's bits without their sign are in its order, so those of a negative one are inverted. All
NaNs come last (first for minima): keys are moved by the number of NaNs of a sign, and wrap around.
So lanes stay as narrow as memory, and one instruction does what asks floats for NaN and the sign
of zero.
"""

from __future__ import annotations

from typing import NamedTuple

from tinyhlo.codegen.expressions import Expression, apply
from tinyhlo.codegen.legal import SMALL_FLOATS
from tinyhlo.ir.dtypes import I16, DType
from tinyhlo.ir.graph import Elementwise, Node, Reduce
from tinyhlo.ir.ops import Op

NANS = {"bf16": 0x7F, "f16": 0x3FF}  # of either sign


class Order(NamedTuple):
    """Keys of floats of type `dtype`: whichever `op` prefers comes last for MAX, first for MIN."""

    op: Op
    dtype: DType

    @property
    def beyond(self) -> int:
        """The offset of keys that moves the NaNs of one sign beyond those of the other."""
        return -NANS[self.dtype.name] if self.op is Op.MAX else NANS[self.dtype.name]

    def key(self, value: Expression) -> Expression:
        return turned(apply(Op.BITCAST, (value,), I16)) + self.beyond

    def value(self, key: Expression, dtype: DType) -> Expression:
        """The float that has a key, in a type that holds it."""
        narrow = apply(Op.BITCAST, (turned(key - self.beyond),), self.dtype)
        return narrow if dtype is self.dtype else apply(Op.CAST, (narrow,), dtype)


def turned(bits: Expression) -> Expression:
    """A sign and a size as a number, and back."""
    sign = apply(Op.SAR, (bits, bits.constant(15)), I16)
    return bits ^ (sign & 0x7FFF)


def ordered_source(node: Reduce) -> tuple[Order, Node] | None:
    """The order in which a reduce may compare what it reads, and the 16-bit floats it reads."""
    source = node.inputs[0]
    if isinstance(source, Elementwise) and source.op is Op.CAST and source.dtype.is_float:
        source = source.inputs[0]
    if node.op not in (Op.MAX, Op.MIN) or source.dtype not in SMALL_FLOATS:
        return None
    return Order(node.op, source.dtype), source
