"""Ops on complex numbers: constants, parts, comparisons, conversions, products.

    dot_general(x, y)  ->  (x.re @ y.re - x.im @ y.im, x.re @ y.im + x.im @ y.re)

Arithmetic is in `complex_numbers.py`, functions (exp, tanh, ...) in `complex_functions.py`; what
works plane by plane in `lifting.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tinyhlo.import_stablehlo.families import (
    contraction,
    conversions,
    convolution,
    einsum,
    elementwise,
    ragged,
)
from tinyhlo.import_stablehlo.families.elementwise import is_mask
from tinyhlo.import_stablehlo.families.movement import elements_of, repeated
from tinyhlo.import_stablehlo.lifted import small_rules
from tinyhlo.import_stablehlo.lifted.complex_numbers import Complex, by_plane, choose
from tinyhlo.import_stablehlo.lifted.lifting import plane_type, with_types
from tinyhlo.import_stablehlo.lifted.planes import from_pairs, pairs
from tinyhlo.import_stablehlo.lifted.small_types import compute_type, decode
from tinyhlo.import_stablehlo.operands import known_scalar
from tinyhlo.import_stablehlo.records import CONSTANTS, Operation
from tinyhlo.import_stablehlo.walker import DTYPE, SHAPE, Rule, Scope, UnsupportedError, on_values
from tinyhlo.ir.build import broadcast, cast, full, iota, reshape
from tinyhlo.ir.dtypes import BOOL, DType
from tinyhlo.ir.elements import PLANES, SMALL
from tinyhlo.ir.graph import Node, Shape, TensorType


def dense_constant(dense: Any, shape: Shape) -> Complex:
    elements = elements_of(dense)
    return Complex(*(repeated(np.array(part(elements)), shape) for part in (np.real, np.imag)))


def iota_along(shape: Shape, dtype: DType, axis: int) -> Complex:
    plane = PLANES[dtype]
    return Complex(iota(shape, plane, axis), full(0, shape, plane))


def convert(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node | Complex:
    """To complex the imaginary part is zero; from complex it is dropped."""
    (x,) = inputs
    given: TensorType = operation.operand_types[0]  # type: ignore[assignment]
    target = operation.type.dtype
    if target not in PLANES:
        plain = with_types(operation, plane_type)
        rule: Any = small_rules.convert_op if target in SMALL else conversions.convert
        return rule(plain, (x.re,), scope)
    plane = PLANES[target]
    if isinstance(x, Complex):
        return by_plane(lambda part: cast(part, plane), x)
    if given.dtype in SMALL:
        x = decode(x, given.dtype)
    return Complex(cast(x, plane), full(0, x.shape, plane))


def compare(x: Complex, y: Complex, direction: str) -> Node:
    if direction not in ("EQ", "NE"):
        raise UnsupportedError(f"complex numbers have no order ({direction}): compare parts")
    return x.equals(y) if direction == "EQ" else ~x.equals(y)


def extreme(x: Complex, y: Complex, first: Node) -> Complex:
    """x where `first` holds, else y; a NaN wins."""
    return choose(first | x.is_nan() | x.equals(y), x, y)


def clamp(low: Complex, x: Complex, high: Complex) -> Complex:
    """Ordered by real parts, equal ones by imaginary parts."""
    low, high = (
        by_plane(lambda part: broadcast(part, x.shape), bound) if not bound.shape else bound
        for bound in (low, high)
    )
    raised = extreme(x, low, low < x)
    return extreme(raised, high, raised < high)


def bilinear(
    rule: Any, operation: Operation, inputs: tuple[Any, ...], scope: Scope
) -> Node | Complex:
    """A sum of products: four real ones, two where an operand is real, one where both are. What
    there is besides two factors is the same for all. A real result is converted from a complex."""
    if operation.type.dtype not in PLANES:
        dtypes = [type_.dtype for type_ in operation.operand_types[:2]]  # type: ignore[union-attr]
        widest = max(PLANES.keys() & dtypes, key=lambda dtype: dtype.bits)
        types = (TensorType(operation.type.shape, widest),)
        whole = bilinear(rule, replace(operation, types=types), inputs, scope)
        return convert(replace(operation, operand_types=types), (whole,), scope)
    plain = with_types(operation, plane_type)
    plane, others = plain.type.dtype, inputs[2:]
    operands: list[Sequence[Node]] = []
    for value, type_ in zip(inputs[:2], operation.operand_types[:2], strict=True):
        if isinstance(value, Complex):
            operands.append(tuple(cast(part, plane) for part in value.planes))
        else:
            dtype = type_.dtype  # type: ignore[union-attr]
            node = decode(value, dtype) if dtype in SMALL else value
            operands.append((cast(node, plane),))
    shapes = [TensorType(parts[0].shape, plane) for parts in operands]
    types = (*shapes, *operation.operand_types[2:])
    plain = replace(with_types(plain, compute_type), operand_types=types)

    def real(a: Node, b: Node) -> Node:
        return rule(plain, (a, b, *others), scope)

    match operands:
        case [[a], [c]]:
            product = real(a, c)
            return Complex(product, product.constant(0))
        case [[a], [c, d]]:
            return Complex(real(a, c), real(a, d))
        case [[a, b], [c]]:
            return Complex(real(a, c), real(b, c))
        case _:
            [a, b], [c, d] = operands
            return Complex(real(a, c) - real(b, d), real(a, d) + real(b, c))


def bitcast_convert(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node | Complex:
    """complex<f32> <-> f32[..., 2], through these to other types of the same total width."""
    (x,) = inputs
    given: TensorType = operation.operand_types[0]  # type: ignore[assignment]
    wanted = operation.type
    if BOOL in (given.dtype, wanted.dtype):
        raise UnsupportedError("booleans are stored one a byte: use convert")
    if isinstance(x, Complex):
        if wanted.dtype in PLANES:
            if wanted.dtype is given.dtype:
                return x
            raise UnsupportedError("complex numbers of different widths: bitcast their parts")
        return cast_bits(pairs(*x.planes), wanted, operation, scope)
    parts = TensorType((*wanted.shape, 2), PLANES[wanted.dtype])
    return Complex(*from_pairs(cast_bits(x, parts, operation, scope)))


def cast_bits(x: Node, wanted: TensorType, operation: Operation, scope: Scope) -> Node:
    """Bits of real elements as `wanted`, through a last axis of as many as fit the wider type."""
    given, result, wider = x.type, wanted, x.dtype.bits // wanted.dtype.bits
    if wider > 1:
        result = TensorType((*x.shape, wider), wanted.dtype)
    elif wider == 0:
        parts = wanted.dtype.bits // x.dtype.bits
        given = TensorType((*wanted.shape, parts), x.dtype)
    plain = replace(operation, operand_types=(given,), types=(result,))
    found = conversions.bitcast_convert(plain, (reshape(x, given.shape),), scope)
    return reshape(found, wanted.shape)


def multiply(x: Complex, y: Complex) -> Complex:
    """A select where one factor is a converted boolean, as among reals."""
    for mask, value in ((x, y), (y, x)):
        if is_mask(mask.re) and known_scalar(mask.im) == 0:
            return by_plane(partial(elementwise.multiply, mask.re), value)
    return x * y


RULES: dict[str, Rule] = {
    **dict.fromkeys(CONSTANTS, on_values(dense_constant, "value", SHAPE)),
    "stablehlo.iota": on_values(iota_along, SHAPE, DTYPE, "iota_dimension"),
    "stablehlo.dynamic_iota": on_values(
        lambda _, *rest: iota_along(*rest), SHAPE, DTYPE, "iota_dimension"
    ),
    "stablehlo.complex": on_values(Complex),
    "stablehlo.real": on_values(lambda x: x.re),
    "stablehlo.imag": on_values(lambda x: x.im),
    "stablehlo.multiply": on_values(multiply),
    "stablehlo.divide": on_values(operator.truediv),
    "stablehlo.abs": on_values(abs),
    "stablehlo.compare": on_values(compare, "comparison_direction"),
    "stablehlo.maximum": on_values(lambda x, y: extreme(x, y, y < x)),
    "stablehlo.minimum": on_values(lambda x, y: extreme(x, y, x < y)),
    "stablehlo.clamp": on_values(clamp),
    "stablehlo.convert": convert,
    "stablehlo.bitcast_convert": bitcast_convert,
    "stablehlo.dot_general": partial(bilinear, contraction.RULES["stablehlo.dot_general"]),
    "stablehlo.dot": partial(bilinear, contraction.RULES["stablehlo.dot"]),
    "stablehlo.einsum": partial(bilinear, einsum.einsum),
    "stablehlo.convolution": partial(bilinear, convolution.convolution),
    "chlo.ragged_dot": partial(bilinear, ragged.ragged_dot),
}
