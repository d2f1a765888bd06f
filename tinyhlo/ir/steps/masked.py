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
from tinyhlo.ir.graph import Elementwise, Node, Output, Scatter
from tinyhlo.ir.ops import Op
from tinyhlo.ir.updates import block, chain_of, is_update, operands_of

FEWER = 2  # times: of more updates the mask is read as a whole


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
    if not 0 < FEWER * size <= node.type.size:
        return None
    array: Node | None = ours[-1]
    for kept, update in updates:
        array = array and masked(kept, update, array)
    return array


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
