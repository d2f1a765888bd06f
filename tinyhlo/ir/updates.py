"""Arrays with elements replaced, one after the other; with a block, also as a choice by position.

    chain_of(update_slice(output(scatter(x)))    ->  [the slice, the output, x]
    update_slice(x, row, (k, 0))                 ->  where(0 <= iota - k < 1, row, x)

What is read of a choice is computed where it is read; an update copies the array before. `block` is
what an update replaces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from tinyhlo.ir import build
from tinyhlo.ir.build import splat_value
from tinyhlo.ir.dtypes import BOOL, index_dtype
from tinyhlo.ir.graph import (
    Node,
    Output,
    Scatter,
    Shape,
    UpdateSlice,
    topological,
    with_inputs,
)
from tinyhlo.ir.walks import reachable

MOST_UPDATES = 16  # one after the other, which a step rewrites together
MOST_NODES = 256  # that are looked through for a value
MOST_CHOICES = 8  # one after the other: each element of the result makes all of them


def is_update(value: Node) -> bool:
    """Whether a value is an array with some elements updated."""
    match value:
        case UpdateSlice():
            return True
        case Output(inputs=(Scatter(results=(_,)),)):
            return True
        case _:
            return False


def operands_of(update: Node) -> tuple[Node, ...]:
    """The array, the updates, and where these go."""
    return update.inputs[0].inputs if isinstance(update, Output) else update.inputs


def chain_of(value: Node) -> list[Node]:
    """A value, that of which it is an update, and so on, to one that is none."""
    found = [value]
    while is_update(found[-1]) and len(found) <= MOST_UPDATES:
        found.append(operands_of(found[-1])[0])
    return found


def replaced(values: Sequence[Node], known: Mapping[Node, Node]) -> list[Node]:
    """Values, made of other ones in place of those `known`; as they are where that takes long."""
    inside = list(islice(reachable(values, lambda n: () if n in known else n.inputs), MOST_NODES))
    if len(inside) == MOST_NODES or known.keys().isdisjoint(inside):
        return list(values)
    new = dict(known)
    for node in topological(tuple(values)):
        if node not in new:
            new[node] = with_inputs(node, tuple(new[child] for child in node.inputs))
    return [new[value] for value in values]


def chain(node: Node) -> tuple[int, Node]:
    """How many updates follow each other, the last of which `node` is, and what is updated."""
    count = 0
    while isinstance(node, UpdateSlice):
        count, node = count + 1, node.inputs[0]
    return count, node


def is_plain(node: UpdateSlice) -> bool:
    """Whether the block needs no look at another place for each element: it lies at known places,
    or is one element wide where it does not."""
    return all(node.inputs[1].shape[axis] == 1 for axis in masked_axes(node))


def as_choice(node: UpdateSlice) -> Node:
    """The value of an update: a choice by the position along each axis where the block is less than
    the operand. Loops are cut where its place is known."""
    operand, update, *starts = node.inputs
    shape, dtype, masked = operand.shape, index_dtype(operand.shape), masked_axes(node)
    cut = {
        axis: int(start)
        for axis, start in enumerate(map(splat_value, starts))
        if start is not None and axis not in masked
    }
    low = [cut.get(axis, 0) for axis in range(len(shape))]
    high = [n - a - k if axis in cut else 0 for axis, (n, a, k) in
            enumerate(zip(shape, low, update.shape, strict=True))]  # fmt: skip
    found = build.pad(update, build.scalar(0, operand.dtype), low, high)
    if masked:
        inside: Node = build.full(True, shape, BOOL)
        places: list[Node] = []
        for axis, extent in enumerate(found.shape):
            place = build.iota(shape, dtype, axis)
            if axis in masked:
                place = place - build.broadcast(build.cast(starts[axis], dtype), shape)
                inside = inside & (place >= 0) & (place < extent)
                place = place.at_least(0).at_most(extent - 1)
            places.append(place if extent > 1 else build.full(0, shape, dtype))
        found = build.where(inside, build.gather(found, places), operand)
    for axis, start in cut.items():
        place, stop = build.iota(shape, dtype, axis), start + update.shape[axis]
        if stop < shape[axis]:
            found = build.where(place < stop, found, operand)
        if start > 0:
            found = build.where(place < start, operand, found)
    return found


def masked_axes(node: UpdateSlice) -> set[int]:
    """Along which elements ask whether they are in the block: it is less than the operand there, at
    a place that is data, or it is one element of a row, for which no loop is cut."""
    operand, update, *starts = node.inputs
    last = len(operand.shape) - 1
    return {
        axis
        for axis, (n, extent) in enumerate(zip(operand.shape, update.shape, strict=True))
        if extent < n and (splat_value(starts[axis]) is None or (axis == last and extent == 1))
    }


def block(array: Node, starts: Sequence[Node], shape: Shape) -> Node:
    """The part of an array that begins at scalars inside it."""
    known = [int(start) for start in map(splat_value, starts) if start is not None]
    if len(known) == len(starts):
        return build.slice_(array, known, [a + n for a, n in zip(known, shape, strict=True)])
    dtype = index_dtype(array.shape)
    places = [build.broadcast(build.cast(start, dtype), shape) for start in starts]
    for axis, extent in enumerate(shape):
        if extent > 1:
            places[axis] = places[axis] + build.iota(shape, dtype, axis)
    return build.gather(array, places)
