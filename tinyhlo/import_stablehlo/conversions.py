"""Comparisons, conversions between types, and reinterpreted bits.

compare GT, a, b  ->  LT(b, a)
bitcast_convert tensor<3xui64> -> tensor<3x2xui32>  ->  shifts along a new last axis
"""

from __future__ import annotations

from typing import Any

from tinyhlo.import_stablehlo.operands import like
from tinyhlo.import_stablehlo.records import Operation
from tinyhlo.import_stablehlo.walker import Rule, Scope, UnsupportedError
from tinyhlo.ir.build import bitcast, broadcast, cast, elementwise, iota, reduce
from tinyhlo.ir.dtypes import BOOL, signed_of, unsigned_of
from tinyhlo.ir.graph import Node
from tinyhlo.ir.ops import Op

# direction -> (op, whether the operands change places)
DIRECTIONS = {
    "EQ": (Op.EQ, False),
    "NE": (Op.NE, False),
    "LT": (Op.LT, False),
    "LE": (Op.LE, False),
    "GT": (Op.LT, True),
    "GE": (Op.LE, True),
}


def compare(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    left, right = inputs
    op, swapped = DIRECTIONS[operation.attributes["comparison_direction"]]
    if operation.attributes.get("compare_type") == "TOTALORDER" and left.dtype.is_float:
        left, right = total_order_key(left), total_order_key(right)
    return elementwise(op, right, left) if swapped else elementwise(op, left, right)


def total_order_key(x: Node) -> Node:
    """Signed integers in IEEE total order: the magnitude bits of negative numbers are inverted."""
    bits = bitcast(x, signed_of(x.dtype))
    spread = elementwise(Op.SAR, bits, like(x.dtype.bits - 1, bits))
    return bits ^ (spread >> 1)


def convert(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    (x,) = inputs
    dtype = operation.type.dtype
    if dtype is BOOL and x.dtype is not BOOL:
        return x.differs(0)
    return cast(x, dtype)


def bitcast_convert(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    (x,) = inputs
    dtype = operation.type.dtype
    if (x.dtype is BOOL) != (dtype is BOOL):
        raise UnsupportedError("booleans are stored one a byte: use convert")
    if dtype.bits == x.dtype.bits:
        return bitcast(x, dtype)
    if dtype.bits < x.dtype.bits:
        return split_bits(x, operation)
    return join_bits(x, operation)


def split_bits(x: Node, operation: Operation) -> Node:
    """Narrower elements, least significant first, along a new last axis."""
    type_ = operation.type
    narrow = unsigned_of(type_.dtype)
    wide = bitcast(x, unsigned_of(x.dtype))
    wide = broadcast(wide, type_.shape, range(len(x.shape)))
    part = iota(type_.shape, wide.dtype, len(x.shape))
    shift = part * narrow.bits
    return bitcast(cast(wide >> shift, narrow), type_.dtype)


def join_bits(x: Node, operation: Operation) -> Node:
    """The last axis joined into wider elements, least significant first."""
    type_ = operation.type
    wide = unsigned_of(type_.dtype)
    parts = cast(bitcast(x, unsigned_of(x.dtype)), wide)
    last = len(x.shape) - 1
    part = iota(x.shape, wide, last)
    shift = part * x.dtype.bits
    return bitcast(reduce(Op.OR, parts << shift, (last,)), type_.dtype)


RULES: dict[str, Rule] = {
    "stablehlo.compare": compare,
    "stablehlo.convert": convert,
    "stablehlo.bitcast_convert": bitcast_convert,
}
