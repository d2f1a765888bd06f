"""Updates of which a mask takes some back: what it takes back is not written.

    where(m, x.at[i].set(u), x)          ->    x.at[where(m[i], i, outside)].set(u)
    where(m, update_slice(x, u, s), x)   ->    update_slice(x, where(m[s], u, x[s]), s)

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


def masked_updates(node: Elementwise) -> Node | None:
    """The updates that the mask leaves, if they are so few that their places cost less than the
    whole array."""
    match node:
        case Elementwise(op=Op.WHERE, inputs=(mask, Output(inputs=(Scatter() as updated,)), other)):
            few = len(updated.results) == 1 and is_small(updated, other)
            return masked_scatter(mask, updated) if few else None
        case Elementwise(op=Op.WHERE, inputs=(mask, UpdateSlice() as updated, other)):
            return masked_block(mask, updated) if is_small(updated, other) else None
    return None


def is_small(node: Scatter | UpdateSlice, other: Node) -> bool:
    """Whether few of the elements of `other` are updated."""
    operand, update = node.inputs[:2]
    return operand is other and 0 < FEWER * prod(update.shape) <= prod(operand.shape)


def masked_scatter(mask: Node, scatter: Scatter) -> Node | None:
    """What the mask takes back goes outside, where it is dropped."""
    operand, update, *indices = scatter.inputs
    if not indices or np.iinfo(indices[0].dtype.numpy).max < operand.shape[0]:
        return None
    inside = [
        index.at_least(0).at_most(extent - 1)
        for index, extent in zip(indices, operand.shape, strict=True)
    ]
    first, *others = indices
    outside = build.full(operand.shape[0], first.shape, first.dtype)
    kept = build.where(build.gather(mask, inside), first, outside)
    (found,) = build.scatter([operand], [update], [kept, *others], scatter.combiner, scatter.unique)
    return found


def masked_block(mask: Node, updated: UpdateSlice) -> Node:
    """The block has there what was in its place."""
    operand, update, *starts = updated.inputs
    before = block(operand, starts, update.shape)
    kept = build.where(block(mask, starts, update.shape), update, before)
    return build.update_slice(operand, kept, starts)
