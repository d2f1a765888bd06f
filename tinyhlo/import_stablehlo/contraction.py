"""dot_general as views, a multiply and a sum; there is no matmul primitive.

    dot_general(x[m,k], w[k,n])  ->  Reduce(ADD, expand(x)[m,n,k] * expand(w)[m,n,k], k)

Operands are cast to the type that accumulates (f32 for halves) before the multiply, so a product
of halves is exact and a sum of them rounds once.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyhlo.import_stablehlo.operands import accumulator
from tinyhlo.import_stablehlo.records import DotDimensions
from tinyhlo.import_stablehlo.walker import DTYPE, Rule, on_values
from tinyhlo.ir.build import broadcast, cast, elementwise, permute, reduce
from tinyhlo.ir.dtypes import BOOL, F64, DType
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
) -> Node:
    """Multiply both operands, their axes placed at `lhs_axes` and `rhs_axes` of `shape`, and sum
    over the axes from `kept` on."""
    wide = accumulating_type(lhs.dtype, rhs.dtype, result)
    left = broadcast(cast(lhs, wide), shape, lhs_axes)
    right = broadcast(cast(rhs, wide), shape, rhs_axes)
    multiply, add = (Op.AND, Op.OR) if wide is BOOL else (Op.MUL, Op.ADD)
    product = elementwise(multiply, left, right)
    return cast(reduce(add, product, range(kept, len(shape))), result)


def accumulating_type(lhs: DType, rhs: DType, result: DType) -> DType:
    """Integers multiply and add in the result's type, floats in f32 or f64."""
    if F64 in (lhs, rhs) and result.is_float:
        return F64
    return accumulator(result)


def dot_general(lhs: Node, rhs: Node, numbers: DotDimensions, result: DType) -> Node:
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
    left = permute(lhs, (*lhs_batch, *rows, *lhs_inner))
    right = permute(rhs, (*rhs_batch, *columns, *rhs_inner))
    return sum_of_products(left, lhs_places, right, rhs_places, shape, kept, result)


def dot(lhs: Node, rhs: Node, result: DType) -> Node:
    """The deprecated `dot`: last axis of the left with the first of the right."""
    return dot_general(lhs, rhs, DotDimensions((), (), (len(lhs.shape) - 1,), (0,)), result)


def free_axes(node: Node, used: Sequence[int]) -> list[int]:
    return [axis for axis in range(len(node.shape)) if axis not in used]


RULES: dict[str, Rule] = {
    "stablehlo.dot_general": on_values(dot_general, "dot_dimension_numbers", DTYPE),
    "stablehlo.dot": on_values(dot, DTYPE),
}
