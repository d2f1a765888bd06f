"""Scatter of elements of which many may lie outside, in blocks of updates.

    for b in 13 ordered:
      inside = 0
      for i in the first 512 of a block, in vectors: inside += 0 <= where[i] < 50
      if 496 <= inside:
        for i of the block, ordered: if 0 <= where[i] < 50: y[where[i]] = y[where[i]] + updates[i]
      if inside < 496:
        kept = 0
        for i in vectors: if 0 <= where[i] < 50: place[kept] = where[i], update[kept] = i, kept += 1
        for k in kept ordered: y[place[k]] = y[place[k]] + updates[update[k]]

Which updates a mask leaves out no processor foresees, and each jump that was taken wrongly costs as
much as five updates.
"""

from __future__ import annotations

from collections.abc import Callable

from tinyhlo.codegen.expressions import Read, as_index, literal, where
from tinyhlo.codegen.loops import Accumulate, Axis, Body, Declare, If, Loop
from tinyhlo.codegen.lowering.fused import Lowering
from tinyhlo.codegen.lowering.ranges import SMALL, Axes, axes_of, by_lists, inside
from tinyhlo.codegen.lowering.updates import Updates
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import I32
from tinyhlo.ir.index import Var, index
from tinyhlo.ir.ops import Op
from tinyhlo.numbers import ceil_div, round_up
from tinyhlo.target import Target

FEWEST = 1 << 12  # updates that outweigh the longer code
BLOCK = 1 << 13  # updates: between two blocks nothing overlaps, and their lists stay in a cache
SAMPLE = 1 << 9  # its first updates, which tell how many are outside
MOST = SAMPLE - SAMPLE // 32  # of them inside: few jumps are taken wrongly from there on
LANES = 16  # that are counted at once
INSIDE = Read("inside", I32)


def by_blocks(updates: Updates, lowering: Callable[[], Lowering], target: Target) -> Body:
    """The loops; nothing where they do not pay or the updates are not of that kind."""
    size = updates.root.results[0].size
    if not target.packs or updates.size < FEWEST or updates.size != max(updates.shape):
        return ()
    if max(size, updates.size) >= SMALL:
        return ()
    axes = axes_of(updates, lowering())
    if axes is None or axes.own:
        return ()
    count = axes.var.extent
    length = round_up(ceil_div(count, ceil_div(count, BLOCK)), LANES)
    block = Var("block", ceil_div(count, length))
    within = inside(axes, updates.operand, next(iter(axes.data)), Var("range", 1))
    one = where(within, literal(1, I32), literal(0, I32))
    found = as_index(INSIDE, (0, SAMPLE))
    lists, passing = by_lists(updates, axes, lowering(), within, block, length)
    in_turn = tested(updates, axes, lowering(), block, length)
    counting = (Accumulate(INSIDE.name, Op.ADD, one),)
    body: Body = (
        Declare(INSIDE.name, literal(0, I32)),
        Loop(axes.var, Axis.REDUCE, counting, LANES, index(block) * length, SAMPLE),
        If((Condition(found, MOST, SAMPLE + 1),), (in_turn,)),
        If((Condition(found, 0, MOST),), passing),
    )
    return (*lists, Loop(block, Axis.ORDERED, body))


def tested(updates: Updates, axes: Axes, lowering: Lowering, block: Var, length: int) -> Loop:
    """The updates of a block, in order, each where it lies inside."""
    number = Var("update", axes.var.extent)
    scope, inner = lowering.nest(lowering.root, (1,) * len(updates.shape))
    at = lowering.position((*inner[: axes.first], index(number), *inner[axes.first + 1 :]))
    scope.statements.extend(updates.tested(lowering, at, scope))
    body = lowering.root.body()
    return Loop(number, Axis.ORDERED, body, start=index(block) * length, count=length)
