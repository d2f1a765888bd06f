"""Regions of scalars applied to whole arrays; those that are not elementwise by one element after
another.

    mapped(x -> WHILE(...), [x[3]], [3])         ->  LOOP(k < 3; y[k] = region(x[k]))
    reduce_arrays([x[3]], ..., a, b -> WHILE)    ->  LOOP(k < 3; a = region(a, x[k]))

Such are loops that run for as long as the elements say, as the incomplete gamma functions of
`jax.scipy` do, and large ones (`ir/scalars.py` says which are not).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tinyhlo.import_stablehlo.operands import all_of, inside
from tinyhlo.ir import build
from tinyhlo.ir.build import branch, full, gather, iota, map_region, param, reshape, where
from tinyhlo.ir.dtypes import I32, index_dtype
from tinyhlo.ir.graph import Graph, Node, Shape
from tinyhlo.ir.joining import join, part
from tinyhlo.ir.scalars import is_scalar
from tinyhlo.ir.simplify import inline


def mapped(region: Graph, inputs: Sequence[Node], shape: Shape) -> Sequence[Node]:
    """The results of a region for each place of arrays of `shape`."""
    found = map_region(region, inputs, shape)
    if found is not None:
        return found
    types = tuple(result.type for result in region.results)
    params = [param(k + len(types), (), t.dtype) for k, t in enumerate(region.params)]
    results = inline(region.results, params)
    storing = Graph(types + region.params, results, (), region.locations)
    size = prod(shape)
    flat = [reshape(x, (size,)) for x in inputs]
    nothing = [full(0, (size,), type_.dtype) for type_ in types]
    every = iota((size,), index_dtype([size]), 0)
    return [reshape(x, shape) for x in combined_in_turn(nothing, flat, every, storing)]


def fold(
    sources: Sequence[Node], initials: Sequence[Node], axes: Sequence[int], combiner: Graph
) -> Sequence[Node]:
    """The reduction over `axes` by any combiner."""
    if is_scalar(combiner):
        return build.multi_reduce(sources, initials, axes, combiner)
    kept = [axis for axis in range(len(sources[0].shape)) if axis not in axes]
    shape = tuple(sources[0].shape[axis] for axis in kept)
    size, total = prod(shape), sources[0].type.size
    rows = [reshape(build.permute(x, [*kept, *axes]), (total,)) for x in sources]
    starts = [build.broadcast(initial, (size,)) for initial in initials]
    dtype = index_dtype([total])
    row = reshape(iota((size, total // size if size else 0), dtype, 0), (total,))
    return [reshape(x, shape) for x in combined_in_turn(starts, rows, row, combiner)]


def scatter(
    operands: Sequence[Node],
    updates: Sequence[Node],
    indices: Sequence[Node],
    combiner: Graph,
    unique: bool,
) -> Sequence[Node]:
    """As `build.scatter`, by any combiner."""
    if is_scalar(combiner):
        return build.scatter(operands, updates, indices, combiner, unique)
    shape, size = operands[0].shape, operands[0].type.size
    count = updates[0].type.size
    dtype = index_dtype([size, count])
    place = full(0, updates[0].shape, dtype)
    for index, extent in zip(indices, shape, strict=True):
        place = place * extent + build.cast(index, dtype)
    pairs = zip(indices, shape, strict=True)
    exists = all_of([inside(index, extent - 1) for index, extent in pairs])
    place = reshape(place if exists is None else where(exists, place, -1), (count,))
    flat = [reshape(x, (size,)) for x in operands]
    new = [reshape(x, (count,)) for x in updates]
    return [reshape(x, shape) for x in combined_in_turn(flat, new, place, combiner)]


def combined_in_turn(
    operands: Sequence[Node], updates: Sequence[Node], places: Node, combiner: Graph
) -> Sequence[Node]:
    """Vectors, each update combined with the element at its place, or with none at a negative one;
    first things first."""
    count, dtype = updates[0].shape[0], places.dtype
    if not count or not operands[0].shape[0]:
        return operands
    initial = [full(0, (), dtype), *operands, *updates, places]
    state = [param(k, x.shape, x.dtype) for k, x in enumerate(initial)]
    turn, place = state[0], gather(state[-1], [state[0]])
    old, new = state[1 : 1 + len(operands)], state[1 + len(operands) : -1]
    exists = place >= 0
    at = where(exists, place, 0)
    elements = [*(gather(x, [at]) for x in old), *(gather(x, [turn]) for x in new)]
    unchanged = Graph(combiner.params, tuple(params_of(combiner)[: len(operands)]))
    found = branch(where(exists, full(0, (), I32), 1), elements, [combiner, unchanged])
    stored = [
        build.update_slice(x, reshape(value, (1,)), [at])
        for x, value in zip(old, found, strict=True)
    ]
    after = (turn + 1, *stored, *state[1 + len(operands) :])
    return looped(initial, after, count, combiner)[1 : 1 + len(operands)]


def sort(inputs: Sequence[Node], axis: int, comparator: Graph) -> Sequence[Node]:
    """As `build.sort`, by any comparator: by odd-even transposition, which lets neighbours change
    places (Knuth, The Art of Computer Programming 3, section 5.3.4)."""
    if is_scalar(comparator):
        return build.sort(inputs, axis, comparator)
    length = inputs[0].shape[axis]
    initial = [full(0, (), I32), *inputs]
    turn, *rows = (param(k, x.shape, x.dtype) for k, x in enumerate(initial))
    for first in (0, 1):
        rows = exchanged(rows, axis, first, comparator)
    return looped(initial, (turn + 1, *rows), (length + 1) // 2, comparator)[1:]


def exchanged(rows: Sequence[Node], axis: int, first: int, comparator: Graph) -> list[Node]:
    """Each pair of neighbours in order, from the one at `first` on."""
    shape = rows[0].shape
    count = (shape[axis] - first) // 2
    if not count:
        return list(rows)
    end = first + 2 * count
    split = (*shape[:axis], count, 2, *shape[axis + 1 :])
    pairs = [reshape(part(x, axis, first, end), split) for x in rows]
    left, right = ([part(x, axis + 1, k, k + 1) for x in pairs] for k in (0, 1))
    asked = [x for pair in zip(right, left, strict=True) for x in pair]
    (wrong,) = mapped(comparator, asked, left[0].shape)
    found: list[Node] = []
    for x, a, b in zip(rows, left, right, strict=True):
        both = join([where(wrong, b, a), where(wrong, a, b)], axis + 1)
        inner = reshape(both, (*shape[:axis], 2 * count, *shape[axis + 1 :]))
        ends = [(0, first), (end, shape[axis])]
        outer = [[part(x, axis, low, high)] if low < high else [] for low, high in ends]
        found.append(join([*outer[0], inner, *outer[1]], axis))
    return found


def looped(
    initial: Sequence[Node], after: Sequence[Node], count: int, region: Graph
) -> Sequence[Node]:
    """The state after so many turns, the first of it their number."""
    types = tuple(x.type for x in initial)
    goes_on = Graph(types, (param(0, (), types[0].dtype) < count,))
    body = Graph(types, tuple(after), (), region.locations)
    return build.loop(initial, goes_on, body, count)


def params_of(region: Graph) -> list[Node]:
    return [param(k, type_.shape, type_.dtype) for k, type_ in enumerate(region.params)]
