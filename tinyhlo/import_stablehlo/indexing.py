"""gather, dynamic_slice and dynamic_update_slice.

    dynamic_slice(x[8,4], i, j, sizes [2,4])  ->  Gather(x, clamp(i, 0, 6) + iota, iota)

Starts are clamped so that the whole slice lies inside; every index of a Gather is in bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyhlo.import_stablehlo.operands import clamp_index, index_dtype, known_array, known_scalar
from tinyhlo.import_stablehlo.records import GatherDimensions
from tinyhlo.import_stablehlo.walker import SHAPE, Rule, on_values
from tinyhlo.ir.build import (
    broadcast,
    constant,
    full,
    gather,
    iota,
    reshape,
    scalar,
    slice_,
    update_slice,
)
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.graph import Node, Shape


def gather_slices(
    operand: Node, starts: Node, sizes: Sequence[int], numbers: GatherDimensions, shape: Shape
) -> Node:
    """One index node per operand axis: batch position, or clamped start, plus slice offset."""
    if not operand.shape:
        return broadcast(operand, shape)
    if 0 in shape:
        return full(0, shape, operand.dtype)
    dtype = index_dtype(operand.shape)
    batch_axes = [axis for axis in range(len(shape)) if axis not in numbers.offset_dims]
    removed = numbers.collapsed_slice_dims + numbers.operand_batching_dims
    sliced = [axis for axis in range(len(operand.shape)) if axis not in removed]
    offset_axis = dict(zip(sliced, numbers.offset_dims, strict=True))
    batch_position = batch_axes_of_starts(numbers, starts, batch_axes)
    batching = dict(
        zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
    )
    indices: list[Node] = []
    for axis, extent in enumerate(operand.shape):
        counted = [batch_position[batching[axis]]] if axis in batching else []
        start: Node | None = None
        if axis in numbers.start_index_map and sizes[axis] < extent:
            component = numbers.start_index_map.index(axis)
            start = index_component(starts, numbers.index_vector_dim, component)
            start = broadcast(clamp_index(start, extent - sizes[axis], dtype), shape, batch_axes)
        if axis in offset_axis and sizes[axis] > 1:
            counted.append(offset_axis[axis])
        indices.append(index_of(shape, dtype, start, counted))
    return gather(operand, indices)


def batch_axes_of_starts(numbers: Any, starts: Node, batch_axes: Sequence[int]) -> dict[int, int]:
    """Axis of the start indices -> axis of the result that runs along it."""
    axes = [axis for axis in range(len(starts.shape)) if axis != numbers.index_vector_dim]
    return dict(zip(axes, batch_axes, strict=True))


def index_component(starts: Node, vector_axis: int, component: int) -> Node:
    """Component `component` of every index vector, the vector's axis removed."""
    if vector_axis == len(starts.shape):
        return starts
    known_starts = known_array(starts)
    if known_starts is not None:
        return constant(np.ascontiguousarray(known_starts.take(component, vector_axis)))
    first = [component if k == vector_axis else 0 for k in range(len(starts.shape))]
    last = [component + 1 if k == vector_axis else n for k, n in enumerate(starts.shape)]
    shape = tuple(n for k, n in enumerate(starts.shape) if k != vector_axis)
    return reshape(slice_(starts, first, last), shape)


def index_of(shape: Shape, dtype: DType, start: Node | None, counted: Sequence[int]) -> Node:
    """`start` (None: zero) plus the positions along the axes `counted`."""
    total = start
    for axis in counted:
        position = iota(shape, dtype, axis)
        total = position if total is None else total + position
    return full(0, shape, dtype) if total is None else total


def slice_at(operand: Node, starts: Sequence[Node], sizes: Sequence[int]) -> Node:
    """The block of `sizes` at the clamped scalar `starts`; a plain Slice when they are known."""
    shape = tuple(sizes)
    if shape == operand.shape:
        return operand
    limits = [extent - size for extent, size in zip(operand.shape, sizes, strict=True)]
    known = [
        0 if limit == 0 else known_scalar(start)
        for start, limit in zip(starts, limits, strict=True)
    ]
    if all(start is not None for start in known):
        first = [min(max(int(k), 0), limit) for k, limit in zip(known, limits, strict=True)]  # type: ignore[arg-type]
        return slice_(operand, first, [a + size for a, size in zip(first, sizes, strict=True)])
    dtype = index_dtype(operand.shape)
    indices: list[Node] = []
    for axis, (start, limit) in enumerate(zip(starts, limits, strict=True)):
        first = broadcast(clamp_index(start, limit, dtype), shape) if limit else None
        indices.append(index_of(shape, dtype, first, [axis] if sizes[axis] > 1 else []))
    return gather(operand, indices)


def store_at(operand: Node, update: Node, starts: Sequence[Node]) -> Node:
    """`operand` with the block `update` stored at the clamped scalar `starts`."""
    if update.shape == operand.shape:
        return update
    if 0 in update.shape:
        return operand
    dtype = index_dtype(operand.shape)
    clamped = [
        clamp_index(start, extent - size, dtype) if extent > size else scalar(0, dtype)
        for start, extent, size in zip(starts, operand.shape, update.shape, strict=True)
    ]
    return update_slice(operand, update, clamped)


RULES: dict[str, Rule] = {
    "stablehlo.gather": on_values(gather_slices, "slice_sizes", "dimension_numbers", SHAPE),
    "stablehlo.dynamic_slice": on_values(
        lambda operand, *rest: slice_at(operand, rest[:-1], rest[-1]), "slice_sizes"
    ),
    "stablehlo.dynamic_update_slice": on_values(
        lambda operand, update, *starts: store_at(operand, update, starts)
    ),
}
