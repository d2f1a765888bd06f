"""Ops on small element types whose meaning depends on their bits.

convert f32 -> f8E5M2   ->  rounded once, as ui8
popcnt i4               ->  popcnt of its byte
"""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

import numpy as np

from tinyhlo.import_stablehlo.families import elementwise as plain
from tinyhlo.import_stablehlo.families.conversions import bitcast_convert, convert
from tinyhlo.import_stablehlo.families.movement import elements_of, repeated
from tinyhlo.import_stablehlo.families.pooling import select_and_scatter
from tinyhlo.import_stablehlo.lifted.lifting import with_types
from tinyhlo.import_stablehlo.lifted.small_types import compute_type, decode, encode
from tinyhlo.import_stablehlo.records import CONSTANTS, Operation
from tinyhlo.import_stablehlo.walker import DTYPE, SHAPE, Rule, Scope, on_values
from tinyhlo.ir.build import cast, elementwise
from tinyhlo.ir.dtypes import F32, F64, U8, DType
from tinyhlo.ir.elements import SMALL, SMALL_INTEGERS
from tinyhlo.ir.graph import Node, Shape
from tinyhlo.ir.ops import Op


def bits_constant(dense: Any, shape: Shape, dtype: DType) -> Node:
    mask = (1 << dtype.bits) - 1  # NumPy's integers have their sign above
    return repeated(elements_of(dense).view(np.uint8) & np.uint8(mask), shape)


def convert_op(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    """Floats are rounded to a small float once, from their own type; those beyond the range of a
    small integer become its largest or smallest, as with wider integers."""
    (x,) = inputs
    source: DType = operation.operand_types[0].dtype  # type: ignore[union-attr]
    target = operation.type.dtype
    if source in SMALL:
        x = decode(x, source)
    if target not in SMALL:
        return convert(with_types(operation, compute_type), (x,), scope)
    if target in SMALL_INTEGERS:
        return encode(saturated(x, target) if x.dtype.is_float else x, target)
    if not x.dtype.is_float:
        x = cast(x, F32 if x.dtype.bits <= 16 else F64)
    return encode(x, target)


def saturated(x: Node, dtype: DType) -> Node:
    wide = cast(x, compute_type(dtype))
    smallest, largest = (wide.constant(limit) for limit in dtype.bounds)
    return plain.clamp(smallest, wide, largest)


def count_leading_zeros(x: Node, dtype: DType) -> Node:
    return elementwise(Op.CLZ, x) - (U8.bits - dtype.bits)


def shift_right_arithmetic(x: Node, places: Node, dtype: DType) -> Node:
    """The upper bit fills, also of unsigned integers, as with wider ones."""
    above = U8.bits - dtype.bits
    filled = (x << above).arithmetic_shift(places)
    return (filled >> above) & ((1 << dtype.bits) - 1)


def reduce_precision(x: Node, dtype: DType, exponent_bits: int, mantissa_bits: int) -> Node:
    """To no fewer bits than there are leaves even the subnormal numbers, as `jax.checkpoint` asks
    of what it keeps."""
    if exponent_bits >= dtype.exponent_bits and mantissa_bits >= dtype.mantissa_bits:
        return x
    return encode(plain.reduce_precision(decode(x, dtype), exponent_bits, mantissa_bits), dtype)


RULES: dict[str, Rule] = {
    **dict.fromkeys(CONSTANTS, on_values(bits_constant, "value", SHAPE, DTYPE)),
    "stablehlo.convert": convert_op,
    "stablehlo.reduce_precision": on_values(
        reduce_precision, DTYPE, "exponent_bits", "mantissa_bits"
    ),
    "stablehlo.shift_right_logical": on_values(operator.rshift),
    "stablehlo.shift_right_arithmetic": on_values(shift_right_arithmetic, DTYPE),
    "stablehlo.popcnt": on_values(partial(elementwise, Op.POPCOUNT)),
    "stablehlo.count_leading_zeros": on_values(count_leading_zeros, DTYPE),
    "stablehlo.bitcast_convert": bitcast_convert,
    "stablehlo.select_and_scatter": select_and_scatter,  # its regions decode
}
