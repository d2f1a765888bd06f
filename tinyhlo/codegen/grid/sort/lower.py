"""Sort on grids: by merging what is ordered by numbers and no short row, else by a network.

In: a kernel whose root is a Sort. Of the best few of a row, each block keeps its own, and what is
left is sorted again.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyhlo.codegen.expressions import Expression
from tinyhlo.codegen.grid.sort.merge import Merge, merges
from tinyhlo.codegen.grid.sort.network import Network
from tinyhlo.codegen.grid.sort.rows import Rows, saved
from tinyhlo.codegen.loops import Allocate, Body, If, LoopProgram
from tinyhlo.codegen.lowering.fused import Lowering
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.graph import Sort
from tinyhlo.ir.index import Index, unravel
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target


def lower_sort(kernel: Kernel, target: Target) -> LoopProgram:
    """Sort every row."""
    root = kernel.root
    assert isinstance(root, Sort)
    lowering = Lowering(kernel)
    if not root.results[0].size:
        return lowering.program(())
    rows = Rows(kernel, root, lowering, root.inputs[0].shape[root.axis])
    return lowering.program(in_order(rows, target))


def in_order(rows: Rows, target: Target) -> Body:
    """The results of a kernel, from its sorted rows."""
    order = merges(rows, target)
    way = Merge(rows, order, target) if order else Network(rows, target)
    if way.blocks == 1 or 2 * rows.limit > way.run:
        return way.body()
    last = min(rows.limit, rows.length - (way.blocks - 1) * way.run)
    best = rows.of((way.blocks - 1) * rows.limit + last)
    save = saved(best.given, best.length)

    def keep(row: Index, along: Index, values: Sequence[Expression]) -> Body:
        block, place = unravel(along, (way.blocks, way.run))
        stores = save(row, block * rows.limit + place, values)
        return (If((Condition(place, 0, rows.limit),), stores),)

    return (*map(Allocate, best.given), way.in_blocks(keep, rows.limit), *in_order(best, target))
