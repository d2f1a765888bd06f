"""Reduces along an axis that is not the last: one kernel for all that is done to a column.

In: items that one kernel might compute. Out: whether one nest over columns computes them:

    max0[b,k]   = max over j of x[b,j,k]
    add1[b,k]   = sum over j of exp(x[b,j,k] - max0[b,k])
    y[b,j,k]    = exp(x[b,j,k] - max0[b,k]) / add1[b,k]          # loops over b, k, then j

All reduces keep the same axes, the columns' numbers; whatever has an element for each element of a
column reads them by the same of its own axes, which its loops therefore put outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from math import prod

from tinyhlo.ir.dtypes import F32
from tinyhlo.ir.graph import Node, topological
from tinyhlo.ir.index import ZERO, index
from tinyhlo.ir.views import Indices
from tinyhlo.ir.walks import reachable
from tinyhlo.schedule.access import access, reducer_of, space_of, terms_of
from tinyhlo.schedule.clusters import Reads
from tinyhlo.target import Target

BLOCK_COLUMNS = 256  # side by side, all of whose rows are to stay in half of L2 (decision 31)
MIN_COLUMNS = 512  # fewer would leave threads or lanes without work

Axes = tuple[int, ...]


def column_limit(target: Target) -> int:
    """Elements of a column that later passes over it still find in the cache."""
    return target.l2_bytes // 2 // (BLOCK_COLUMNS * F32.itemsize)


def share_columns(items: Sequence[Node], reads: Mapping[Node, Reads], limit: int) -> bool:
    """Whether all items are columns' results, or elements of the same columns, of at most `limit`
    elements."""
    reducers = [item for item in items if reducer_of(item) is not None]
    if not reducers:
        return False
    kept, length = extents(reducers[0].shape), terms_of(reducers[0])
    if length > limit or prod(kept) < MIN_COLUMNS:
        return False
    if any(extents(r.shape) != kept or terms_of(r) != length for r in reducers):
        return False
    members, outside = set(items), dict[Node, Axes]()
    for item in items:
        if extents(item.shape) != kept and prod(item.shape) != prod(kept) * length:
            return False
        for value, places in reads[item].items():
            if value not in members:
                continue
            for where in places:
                if not agrees(item, value, where, kept, outside):
                    return False
    ends = members.difference(*(reads[item] for item in items))
    return all(extents(item.shape) == kept or follows(item, members, reads) for item in ends)


def follows(item: Node, members: Set[Node], reads: Mapping[Node, Reads]) -> bool:
    """Whether an item is made of a reduce among `members`: one that is not gains nothing from its
    columns, and its loops would not know which of its axes they are."""
    inside = reachable([item], lambda n: (value for value in reads[n] if value in members))
    return any(reducer_of(node) is not None for node in inside)


def agrees(
    item: Node, value: Node, where: Indices, kept: tuple[int, ...], outside: dict[Node, Axes]
) -> bool:
    """Whether `item` reads `value` within its own column; `outside` collects, for items with
    elements, the axes that number columns."""
    space = space_of(item)
    numbers = {index(var): axis for axis, var in enumerate(space.kept)}
    moving = [(axis, i) for axis, i in enumerate(where) if i != ZERO]
    own = tuple(axis for axis, var in enumerate(space.kept) if var.extent > 1)
    if extents(value.shape) == kept:
        if any(i not in numbers for _, i in moving):
            return False
        axes = tuple(numbers[i] for _, i in moving)
        if extents(item.shape) == kept:
            return axes == own
        return outside.setdefault(item, axes) == axes
    if extents(item.shape) != kept:  # element by element
        same = [i for _, i in moving] == [index(space.kept[axis]) for axis in own]
        axes = outside.get(item) or outside.get(value)
        if axes is None:
            return same
        return same and outside.setdefault(item, axes) == outside.setdefault(value, axes)
    axes = tuple(axis for axis, i in moving if i in numbers)
    in_order = tuple(numbers[where[axis]] for axis in axes) == own
    every = {index(var) for var in space.kept + space.reduced if var.extent > 1}
    whole = {i for _, i in moving} == every and len(moving) == len(every)
    return in_order and whole and outside.setdefault(value, axes) == axes


def extents(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without its axes of one element."""
    return tuple(n for n in shape if n != 1)


def loop_order(result: Node) -> Axes:
    """The order in which loops walk the axes of a result: those by which it reads reduces of the
    same kernel outside, so that each is computed once."""
    space = space_of(result)
    below = topological((result,))
    if reducer_of(result) is not None or all(reducer_of(node) is None for node in below):
        return tuple(range(len(space.kept)))
    found = access(result, lambda node: reducer_of(node) is not None)
    numbers = {index(var): axis for axis, var in enumerate(space.kept)}
    outside = {numbers[i] for places in found.values() for at in places for i in at if i in numbers}
    inside = [axis for axis in range(len(space.kept)) if axis not in outside]
    return (*sorted(outside), *inside)
