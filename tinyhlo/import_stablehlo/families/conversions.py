"""Comparisons, conversions between types, and reinterpreted bits.

compare GT, a, b  ->  LT(b, a)
bitcast_convert tensor<3xui64> -> tensor<3x2xui32>  ->  shifts along a new last axis
"""

from __future__ import annotations

from typing import Any

from tinyhlo.import_stablehlo.lifted.lifting import is_small, stored_type
from tinyhlo.import_stablehlo.records import Operation
from tinyhlo.import_stablehlo.walker import Rule, Scope, UnsupportedError
from tinyhlo.ir.build import bitcast, broadcast, cast, elementwise, iota, reduce
from tinyhlo.ir.dtypes import BOOL, DType, unsigned_of
from tinyhlo.ir.graph import Node, TensorType
from tinyhlo.ir.ops import Op
from tinyhlo.ir.order import total_order_key

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


def convert(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    (x,) = inputs
    dtype = operation.type.dtype
    if dtype is BOOL and x.dtype is not BOOL:
        return x.differs(0)
    return cast(x, dtype)


def bitcast_convert(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    """Narrower elements are split off along a new last axis, wider ones joined from the last axis,
    least significant first."""
    (x,) = inputs
    given: TensorType = operation.operand_types[0]  # type: ignore[assignment]
    wanted = operation.type
    if (given.dtype is BOOL) != (wanted.dtype is BOOL):
        raise UnsupportedError("booleans are stored one a byte: use convert")
    kept = stored_type(wanted.dtype)
    if given.dtype.bits == wanted.dtype.bits:
        return bitcast(x, kept)
    x, word = bitcast(x, unsigned_of(x.dtype)), unsigned_of(kept)
    if given.dtype.bits < wanted.dtype.bits:
        parts = cast(x, word) << positions(x.shape, word, given.dtype.bits)
        return bitcast(reduce(Op.OR, parts, (len(x.shape) - 1,)), kept)
    wide = broadcast(x, wanted.shape, range(len(x.shape)))
    part = wide >> positions(wanted.shape, wide.dtype, wanted.dtype.bits)
    if is_small(wanted):
        part = part & ((1 << wanted.dtype.bits) - 1)
    return bitcast(cast(part, word), kept)


def positions(shape: tuple[int, ...], dtype: DType, bits: int) -> Node:
    """How far the bits of each element along the last axis are from the lowest."""
    return iota(shape, dtype, len(shape) - 1) * bits


RULES: dict[str, Rule] = {
    "stablehlo.compare": compare,
    "stablehlo.convert": convert,
    "stablehlo.bitcast_convert": bitcast_convert,
}
