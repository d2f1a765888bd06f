"""An array with a block replaced, as a choice between both by position.

    update_slice(x, row, (k, 0))  ->  where(k <= iota < k + 1, row, x)

What is read of a choice is computed where it is read; an update copies the array before.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyhlo.ir import build
from tinyhlo.ir.dtypes import BOOL, index_dtype
from tinyhlo.ir.graph import Node, UpdateSlice
from tinyhlo.ir.rewrite import splat_value

MOST_CHOICES = 8  # one after the other: each element of the result makes all of them


def chain_length(node: Node) -> int:
    """How many updates follow each other, the last of which `node` is."""
    count = 0
    while isinstance(node, UpdateSlice):
        count, node = count + 1, node.inputs[0]
    return count


def as_choice(node: UpdateSlice) -> Node:
    """The value of an update that keeps something of its operand."""
    operand, update, *starts = node.inputs
    known = [splat_value(start) for start in starts]
    if None in known:
        return at_data(operand, update, starts)
    return at_known(operand, update, [int(start) for start in known if start is not None])


def at_known(operand: Node, update: Node, starts: Sequence[int]) -> Node:
    """Along each axis three parts, of which the middle one has the block."""
    high = [n - a - k for n, a, k in zip(operand.shape, starts, update.shape, strict=True)]
    found = build.pad(update, build.scalar(0, operand.dtype), starts, high)
    for axis, (start, extent) in enumerate(zip(starts, update.shape, strict=True)):
        place = build.iota(operand.shape, index_dtype(operand.shape), axis)
        if start + extent < operand.shape[axis]:
            found = build.where(place < start + extent, found, operand)
        if start > 0:
            found = build.where(place < start, operand, found)
    return found


def at_data(operand: Node, update: Node, starts: Sequence[Node]) -> Node:
    shape, dtype = operand.shape, index_dtype(operand.shape)
    inside: Node = build.full(True, shape, BOOL)
    places: list[Node] = []
    for axis, (start, extent) in enumerate(zip(starts, update.shape, strict=True)):
        place = build.iota(shape, dtype, axis)
        if extent < shape[axis]:
            place = place - build.broadcast(build.cast(start, dtype), shape)
            inside = inside & (place >= 0) & (place < extent)
            place = place.at_least(0).at_most(extent - 1)
        places.append(place)
    return build.where(inside, build.gather(update, places), operand)
