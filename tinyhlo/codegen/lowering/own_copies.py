"""Scatter on all threads where any order gives the same bits: each combines its share of the
updates in a copy of its own, and then the copies are combined.

    local copies: i32[2*256]
    for part in 2 parallel:
      for e in 256: copies[part*256 + e] = 0
      for i in part*500000 .. +500000 of 1000000 ordered:
        copies[part*256 + where[i]] = copies[part*256 + where[i]] + updates[i]
    for e in 256: y[e] = y[e] + copies[e] + copies[256 + e]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tinyhlo.codegen.expressions import Expression, Load, Memory, apply, identity
from tinyhlo.codegen.loops import Allocate, Axis, Body, Loop, Store
from tinyhlo.codegen.lowering.updates import FEWEST, Updates
from tinyhlo.ir.graph import Elementwise, Graph, Param
from tinyhlo.ir.index import Index, Var, index
from tinyhlo.ir.ops import Op
from tinyhlo.numbers import ceil_div, round_up
from tinyhlo.target import LINE_BYTES, Target

SHARE = 8  # times the elements of all copies: fewer updates do not pay for clearing and combining
# The same of places, each of which takes as long as the vectors of some elements
FEWEST_PLACES, SHARE_OF_PLACES = 1 << 13, 2
APART = 2 * LINE_BYTES  # no thread writes to lines that another's core has fetched
EXTREMES = {Op.MIN, Op.MAX}
EXACT = {*EXTREMES, Op.ADD, Op.MUL, Op.AND, Op.OR, Op.XOR}  # of whole numbers


def by_copies(updates: Updates, loops: Callable[[Updates, Index], Body], target: Target) -> Body:
    """`loops` combine updates into memory from a place on. Nothing where copies do not pay, or the
    updates are not the iterations of one loop."""
    op, size, parts = any_order(updates.root.combiner), updates.root.results[0].size, target.threads
    if op is None or parts == 1 or updates.size < min(FEWEST, FEWEST_PLACES):
        return ()
    (result,) = updates.targets
    stride = round_up(size, APART // result.dtype.itemsize)
    copies = Memory("copies", result.dtype, parts * stride, local=True)
    part, element = Var("part", parts), Var("e", size)
    own = index(part) * stride
    body = loops(replace(updates, targets=(copies,)), own)
    match body:
        case (Loop(axis=Axis.ORDERED) as loop,):
            places = loop.var.extent
        case _:
            return ()
    many_places = places >= max(FEWEST_PLACES, SHARE_OF_PLACES * parts * size)
    if not many_places and updates.size < max(FEWEST, SHARE * parts * size):
        return ()
    length = ceil_div(places, parts)
    if (parts - 1) * length >= places:  # a thread would have none
        return ()
    clear = Store(copies, own + index(element), identity(op, result.dtype))
    total: Expression = Load(result, index(element))
    for k in range(parts):
        total = apply(op, (total, Load(copies, index(element) + k * stride)), result.dtype)
    share = (
        Loop(element, Axis.SERIAL, (clear,)),
        replace(loop, start=index(part) * length, count=length),
    )
    return (
        Allocate(copies),
        Loop(part, Axis.PARALLEL, share),
        Loop(element, Axis.SERIAL, (Store(result, index(element), total),)),
    )


def any_order(combiner: Graph) -> Op | None:
    """The op of a combiner that gives the same bits in any order."""
    match combiner.results:
        case (Elementwise(op=op, inputs=(Param(), Param())) as node,) if len({*node.inputs}) == 2:
            exact = EXACT if node.dtype.is_integer else EXTREMES
            return op if op in exact else None
    return None
