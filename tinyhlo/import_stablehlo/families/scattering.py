"""scatter: a loop over updates in general, a block store when there is only one index vector.

    x.at[i].add(u), many i  ->  Scatter(x, u, index per axis, combiner)
    x.at[3:5].set(u)        ->  UpdateSlice(x, u, start)
    x.at[(iota+1)%n].add(u) ->  x[:1] + u[n-1:] and x[1:] + u[:n-1], side by side

XLA drops an update window that is not wholly inside; its index is then -1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tinyhlo.import_stablehlo.families.indexing import (
    Placement,
    Run,
    placement_of,
    runs_of,
    slice_at,
    store_at,
)
from tinyhlo.import_stablehlo.in_turn import scatter
from tinyhlo.import_stablehlo.lifted.lifting import as_params
from tinyhlo.import_stablehlo.operands import all_of, inside
from tinyhlo.import_stablehlo.records import Operation
from tinyhlo.import_stablehlo.walker import Rule, Scope, Value
from tinyhlo.ir.build import (
    broadcast,
    cast,
    flip,
    map_region,
    permute,
    reshape,
    scalar,
    update_slice,
    where,
)
from tinyhlo.ir.dtypes import index_dtype
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.joining import join, part

MOST_SINGLE = 8  # places that are combined with an update each by itself
LARGE = 1 << 14  # elements of an array of which
SMALL_PART = 16  # so small a part is stored into place


def scatter_op(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Value]:
    """inputs = n operands, the starts of windows, n arrays of updates. One window is stored as a
    block, a few runs of starts that are known now as one each, all others element by element."""
    count = (len(inputs) - 1) // 2
    starts = inputs[count]
    combiner = scope.graph(operation.regions[0])
    types = operation.operand_types
    values = as_params(
        operation.regions[0].types,
        (*types[:count], *types[count + 1 :]),
        (*inputs[:count], *inputs[count + 1 :]),
    )
    operands, updates = values[:count], values[count:]
    numbers = operation.attributes["scatter_dimension_numbers"]
    place = placement_of(numbers, starts, operands[0].shape, updates[0].shape)
    if 0 in place.windows:
        return operands
    if all(place.windows[axis] == 1 for axis in place.batch_axes):
        stored = store_block(place, operands, updates, combiner)
        if stored is not None:
            return stored
    stored = store_runs(place, operands, updates, combiner)
    if stored is not None:
        return stored
    unique = bool(operation.attributes.get("unique_indices"))
    places = indices(place)
    if not unique and may_overlap(place):  # one window after another, as XLA has them
        others = [axis for axis in range(len(place.windows)) if axis not in place.batch_axes]
        order = (*place.batch_axes, *others)
        updates = [permute(update, order) for update in updates]
        places = [permute(index, order) for index in places]
    return scatter(operands, updates, places, combiner, unique)


def may_overlap(place: Placement) -> bool:
    """Whether windows that begin at different places may have elements in common."""
    return any(place.size(axis) > 1 for axis in place.numbers.indexed_axes)


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


def store_runs(
    place: Placement, operands: Sequence[Node], updates: Sequence[Node], combiner: Graph
) -> list[Node] | None:
    """Windows whose places along one axis are few runs that are known now, as those of neighbours
    on a ring are: each run is combined with the block that is there."""
    axes = range(len(place.array))
    given = {axis: start for axis in axes if (start := place.start(axis)) is not None}
    if len(given) != 1 or place.numbers.batching_axes:
        return None
    ((axis, start),) = given.items()
    sizes = tuple(start.type.size if k == axis else place.size(k) for k in axes)
    others = all(n == place.array[k] for k, n in enumerate(sizes) if k != axis)
    runs = runs_of(start) if others and place.size(axis) == 1 else None
    if runs is None or sum(run.size for run in runs if abs(run.step) != 1) > MOST_SINGLE:
        return None
    runs = [each for run in runs for each in ([run] if abs(run.step) == 1 else run.one_by_one())]
    if any(run.least < 0 or run.least + run.size > place.array[axis] for run in runs):
        return None
    along = next(k for k in place.batch_axes if place.windows[k] > 1)
    order = [along if k == axis else place.window_axis.get(k) for k in axes]
    rest = [k for k in range(len(place.windows)) if k not in order]  # of extent 1
    turned = (*rest, *(k for k in order if k is not None))
    found: list[Node] | None = list(operands)
    wanted = [reshape(permute(update, turned), sizes) for update in updates]
    for together in without_overlaps(runs):
        found = found and combined_at(axis, together, found, wanted, combiner)
    return found


def without_overlaps(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """Neighbours of these runs, as many as touch no place twice, by place."""
    together: list[Run] = []
    for run in runs:
        if any(run.least < r.least + r.size and r.least < run.least + run.size for r in together):
            yield sorted(together, key=lambda r: r.least)
            together = []
        together.append(run)
    yield sorted(together, key=lambda r: r.least)


def combined_at(
    axis: int, runs: Sequence[Run], arrays: Sequence[Node], updates: Sequence[Node], combiner: Graph
) -> list[Node] | None:
    """The arrays, runs of places along an axis combined with their updates; None where the combiner
    is not elementwise. A small part of a large array is stored into place: the rest need not be
    touched."""
    shape = arrays[0].shape
    places = sum(run.size for run in runs)
    stores = arrays[0].type.size >= LARGE and places * SMALL_PART <= shape[axis]
    dtype = index_dtype(shape)
    changed: list[tuple[int, list[Node]]] = []  # first place, and what is there now
    for run in runs:
        old = [part(array, axis, run.least, run.least + run.size) for array in arrays]
        new = [part(update, axis, run.begin, run.begin + run.size) for update in updates]
        new = [flip(update, (axis,)) for update in new] if run.step < 0 else new
        both = map_region(combiner, (*old, *new), old[0].shape)
        if both is None:
            return None
        changed.append((run.least, list(both)))
        if stores:
            starts = [scalar(run.least if k == axis else 0, dtype) for k in range(len(shape))]
            arrays = [update_slice(x, u, starts) for x, u in zip(arrays, both, strict=True)]
    return list(arrays) if stores else joined_at(axis, arrays, changed)


def joined_at(
    axis: int, arrays: Sequence[Node], changed: Sequence[tuple[int, Sequence[Node]]]
) -> list[Node]:
    """All pieces side by side, which is fused with what computes and uses them."""
    pieces: list[Sequence[Node]] = []
    extent, end = arrays[0].shape[axis], 0
    for first, values in changed:
        if first > end:
            pieces.append([part(array, axis, end, first) for array in arrays])
        pieces.append(values)
        end = first + values[0].shape[axis]
    if end < extent:
        pieces.append([part(array, axis, end, extent) for array in arrays])
    return [join(list(row), axis) for row in zip(*pieces, strict=True)]


RULES: dict[str, Rule] = {"stablehlo.scatter": scatter_op}
