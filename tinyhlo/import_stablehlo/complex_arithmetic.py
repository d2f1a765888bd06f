"""Complex numbers: constants, parts, arithmetic, comparisons, products.

    multiply(x, y)  ->  (x.re*y.re - x.im*y.im, x.re*y.im + x.im*y.re)

Functions (exp, tanh, ...) are in `complex_functions.py`; what works plane by plane in `lifting.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tinyhlo.import_stablehlo import contraction, conversions, convolution
from tinyhlo.import_stablehlo.lifting import Complex, plane_type, with_types
from tinyhlo.import_stablehlo.movement import elements_of, repeated
from tinyhlo.import_stablehlo.operands import copy_sign, is_infinite, is_nan, like
from tinyhlo.import_stablehlo.planes import from_pairs, pairs
from tinyhlo.import_stablehlo.records import CONSTANTS, Operation
from tinyhlo.import_stablehlo.small_types import compute_type, decode
from tinyhlo.import_stablehlo.walker import (
    DTYPE,
    SHAPE,
    Rule,
    Scope,
    UnsupportedError,
    on_values,
)
from tinyhlo.ir.build import (
    cast,
    elementwise,
    full,
    iota,
    reduce,
    reshape,
    sqrt,
    where,
)
from tinyhlo.ir.dtypes import BOOL, DType
from tinyhlo.ir.elements import PLANES, SMALL
from tinyhlo.ir.graph import Node, Reduce, Shape, TensorType
from tinyhlo.ir.ops import Op


def quotient(x: Complex, y: Complex) -> Complex:
    """Smith's method ("Algorithm 116: complex division", 1962), which does not overflow on the
    way; infinities and zeros as in C99, Annex G.5.1."""
    c, d = y.planes
    is_wide = abs(d) <= abs(c)
    long, short = where(is_wide, c, d), where(is_wide, d, c)
    ratio = short / long
    scale = long + short * ratio
    # x / y for |c| >= |d|; the other case is the same with both parts of x exchanged
    first, second = where(is_wide, x.re, x.im), where(is_wide, x.im, x.re)
    re = (first + second * ratio) / scale
    im = (second - first * ratio) / scale
    im = where(is_wide, im, -im)
    return infinite_quotient(x, y, Complex(re, im))


def infinite_quotient(x: Complex, y: Complex, found: Complex) -> Complex:
    """Repair quotients that came out as NaN although a limit exists."""
    (a, b), (c, d) = x.planes, y.planes

    def finite(z: Complex) -> Node:
        return ~(has_nan(z) | infinite(z))

    def infinite(z: Complex) -> Node:
        return is_infinite(z.re) | is_infinite(z.im)

    def unit(part: Node) -> Node:
        """+-1 for infinities, +-0 for the rest."""
        return copy_sign(where(is_infinite(part), like(1, part), like(0, part)), part)

    lost = is_nan(found.re) & is_nan(found.im)
    by_zero = c.equals(0) & d.equals(0) & ~(is_nan(a) & is_nan(b))
    infinity = copy_sign(like(np.inf, a), c)
    over_finite = infinite(x) & finite(y)
    p, q = unit(a), unit(b)
    under_infinite = infinite(y) & finite(x)
    r, s = unit(c), unit(d)
    cases = (
        (under_infinite, 0 * (a * r + b * s), 0 * (b * r - a * s)),
        (over_finite, np.inf * (p * c + q * d), np.inf * (q * c - p * d)),
        (by_zero, infinity * a, infinity * b),
    )
    re, im = found.planes
    for test, real, imaginary in cases:
        test = lost & test
        re, im = where(test, real, re), where(test, imaginary, im)
    return Complex(re, im)


def magnitude(x: Complex) -> Node:
    """hypot(re, im), scaled so that squares neither overflow nor vanish."""
    a, b = abs(x.re), abs(x.im)
    large, small = elementwise(Op.MAX, a, b), elementwise(Op.MIN, a, b)
    ratio = small / large
    root = large * sqrt(1 + ratio * ratio)
    root = where(small.equals(0), large, root)
    # equal parts: the ratio of infinities is NaN, and the root of two is better rounded
    root = where(a.equals(b), np.sqrt(2.0) * a, root)
    return where(is_infinite(a) | is_infinite(b), np.inf, root)


def equal(x: Complex, y: Complex) -> Node:
    return x.re.equals(y.re) & x.im.equals(y.im)


def before(x: Complex, y: Complex) -> Node:
    """x < y, real parts first."""
    same = x.re.equals(y.re) & (x.im < y.im)
    return (x.re < y.re) | same


def choose(test: Node, x: Complex, y: Complex) -> Complex:
    return Complex(where(test, x.re, y.re), where(test, x.im, y.im))


def has_nan(x: Complex) -> Node:
    return is_nan(x.re) | is_nan(x.im)


# --- rules -------------------------------------------------------------------------------------


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
        if target in SMALL:
            raise UnsupportedError("convert the real part instead")
        plain = with_types(operation, plane_type)
        return conversions.convert(plain, (x.re,), scope)  # type: ignore[return-value]
    plane = PLANES[target]
    if isinstance(x, Complex):
        return Complex(cast(x.re, plane), cast(x.im, plane))
    if given.dtype in SMALL:
        x = decode(x, given.dtype)
    return Complex(cast(x, plane), full(0, x.shape, plane))


def compare(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    x, y = inputs
    match operation.attributes["comparison_direction"]:
        case "EQ":
            return equal(x, y)
        case "NE":
            return ~equal(x, y)
        case direction:
            raise UnsupportedError(f"complex numbers have no order ({direction}): compare parts")


def extreme(larger: bool) -> Rule:
    """Maximum or minimum in lexicographic order; a NaN wins."""

    def rule(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Complex:
        x, y = inputs
        first = before(y, x) if larger else before(x, y)
        return choose(first | has_nan(x) | equal(x, y), x, y)

    return rule


def bilinear(rule: Any, operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Complex:
    """A sum of products: four real ones, or two where an operand is real."""
    plain = with_types(operation, plane_type)
    plane = plain.type.dtype
    operands: list[Sequence[Node]] = []
    for value, type_ in zip(inputs, operation.operand_types, strict=True):
        if isinstance(value, Complex):
            operands.append(tuple(cast(part, plane) for part in value.planes))
        else:
            dtype = type_.dtype  # type: ignore[union-attr]
            node = decode(value, dtype) if dtype in SMALL else value
            operands.append((cast(node, plane),))
    shapes = [TensorType(parts[0].shape, plane) for parts in operands]
    plain = replace(with_types(plain, compute_type), operand_types=tuple(shapes))

    def real(a: Node, b: Node) -> Node:
        return rule(plain, (a, b), scope)

    match operands:
        case [[a], [c, d]]:
            return Complex(real(a, c), real(a, d))
        case [[a, b], [c]]:
            return Complex(real(a, c), real(b, c))
        case [[a, b], [c, d]]:
            return Complex(
                together(Op.SUB, real(a, c), real(b, d)), together(Op.ADD, real(a, d), real(b, c))
            )
        case _:
            raise UnsupportedError("a complex product of real operands: convert one to complex")


FEW_PRODUCTS = 1 << 14  # below, one pass over both operands beats two tiled products


def together(op: Op, left: Node, right: Node) -> Node:
    """The sum or difference of two sums of products; of small ones, in one sum."""
    if isinstance(left, Reduce) and isinstance(right, Reduce) and left.axes == right.axes:
        (a,), (b,) = left.inputs, right.inputs
        if a.type == b.type and a.type.size <= FEW_PRODUCTS:
            return reduce(left.op, elementwise(op, a, b), left.axes)
    return elementwise(op, left, right)


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


RULES: dict[str, Rule] = {
    **dict.fromkeys(CONSTANTS, on_values(dense_constant, "value", SHAPE)),
    "stablehlo.iota": on_values(iota_along, SHAPE, DTYPE, "iota_dimension"),
    "stablehlo.complex": on_values(Complex),
    "stablehlo.real": on_values(lambda x: x.re),
    "stablehlo.imag": on_values(lambda x: x.im),
    "stablehlo.multiply": on_values(operator.mul),
    "stablehlo.divide": on_values(quotient),
    "stablehlo.abs": on_values(magnitude),
    "stablehlo.compare": compare,
    "stablehlo.maximum": extreme(larger=True),
    "stablehlo.minimum": extreme(larger=False),
    "stablehlo.convert": convert,
    "stablehlo.bitcast_convert": bitcast_convert,
    "stablehlo.dot_general": partial(bilinear, contraction.RULES["stablehlo.dot_general"]),
    "stablehlo.convolution": partial(bilinear, convolution.convolution),
}
