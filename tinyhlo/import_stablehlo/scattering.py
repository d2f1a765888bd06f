"""scatter: a loop over updates in general, a block store when there is only one index vector.

    x.at[i].add(u), many i  ->  Scatter(x, u, index per axis, combiner)
    x.at[3:5].set(u)        ->  UpdateSlice(x, u, start)

XLA drops an update window that is not wholly inside; its index is then -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyhlo.import_stablehlo.indexing import Placement, placement_of, slice_at, store_at
from tinyhlo.import_stablehlo.operands import all_of, inside
from tinyhlo.import_stablehlo.records import Operation
from tinyhlo.import_stablehlo.walker import Rule, Scope, Value
from tinyhlo.ir.build import broadcast, cast, map_region, reshape, scalar, scatter, where
from tinyhlo.ir.graph import Graph, Node


def scatter_op(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Value]:
    count = (len(inputs) - 1) // 2
    operands, starts, updates = inputs[:count], inputs[count], inputs[count + 1 :]
    combiner = scope.graph(operation.regions[0])
    numbers = operation.attributes["scatter_dimension_numbers"]
    place = placement_of(numbers, starts, operands[0].shape, updates[0].shape)
    if 0 in place.windows:
        return operands
    if all(place.windows[axis] == 1 for axis in place.batch_axes):
        stored = store_block(place, operands, updates, combiner)
        if stored is not None:
            return stored
    unique = bool(operation.attributes.get("unique_indices"))
    return scatter(operands, updates, indices(place), combiner, unique)


def indices(place: Placement) -> list[Node]:
    """An index per axis of the operands, -1 in windows that are dropped."""
    valid = None if drops_itself(place) else whole_window_inside(place)
    found: list[Node] = []
    for axis in range(len(place.array)):
        start = place.start(axis)
        index = place.index(axis, None if start is None else cast(start, place.dtype))
        if valid is not None and start is not None:
            index = where(place.spread(valid), index, -1)
        found.append(index)
    return found


def drops_itself(place: Placement) -> bool:
    """Whether a scatter sees by its indices which windows do not lie inside: those of one element
    along every axis that has a start, which no conversion brings inside."""
    single = all(place.size(axis) == 1 for axis in place.numbers.indexed_axes)
    return single and place.starts.dtype.bits <= place.dtype.bits


def whole_window_inside(place: Placement) -> Node | None:
    """Per index vector, whether its window lies inside; None when it always does."""
    starts = [place.start(axis) for axis in range(len(place.array))]
    return all_of(
        [
            inside(start, extent - place.size(axis))
            for axis, (start, extent) in enumerate(zip(starts, place.array, strict=True))
            if start is not None
        ]
    )


def store_block(
    place: Placement, operands: Sequence[Node], updates: Sequence[Node], combiner: Graph
) -> list[Node] | None:
    """A single window: combine it with the block that is there and store it back."""
    axes = range(len(place.array))
    block = tuple(map(place.size, axes))
    if any(size > extent for size, extent in zip(block, place.array, strict=True)):
        return list(operands)
    given = map(place.start, axes)
    starts = [scalar(0, place.dtype) if s is None else reshape(s, ()) for s in given]
    current = [slice_at(operand, starts, block) for operand in operands]
    wanted = [reshape(update, block) for update in updates]
    combined = map_region(combiner, (*current, *wanted), block)
    if combined is None:
        return None
    valid = whole_window_inside(place)
    if valid is not None:
        kept = broadcast(reshape(valid, ()), block)
        combined = [where(kept, new, old) for new, old in zip(combined, current, strict=True)]
    return [store_at(old, new, starts) for old, new in zip(operands, combined, strict=True)]


RULES: dict[str, Rule] = {"stablehlo.scatter": scatter_op}
