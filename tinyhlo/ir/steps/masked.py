"""Updates of which a mask takes some back: what it takes back is not written.

    where(m, x.at[i].set(u), x)          ->    x.at[where(m[i], i, outside)].set(u)
    where(m, update_slice(x, u, s), x)   ->    update_slice(x, where(m[s], u, x[s]), s)
    where(m, a(b(x)), c(x))              ->    c of a of b of x, of each what its side of m leaves

A `vmap` over a `while_loop` keeps the state of those that have ended by such a mask over the whole
state: the mask would copy it in every iteration, while so it is written where it lies.
"""

from __future__ import annotations

from math import prod

import numpy as np

from tinyhlo.ir import build
from tinyhlo.ir.graph import Elementwise, Node, Output, Scatter, UpdateSlice
from tinyhlo.ir.ops import Op
from tinyhlo.ir.updates import block

FEWER = 2  # times: of more updates the mask is read as a whole
MOST_MASKED = 16  # updates one after the other, with a mask each


def masked_updates(node: Elementwise) -> Node | None:
    """The updates that the mask leaves, if they are so few that their places cost less than the
    whole array."""
    if node.op is not Op.WHERE or not any(is_update(side) for side in node.inputs[1:]):
        return None
    mask, yes, no = node.inputs
    ours, theirs = chain_of(yes), chain_of(no)
    if ours[-1] is not theirs[-1]:
        return None
    while min(len(ours), len(theirs)) > 1 and ours[-2] is theirs[-2]:  # what both have before
        ours.pop()
        theirs.pop()
    sides = (mask, ours), (~mask, theirs)
    updates = [(kept, update) for kept, chain in sides for update in reversed(chain[:-1])]
    size = sum(prod(operands_of(update)[1].shape) for _, update in updates)
    if not 0 < FEWER * size <= node.type.size or len(updates) > MOST_MASKED:
        return None
    array: Node | None = ours[-1]
    for kept, update in updates:
        array = array and masked(kept, update, array)
    return array


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
    while is_update(found[-1]) and len(found) <= MOST_MASKED:
        found.append(operands_of(found[-1])[0])
    return found


def masked(mask: Node, update: Node, array: Node) -> Node | None:
    """`array`, updated as another one was, where a mask holds."""
    if isinstance(update, Output):
        scatter = update.inputs[0]
        assert isinstance(scatter, Scatter)
        return masked_scatter(mask, scatter, array)
    _, new, *starts = update.inputs
    kept = build.where(block(mask, starts, new.shape), new, block(array, starts, new.shape))
    return build.update_slice(array, kept, starts)


def masked_scatter(mask: Node, scatter: Scatter, array: Node) -> Node | None:
    """What the mask takes back goes outside, where it is dropped."""
    _, update, *indices = scatter.inputs
    if not indices or np.iinfo(indices[0].dtype.numpy).max < array.shape[0]:
        return None
    inside = [
        index.at_least(0).at_most(extent - 1)
        for index, extent in zip(indices, array.shape, strict=True)
    ]
    first, *others = indices
    outside = build.full(array.shape[0], first.shape, first.dtype)
    kept = build.where(build.gather(mask, inside), first, outside)
    (found,) = build.scatter([array], [update], [kept, *others], scatter.combiner, scatter.unique)
    return found
