"""ragged_dot: a product per group of rows, as a loop over blocks of rows.

    ragged_dot(x[m, k], w[g, k, n], sizes[g])  ->  for each block of rows of one group:
                                                       y[rows] = x[rows] @ w[group]

The work is that of one product with `m` rows, rounded up to whole blocks in each group, where the
masked form (a product with every group) does `g` times as much. Where the ragged axis is summed
over instead, `sum over rows of group: x[k, m] y[k, n]`, each block adds to its group's result.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tinyhlo.import_stablehlo.families.contraction import (
    accumulating_type,
    free_axes,
    sum_of_products,
)
from tinyhlo.import_stablehlo.families.indexing import slice_at, store_at
from tinyhlo.import_stablehlo.records import Operation, RaggedDotDimensions
from tinyhlo.import_stablehlo.walker import Rule, Scope, UnsupportedError
from tinyhlo.ir.build import (
    broadcast,
    cast,
    full,
    iota,
    loop,
    param,
    permute,
    reduce,
    reshape,
    scalar,
    scan,
    where,
)
from tinyhlo.ir.dtypes import I32, DType
from tinyhlo.ir.graph import Graph, Node, TensorType
from tinyhlo.ir.joining import padded
from tinyhlo.ir.ops import Op
from tinyhlo.numbers import ceil_div
from tinyhlo.records import dataclass

BLOCK = 64  # rows: enough for full register tiles, few enough that little is padding


@dataclass(frozen=True, slots=True)
class Blocks:
    """For each block of rows: its group, its first row, and the end of its group's rows; and how
    many blocks there are."""

    group: Node
    row: Node
    end: Node
    count: Node


def blocks_of(sizes: Node, rows: int) -> Blocks:
    """Cut each group's rows into blocks; what sizes say beyond the last row counts for nothing."""
    groups = sizes.shape[0]
    most = ceil_div(rows, BLOCK) + groups
    sizes = cast(sizes, I32)
    totals = scan(Op.ADD, sizes, 0, False)
    first, ends = (totals - sizes).at_most(rows), totals.at_most(rows)
    tiles = (ends - first + (BLOCK - 1)) / BLOCK
    tile_ends = scan(Op.ADD, tiles, 0, False)

    shape = (most, groups)
    tile = iota(shape, I32, 0)
    after = broadcast(tile_ends, shape, (1,)) <= tile
    group = reduce(Op.ADD, cast(after, I32), (1,))
    is_own = broadcast(group, shape, (0,)).equals(iota(shape, I32, 1))

    def of_group(values: Node) -> Node:
        spread = broadcast(values, shape, (1,))
        return reduce(Op.ADD, where(is_own, spread, 0), (1,))

    tile_first = tile_ends - tiles
    within = iota((most,), I32, 0) - of_group(tile_first)
    row = of_group(first) + within * BLOCK
    return Blocks(group, row, of_group(ends), element(tile_ends, groups - 1))


def element(values: Node, position: int | Node) -> Node:
    """One element of a vector."""
    start = scalar(position, I32) if isinstance(position, int) else position
    return reshape(slice_at(values, [start], (1,)), ())


def numbers_of(operation: Operation) -> RaggedDotDimensions:
    """In a portable artifact the op is a composite, whose numbers are six arrays."""
    attributes = operation.attributes
    given = attributes.get("composite_attributes", attributes)["ragged_dot_dimension_numbers"]
    if isinstance(given, RaggedDotDimensions):
        return given
    return RaggedDotDimensions(*(tuple(dense.array.tolist()) for dense in given))


def is_batched(operation: Operation) -> bool:
    """Whether there are batch axes, or more than one vector of sizes."""
    sizes: TensorType = operation.operand_types[2]  # type: ignore[assignment]
    return len(sizes.shape) > 1 or bool(numbers_of(operation).lhs_batching_dimensions)


