"""Products with small constant matrices on grids: an item computes all rows of a column.

Of products that follow each other a group holds a tile in memory that it shares:

    for tile in 256 grid:
      local part0: f32[2*8*32*17]
      for item in 256 item:
        for turn in 1: part0[..] = 16 points, transformed    # of a column, in registers
        synchronize
        for turn in 2: y[..] = 8 points, transformed

Rows of such memory are longer by one than their points, so that items side by side, each of which
stores points in a row, use different banks.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.grid.mapping import ITEMS, SMALL, collapsed, iterations, recovered
from tinyhlo.codegen.grid.statements import Synchronize
from tinyhlo.codegen.loops import Axis, Bind, Body, Loop, LoopProgram, Statement, guarded
from tinyhlo.codegen.lowering.fused import Lowering
from tinyhlo.codegen.transform.lower import ChainBuilder
from tinyhlo.codegen.transform.rows import Part
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.graph import MultiReduce, Reduce
from tinyhlo.ir.index import Var, index
from tinyhlo.numbers import ceil_div, power_of_two
from tinyhlo.schedule.program import Kernel
from tinyhlo.schedule.transform_chain import Stage, chain_of
from tinyhlo.target import Target

LONG = 8  # points of a row, from which one more fits what a group shares


def lower_transform(kernel: Kernel, target: Target) -> LoopProgram | None:
    """The LoopProgram of such a kernel; None for any other one."""
    sums = [n for n in kernel.graph.nodes() if isinstance(n, (Reduce, MultiReduce))]
    if not sums or kernel.in_place or target.is_processor:
        return None
    chain = chain_of(sums, target)
    return None if chain is None else TileBuilder(kernel, chain, target, Moves()).program()


class TileBuilder(ChainBuilder):
    """Builds what a group does with one tile."""

    def program(self) -> LoopProgram | None:
        stages = self.chain.stages
        scratch: list[Statement] = []
        bodies: list[Body] = []
        for number, stage in enumerate(stages):
            lowered = self.lowered(stage, number == len(stages) - 1)
            if lowered is None:
                return None
            scratch += lowered[0]
            bodies.append(lowered[1].root.body())
        plain = tuple(s for body in bodies for s in body)
        if len(stages) == 1 or (self.tile.extent == 1 and sum(map(iterations, plain)) <= SMALL):
            return Lowering(self.kernel, self.tables).program((*scratch, *plain))
        loops = [[s for s in body if isinstance(s, Loop)] for body in bodies]
        if any(len(found) != len(body) for found, body in zip(loops, bodies, strict=True)):
            return None
        most = max(prod(v.extent for v in collapsed(s)[0]) for found in loops for s in found)
        item = Var("item", min(ITEMS, self.target.group_items, power_of_two(2 * most - 1)))
        body: list[Statement] = []
        for found in loops:
            body += [shared_by_items(loop, item) for loop in found]
            body.append(Synchronize())
        inner = Loop(item, Axis.ITEM, tuple(body[:-1]))
        grid = Loop(self.tile, Axis.GRID, (*scratch, inner))
        return Lowering(self.kernel, self.tables).program((grid,))

    def part(self, stage: Stage) -> Part:
        part = super().part(stage)
        row = next((n for n in reversed(part.extents) if n > 1), 1)
        return replace(part, padding=int(row >= LONG and row % 2 == 0))


def shared_by_items(loop: Loop, item: Var) -> Statement:
    """The points of a nest of loops, an item each."""
    variables, inner = collapsed(loop)
    flat = Var("column", prod(var.extent for var in variables))
    turn = Var("turn", ceil_div(flat.extent, item.extent))
    number = index(turn) * item.extent + index(item)
    body = (Bind(flat, number), *recovered(flat, variables), *inner)
    return Loop(turn, Axis.SERIAL, guarded(body, Condition(number, 0, flat.extent)))
