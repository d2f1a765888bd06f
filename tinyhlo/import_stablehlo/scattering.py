"""scatter: a loop over updates in general, a block store when there is only one index vector.

    x.at[i].add(u), many i  ->  Scatter(x, u, index per axis, combiner)
    x.at[3:5].set(u)        ->  UpdateSlice(x, u, start)

XLA drops an update window that is not wholly inside; its index is then -1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tinyhlo.import_stablehlo.indexing import (
    batch_axes_of_starts,
    index_component,
    index_of,
    slice_at,
    store_at,
)
from tinyhlo.import_stablehlo.operands import (
    all_of,
    index_dtype,
    inside,
    map_region,
)
from tinyhlo.import_stablehlo.records import Operation, ScatterDimensions
from tinyhlo.import_stablehlo.walker import Rule, Scope, Value
from tinyhlo.ir.build import broadcast, cast, reshape, scalar, scatter, where
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.graph import Graph, Node, Shape


def scatter_op(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Value]:
    count = (len(inputs) - 1) // 2
    operands, starts, updates = inputs[:count], inputs[count], inputs[count + 1 :]
    combiner = scope.graph(operation.regions[0])
    numbers = operation.attributes["scatter_dimension_numbers"]
    place = placement_of(numbers, starts, operands[0].shape, updates[0].shape)
    if 0 in place.update:
        return operands
    if place.is_single:
        stored = place.store_block(operands, updates, combiner)
        if stored is not None:
            return stored
    unique = bool(operation.attributes.get("unique_indices"))
    return scatter(operands, updates, place.indices(), combiner, unique)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where each update element goes. `operand` and `update` are shapes; `batch_axes` are the axes
    of the updates that count windows; `window_axis` maps an operand axis to the updates' axis that
    runs along it within a window."""

    numbers: ScatterDimensions
    starts: Node
    operand: Shape
    update: Shape
    batch_axes: tuple[int, ...]
    window_axis: Mapping[int, int]

    @property
    def dtype(self) -> DType:
        return index_dtype(self.operand)

    @property
    def is_single(self) -> bool:
        """Whether there is just one window."""
        return all(self.update[axis] == 1 for axis in self.batch_axes)

    def window_size(self, axis: int) -> int:
        """Extent of an update window along an operand axis."""
        return self.update[self.window_axis[axis]] if axis in self.window_axis else 1

    def start(self, axis: int) -> Node | None:
        """The start indices of an operand axis (shape: the batch), None where none are given."""
        if axis not in self.numbers.scattered_dims_to_operand_dims:
            return None
        component = self.numbers.scattered_dims_to_operand_dims.index(axis)
        return index_component(self.starts, self.numbers.index_vector_dim, component)

    def whole_window_inside(self) -> Node | None:
        """Per index vector, whether its window lies inside; None when it always does."""
        tests: list[Node | None] = []
        for axis, extent in enumerate(self.operand):
            start = self.start(axis)
            if start is not None:
                tests.append(inside(start, extent - self.window_size(axis)))
        return all_of(tests)

    def indices(self) -> list[Node]:
        """An index node per operand axis, in the updates' shape."""
        numbers = self.numbers
        position = batch_axes_of_starts(numbers, self.starts, self.batch_axes)
        batching = dict(
            zip(numbers.input_batching_dims, numbers.scatter_indices_batching_dims, strict=True)
        )
        valid = self.whole_window_inside()
        indices: list[Node] = []
        for axis in range(len(self.operand)):
            counted = [position[batching[axis]]] if axis in batching else []
            start = self.start(axis)
            if start is not None:
                start = broadcast(cast(start, self.dtype), self.update, self.batch_axes)
            if self.window_size(axis) > 1:
                counted.append(self.window_axis[axis])
            index = index_of(self.update, self.dtype, start, counted)
            if valid is not None and start is not None:
                kept = broadcast(valid, self.update, self.batch_axes)
                index = where(kept, index, -1)
            indices.append(index)
        return indices

    def store_block(
        self, operands: Sequence[Node], updates: Sequence[Node], combiner: Graph
    ) -> list[Node] | None:
        """A single window: combine it with the block that is there and store it back."""
        block = tuple(self.window_size(axis) for axis in range(len(self.operand)))
        if any(size > extent for size, extent in zip(block, self.operand, strict=True)):
            return list(operands)
        starts: list[Node] = []
        for axis in range(len(self.operand)):
            start = self.start(axis)
            starts.append(scalar(0, self.dtype) if start is None else reshape(start, ()))
        current = [slice_at(operand, starts, block) for operand in operands]
        wanted = [reshape(update, block) for update in updates]
        combined = map_region(combiner, (*current, *wanted), block)
        if combined is None:
            return None
        valid = self.whole_window_inside()
        if valid is not None:
            inside_block = broadcast(reshape(valid, ()), block)
            combined = tuple(
                where(inside_block, new, old) for new, old in zip(combined, current, strict=True)
            )
        return [
            store_at(operand, new, starts) for operand, new in zip(operands, combined, strict=True)
        ]


def placement_of(
    numbers: ScatterDimensions, starts: Node, operand: Shape, update: Shape
) -> Placement:
    """Read the dimension numbers of a scatter."""
    batch_axes = tuple(k for k in range(len(update)) if k not in numbers.update_window_dims)
    removed = numbers.inserted_window_dims + numbers.input_batching_dims
    windowed = [axis for axis in range(len(operand)) if axis not in removed]
    window_axis = dict(zip(windowed, numbers.update_window_dims, strict=True))
    return Placement(numbers, starts, operand, update, batch_axes, window_axis)


RULES: dict[str, Rule] = {"stablehlo.scatter": scatter_op}
