"""Ops on small element types whose meaning depends on their bits.

constant f8E5M2                 ->  constant ui8
bitcast_convert i4[6,2] -> i8[6] ->  join bits along the last axis
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyhlo.import_stablehlo.attributes import Dense
from tinyhlo.import_stablehlo.conversions import convert
from tinyhlo.import_stablehlo.lifting import is_small, stored_type, with_types
from tinyhlo.import_stablehlo.records import Operation
from tinyhlo.import_stablehlo.small_types import compute_type, decode, encode
from tinyhlo.import_stablehlo.walker import Rule, Scope, UnsupportedError
from tinyhlo.ir.build import bitcast, broadcast, cast, constant, elementwise, iota, reduce
from tinyhlo.ir.dtypes import BOOL, F32, F64, U8, DType, unsigned_of
from tinyhlo.ir.elements import SMALL, SMALL_INTEGERS
from tinyhlo.ir.graph import Node, TensorType
from tinyhlo.ir.ops import Op


def constant_op(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    dense = operation.attributes["value"]
    if not isinstance(dense, Dense):
        raise UnsupportedError("constants of this element type are not compiled yet")
    mask = (1 << operation.type.dtype.bits) - 1  # NumPy's integers have their sign above
    value = constant(dense.value.view(np.uint8) & np.uint8(mask))
    return value if value.shape else broadcast(value, dense.shape)


def convert_op(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    """Floats are rounded to a small float once, from their own type."""
    (x,) = inputs
    source: DType = operation.operand_types[0].dtype  # type: ignore[union-attr]
    target = operation.type.dtype
    if source in SMALL:
        x = decode(x, source)
    if target not in SMALL:
        return convert(with_types(operation, compute_type), (x,), scope)
    if target in SMALL_INTEGERS:
        wide = x if x.dtype.is_integer else cast(x, compute_type(target))
        return encode(wide, target)
    if not x.dtype.is_float:
        x = cast(x, F32 if x.dtype.bits <= 16 else F64)
    return encode(x, target)


def shift_right_logical(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    bits, amount = inputs
    return bits >> amount


def popcount(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    return elementwise(Op.POPCOUNT, inputs[0])


def count_leading_zeros(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    zeros = elementwise(Op.CLZ, inputs[0])
    return zeros - (U8.bits - operation.type.dtype.bits)


def bitcast_convert(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    (x,) = inputs
    given: TensorType = operation.operand_types[0]  # type: ignore[assignment]
    wanted = operation.type
    if BOOL in (given.dtype, wanted.dtype):
        raise UnsupportedError("booleans are stored one a byte: use convert")
    x = bitcast(x, unsigned_of(stored_type(given.dtype)))
    kept = stored_type(wanted.dtype)
    ratio, word = given.dtype.bits / wanted.dtype.bits, unsigned_of(kept)
    if ratio == 1:
        return bitcast(x, kept)
    if ratio < 1:  # the last axis joined, least significant first
        shift = positions(x.shape, word, given.dtype.bits)
        parts = cast(x, word) << shift
        return bitcast(reduce(Op.OR, parts, (len(x.shape) - 1,)), kept)
    wide = broadcast(x, wanted.shape, range(len(x.shape)))
    part = wide >> positions(wanted.shape, wide.dtype, wanted.dtype.bits)
    if is_small(wanted):
        part = part & ((1 << wanted.dtype.bits) - 1)
    return bitcast(cast(part, word), kept)


def positions(shape: tuple[int, ...], dtype: DType, bits: int) -> Node:
    """How far the bits of each element along the last axis are from the lowest."""
    part = iota(shape, dtype, len(shape) - 1)
    return part * bits


RULES: dict[str, Rule] = {
    "stablehlo.constant": constant_op,
    "stablehlo.convert": convert_op,
    "stablehlo.shift_right_logical": shift_right_logical,
    "stablehlo.popcnt": popcount,
    "stablehlo.count_leading_zeros": count_leading_zeros,
    "stablehlo.bitcast_convert": bitcast_convert,
}
