"""dot_general as views, a multiply and a sum; there is no matmul primitive.

    dot_general(x[m,k], w[k,n])  ->  Reduce(ADD, expand(x)[m,n,k] * expand(w)[m,n,k], k)

Operands are cast to the type that accumulates (f32 for halves) before the multiply, so a product
of halves is exact and a sum of them rounds once. How exact a product of f32 is: `precision.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyhlo.import_stablehlo.operands import accumulator
from tinyhlo.import_stablehlo.precision import factors_of, multiplication_of
from tinyhlo.import_stablehlo.records import DotDimensions, Operation
from tinyhlo.import_stablehlo.walker import Rule, Scope
from tinyhlo.ir.build import broadcast, cast, elementwise, permute, reduce
from tinyhlo.ir.dtypes import BOOL, F32, F64, DType
from tinyhlo.ir.graph import Node, Shape
from tinyhlo.ir.ops import Op


def sum_of_products(
    lhs: Node,
    lhs_axes: Sequence[int],
    rhs: Node,
    rhs_axes: Sequence[int],
    shape: Shape,
    kept: int,
    result: DType,
    multiply: Op = Op.MUL,
) -> Node:
    """Multiply both operands, their axes placed at `lhs_axes` and `rhs_axes` of `shape`, and sum
    over the axes from `kept` on; `multiply` is what does it, of f32."""
    wide = accumulating_type(lhs.dtype, rhs.dtype, result)
    left = broadcast(cast(lhs, wide), shape, lhs_axes)
    right = broadcast(cast(rhs, wide), shape, rhs_axes)
    if wide is not F32:
        multiply = Op.AND if wide is BOOL else Op.MUL
    product = elementwise(multiply, left, right)
    add = Op.OR if wide is BOOL else Op.ADD
    return cast(reduce(add, product, range(kept, len(shape))), result)


def accumulating_type(lhs: DType, rhs: DType, result: DType) -> DType:
    """Floats multiply and add in f32 or f64, whatever the result is, integers in its type."""
    if lhs.is_float or rhs.is_float:
        return F64 if F64 in (lhs, rhs, result) else F32
    return accumulator(result)


def dot_general(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    lhs, rhs = inputs
    numbers: DotDimensions = operation.attributes["dot_dimension_numbers"]
    return contracted(operation, lhs, rhs, numbers, scope)


def contracted(
    operation: Operation, lhs: Node, rhs: Node, numbers: DotDimensions, scope: Scope
) -> Node:
    """Result axes: batch, free axes of lhs, free axes of rhs; then the contracted ones."""
    lhs_batch, rhs_batch = numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions
    lhs_inner, rhs_inner = numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions
    rows = free_axes(lhs, lhs_batch + lhs_inner)
    columns = free_axes(rhs, rhs_batch + rhs_inner)
    shape = (
        *(lhs.shape[axis] for axis in (*lhs_batch, *rows)),
        *(rhs.shape[axis] for axis in columns),
        *(lhs.shape[axis] for axis in lhs_inner),
    )
    batch, kept = len(lhs_batch), len(shape) - len(lhs_inner)
    inner = range(kept, len(shape))
    lhs_places = [*range(batch), *range(batch, batch + len(rows)), *inner]
    rhs_places = [*range(batch), *range(batch + len(rows), kept), *inner]
    multiply = multiplication_of(operation, lhs, rhs, scope.walker.rounded)
    lhs, rhs = factors_of(operation, lhs, rhs, scope.walker.rounded)
    left = permute(lhs, (*lhs_batch, *rows, *lhs_inner))
    right = permute(rhs, (*rhs_batch, *columns, *rhs_inner))
    result = operation.type.dtype
    return sum_of_products(left, lhs_places, right, rhs_places, shape, kept, result, multiply)


def dot(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    """The deprecated `dot`: last axis of the left with the first of the right."""
    lhs, rhs = inputs
    numbers = DotDimensions((), (), (len(lhs.shape) - 1,), (0,))
    return contracted(operation, lhs, rhs, numbers, scope)


def free_axes(node: Node, used: Sequence[int]) -> list[int]:
    return [axis for axis in range(len(node.shape)) if axis not in used]


RULES: dict[str, Rule] = {
    "stablehlo.dot_general": dot_general,
    "stablehlo.dot": dot,
}