def ragged_dot(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    if is_batched(operation):
        raise UnsupportedError("of complex numbers and with batch axes: write one for each batch")
    numbers = numbers_of(operation)
    lhs, rhs, sizes = inputs
    if not sizes.shape[0]:
        return full(0, operation.type.shape, operation.type.dtype)
    summed = numbers.lhs_ragged_dimensions[0] in numbers.lhs_contracting_dimensions
    wide = accumulating_type(lhs.dtype, rhs.dtype, operation.type.dtype)
    by_group = sums_by_group if summed else products_by_group
    return cast(by_group(lhs, rhs, sizes, numbers, wide), operation.type.dtype)


def products_by_group(
    lhs: Node, rhs: Node, sizes: Node, numbers: RaggedDotDimensions, wide: DType
) -> Node:
    """Each row times the matrix of its group; rows of no group give zeros."""
    (ragged,), (group_axis,) = numbers.lhs_ragged_dimensions, numbers.rhs_group_dimensions
    inner, inner_right = numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions
    others = [axis for axis in free_axes(lhs, inner) if axis != ragged]
    columns = [axis for axis in free_axes(rhs, inner_right) if axis != group_axis]
    x = joined(lhs, (ragged,), others, inner)
    w = joined(rhs, (group_axis,), inner_right, columns)
    rows, each, depth = x.shape

    def step(out: Node, x: Node, w: Node, at: tuple[Node, Node, Node]) -> Node:
        group, row, end = at
        matrix = reshape(taken(w, group, 1), w.shape[1:])
        shape = (BLOCK, each, w.shape[2], depth)
        y = sum_of_products(taken(x, row, BLOCK), (0, 1, 3), matrix, (3, 2), shape, 3, wide)
        return put(out, where(rows_before(end, row, shape[:3]), y, taken(out, row, BLOCK)), row)

    start = full(0, (rows + BLOCK, each, w.shape[2]), wide)
    found = over_blocks(blocks_of(sizes, rows), start, with_rows_after(x), w, step)
    kept = taken(found, scalar(0, I32), rows)
    order = [ragged, *others]
    free = (*(lhs.shape[axis] for axis in order), *(rhs.shape[axis] for axis in columns))
    places = [order.index(axis) for axis in sorted(order)]
    return permute(reshape(kept, free), (*places, *range(len(places), len(free))))


def sums_by_group(
    lhs: Node, rhs: Node, sizes: Node, numbers: RaggedDotDimensions, wide: DType
) -> Node:
    """For each group, the product summed over its part of the ragged axis."""
    (ragged,) = numbers.lhs_ragged_dimensions
    inner = dict(
        zip(numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions, strict=True)
    )
    ragged_right = inner.pop(ragged)
    rows_free = free_axes(lhs, (ragged, *inner))
    columns = free_axes(rhs, (ragged_right, *inner.values()))
    x = joined(lhs, (ragged,), tuple(inner), rows_free)
    w = joined(rhs, (ragged_right,), tuple(inner.values()), columns)

    def step(out: Node, x: Node, w: Node, at: tuple[Node, Node, Node]) -> Node:
        group, row, end = at
        left, right = (taken(node, row, BLOCK) for node in (x, w))
        left, right = (where(rows_before(end, row, node.shape), node, 0) for node in (left, right))
        shape = (x.shape[2], w.shape[2], BLOCK, x.shape[1])
        y = sum_of_products(left, (2, 3, 0), right, (2, 3, 1), shape, 2, wide)
        return put(out, taken(out, group, 1) + reshape(y, (1, *y.shape)), group)

    start = full(0, (sizes.shape[0], x.shape[2], w.shape[2]), wide)
    blocks = blocks_of(sizes, x.shape[0])
    found = over_blocks(blocks, start, with_rows_after(x), with_rows_after(w), step)
    free = (*(lhs.shape[k] for k in rows_free), *(rhs.shape[k] for k in columns))
    return reshape(found, (sizes.shape[0], *free))


def joined(node: Node, *groups: Sequence[int]) -> Node:
    """Each group of axes as one."""
    shape = tuple(prod(node.shape[axis] for axis in group) for group in groups)
    return reshape(permute(node, [axis for group in groups for axis in group]), shape)


def taken(node: Node, first: Node, count: int) -> Node:
    """So many of the leading axis, from `first` on."""
    zero = scalar(0, I32)
    return slice_at(node, [first, zero, zero], (count, *node.shape[1:]))


def put(node: Node, block: Node, first: Node) -> Node:
    """`node` with a block in the place of what `taken` gives."""
    zero = scalar(0, I32)
    return store_at(node, block, [first, zero, zero])


def rows_before(end: Node, row: Node, shape: Sequence[int]) -> Node:
    """Whether each row of a block that starts at `row` comes before `end`."""
    shape = tuple(shape)
    position = broadcast(row, shape) + iota(shape, I32, 0)
    return position < broadcast(end, shape)


def with_rows_after(node: Node) -> Node:
    """A block of zero rows at the end, so that the last block lies inside."""
    return padded(node, 0, 0, BLOCK)


def over_blocks(blocks: Blocks, start: Node, x: Node, w: Node, step: Any) -> Node:
    """`out = step(out, x, w, (group, row, end))` for every block, from `start` on."""
    tables = (blocks.group, blocks.row, blocks.end)
    initial = (scalar(0, I32), start, x, w, *tables, blocks.count)
    types = tuple(node.type for node in initial)
    state = [param(k, type_.shape, type_.dtype) for k, type_ in enumerate(types)]
    number, out, left, right, *places, count = state
    condition = Graph(types, (number < count,))
    at = tuple(element(table, number) for table in places)
    body = Graph(types, (number + 1, step(out, left, right, at), *state[2:]))
    return loop(initial, condition, body, None)[1]


RULES: dict[str, Rule] = {"chlo.ragged_dot": ragged_dot}
