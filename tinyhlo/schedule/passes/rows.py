"""Which rows of its inputs a node needs of which rows are read, at places that are data.

    (h[128, 768] @ w[768, 50257])[i]    ->    h[i] @ w

`ROWS` has the function of each class of nodes; None where the places are no rows of its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tinyhlo.ir import build
from tinyhlo.ir.contraction import varies
from tinyhlo.ir.graph import (
    Elementwise,
    Expand,
    Gather,
    Iota,
    MultiReduce,
    Node,
    Permute,
    Reduce,
    Reshape,
    Shape,
    Slice,
    intern,
)
from tinyhlo.ir.simplify import step
from tinyhlo.ir.transform import find_transform
from tinyhlo.ir.views import axis_groups
from tinyhlo.schedule.passes.parts import of_elementwise, of_gather
from tinyhlo.schedule.passes.regions import Need, Region, Rows, shape_in, types_in


def read_rows(node: Gather) -> Need | None:
    """Of a Gather that reads its source all along some axes, for some of its own."""
    source, *indices = node.inputs
    along: dict[int, int] = {}  # axis of the source -> axis of the result
    for axis, index in enumerate(indices):
        if isinstance(index, Iota) and node.shape[index.axis] == source.shape[axis]:
            others = (other for k, other in enumerate(indices) if k != axis)
            if not any(index.axis in varies(other) for other in others):
                along[axis] = index.axis
    axes = tuple(k for k, extent in enumerate(source.shape) if k not in along and extent > 1)
    if not axes:
        return None
    own = [axis for axis in range(len(node.shape)) if axis not in along.values()]
    kept = tuple(node.shape[axis] for axis in own)
    cut = [extent if axis in own else 1 for axis, extent in enumerate(node.shape)]
    rows = Rows(axes, tuple(one_each(indices[axis], cut, kept) for axis in axes))
    order = [*own, *(along[axis] for axis in rows.others(len(indices)) if axis in along)]
    back = build.inverse(order)
    shape = tuple(node.shape[axis] for axis in order)

    def made(inputs: list[Node]) -> Node:
        return build.permute(step(build.reshape(inputs[0], shape)), back)

    return Need(None, (rows, *(None for _ in indices)), made)


def one_each(index: Node, cut: list[int], shape: Shape) -> Node:
    """An index that is the same along the axes that are `cut` to one element, without them."""
    first = step(build.strided(index, (0,) * len(cut), cut, (1,) * len(cut)))
    return step(build.reshape(first, shape))


def of_reduce(node: Reduce, own: Rows) -> Need | None:
    if find_transform(node) is not None:  # all rows are computed together
        return None
    asked, axes = before_reduce(own, node.axes, len(node.inputs[0].shape))
    return Need(own, (asked,), lambda inputs: build.reduce(node.op, inputs[0], axes))


def of_multi_reduce(node: MultiReduce, own: Rows) -> Need:
    asked, axes = before_reduce(own, node.axes, len(node.inputs[0].shape))
    count, types = len(node.results), types_in(own, node.results)

    def made(inputs: list[Node]) -> Node:
        return intern(MultiReduce, node.type, tuple(inputs), axes, node.combiner, types)

    return Need(own, (asked,) * count + (None,) * count, made)


def before_reduce(own: Rows, axes: tuple[int, ...], rank: int) -> tuple[Rows, tuple[int, ...]]:
    """Rows of what is reduced over `axes`, and which of a value of those these axes are."""
    kept = [axis for axis in range(rank) if axis not in axes]
    rows = Rows(tuple(kept[axis] for axis in own.axes), own.places)
    others = rows.others(rank)
    return rows, tuple(own.rank + others.index(axis) for axis in axes)


def of_permute(node: Permute, own: Rows) -> Need:
    rows = Rows(tuple(node.order[axis] for axis in own.axes), own.places)
    rank = len(node.order)
    others = rows.others(rank)
    order = [own.rank + others.index(node.order[axis]) for axis in own.others(rank)]
    return Need(own, (rows,), lambda inputs: build.permute(inputs[0], [*range(own.rank), *order]))


def of_expand(node: Expand, own: Rows) -> Need:
    """A row of what is repeated along its axis is that itself."""
    source = node.inputs[0].shape
    kept = {axis: axis for axis in own.axes if source[axis] == node.shape[axis]}
    rows = moved(own, kept)
    leading = own.places[0].shape if rows else (1,) * own.rank
    shape = (*leading, *(source[axis] for axis in own.others(len(source))))

    def made(inputs: list[Node]) -> Node:
        inner = step(build.reshape(inputs[0], shape))
        return build.expand(inner, shape_in(own, node.shape))

    return Need(own, (rows,), made)


def of_reshape(node: Reshape, own: Rows) -> Need | None:
    """Where the axes of the rows stay axes of their own."""
    source = node.inputs[0].shape
    stays: dict[int, int] = {}
    for first, stop, start, end in axis_groups(node.shape, source):
        result = [axis for axis in range(first, stop) if node.shape[axis] != 1]
        inner = [axis for axis in range(start, end) if source[axis] != 1]
        if len(result) == len(inner) == 1:
            stays[result[0]] = inner[0]
    if not all(axis in stays for axis in own.axes):
        return None
    shape = shape_in(own, node.shape)
    return Need(own, (moved(own, stays),), lambda inputs: build.reshape(inputs[0], shape))


def moved(own: Rows, axes: Mapping[int, int]) -> Region:
    """The same rows along the axes that others become; all where none is left."""
    pairs = zip(own.axes, own.places, strict=True)
    kept = [(axes[axis], place) for axis, place in pairs if axis in axes]
    return Rows(*map(tuple, zip(*kept, strict=True))) if kept else None


def of_slice(node: Slice, own: Rows) -> Need | None:
    """Of whole axes."""
    if any(node.shape[axis] != node.inputs[0].shape[axis] for axis in own.axes):
        return None
    others, none = own.others(len(node.shape)), (0,) * own.rank
    start = (*none, *(node.start[axis] for axis in others))
    steps = (*(1 for _ in none), *(node.step[axis] for axis in others))
    shape = shape_in(own, node.shape)
    return Need(own, (own,), lambda inputs: build.strided(inputs[0], start, shape, steps))


ROWS: Mapping[type[Node], Callable[[Any, Rows], Need | None]] = {
    Elementwise: of_elementwise,
    Reduce: of_reduce,
    MultiReduce: of_multi_reduce,
    Gather: of_gather,
    Reshape: of_reshape,
    Permute: of_permute,
    Expand: of_expand,
    Slice: of_slice,
}
