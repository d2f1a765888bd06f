"""Products with small constant matrices as straight-line code over many columns at once.

In: a Kernel with such sums (`ir/transform.py`), each read by the next only, elementwise work and
views around them. Out: a LoopProgram without loops over a matrix: its network of additions
(`network.py`) stands in the body, every row is stored from there. Two points, twice:

    for tile in 64 parallel:                       # the axes that all sums share
      local part0: f32[2*16]
      for j in 16 vector 8:
        part0[0*16 + j] = x[0*1024 + tile*16 + j] + x[1*1024 + tile*16 + j]
        part0[1*16 + j] = x[0*1024 + tile*16 + j] - x[1*1024 + tile*16 + j]
      for j in 16 vector 8: ...
"""

from __future__ import annotations

from math import prod

from tinyhlo.codegen.bodies import nested_loops
from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.expressions import Memory
from tinyhlo.codegen.loops import Allocate, Axis, Body, Loop, LoopProgram, Statement, Store
from tinyhlo.codegen.lowering.fused import Lowering, Tables
from tinyhlo.codegen.moves.basic import collapse
from tinyhlo.codegen.moves.parallel import PARALLEL_WORK
from tinyhlo.codegen.moves.vectors import vectorised
from tinyhlo.codegen.transform.rows import NetworkLowering, Part, whole
from tinyhlo.ir.graph import MultiReduce, Node, Param, Reduce
from tinyhlo.ir.index import ZERO, Var, index, unravel
from tinyhlo.schedule.program import Kernel
from tinyhlo.schedule.transform_chain import Chain, Stage, find_chain
from tinyhlo.target import Target


def lower_transform(kernel: Kernel, target: Target, moves: Moves) -> LoopProgram | None:
    """The LoopProgram of such a kernel, its moves chosen; None for any other kernel."""
    sums = [n for n in kernel.graph.nodes() if isinstance(n, (Reduce, MultiReduce))]
    if not sums or kernel.in_place:
        return None
    chain = find_chain(sums, lambda node: isinstance(node, Param), target)
    if chain is None:
        return None
    return ChainBuilder(kernel, chain, target, moves).program()


class ChainBuilder:
    """Builds the stages of one tile and the loop around them."""

    def __init__(self, kernel: Kernel, chain: Chain, target: Target, moves: Moves) -> None:
        self.kernel, self.chain, self.target, self.moves = kernel, chain, target, moves
        counts = {axis: n // chain.blocks[axis] for axis, n in chain.extents.items()}
        self.tile = Var("tile", prod(counts.values()))
        numbers = unravel(index(self.tile), tuple(counts.values()))
        self.starts = {
            axis: number * chain.blocks[axis] for axis, number in zip(counts, numbers, strict=True)
        }
        self.scratch: dict[Node, tuple[Memory, Part]] = {}
        self.tables: Tables = {}
        self.work = 0

    def program(self) -> LoopProgram | None:
        stages = self.chain.stages
        body: list[Statement] = []
        for number, stage in enumerate(stages):
            inner = self.stage(stage, number == len(stages) - 1)
            if inner is None:
                self.moves.clear()
                return None
            body.extend(inner)
        if self.tile.extent > 1:
            large = self.work * self.tile.extent >= PARALLEL_WORK
            axis = Axis.PARALLEL if large else Axis.SERIAL
            body = [Loop(self.tile, axis, tuple(body))]
            self.moves.append(f"{axis.value} {self.tile.extent} tiles")
        return Lowering(self.kernel, self.tables).program(tuple(body), self.moves)

    def stage(self, stage: Stage, last: bool) -> Body | None:
        """The loops of one product; the last one's results are those of the kernel."""
        fma, scratch = self.target.fma, self.scratch
        lowering = NetworkLowering(
            self.kernel, stage.node, stage.transform, fma, scratch, self.tables
        )
        part = self.part(stage)
        allocate: Body = ()
        if last:
            for result, memory in zip(self.kernel.graph.results, lowering.writes, strict=True):
                rows = lowering.find_rows(result, part)
                if rows is None:
                    return None
                lowering.store_rows(result, memory, rows, whole(result.shape))
        else:
            node = stage.node
            memory = Memory(f"part{len(self.scratch)}", node.dtype, prod(part.extents), local=True)
            allocate = (Allocate(memory),)
            rows = lowering.find_rows(node, part)
            assert rows is not None
            lowering.store_rows(node, memory, rows, part)
            self.scratch[node] = memory, part
        lanes = self.target.vector_bytes // stage.node.dtype.itemsize
        body = lowering.root.body()
        if any(remainder(statement, lanes) for statement in body):
            body = collapse(body)
        self.moves.append("unroll {}x{}".format(*stage.transform.matrix.shape))
        body = tuple(vectorised(s, self.target, self.moves) for s in body)
        steps = len(lowering.network.steps) + sum(stage.transform.matrix.shape)
        self.work += steps * points(body)
        if not last and isinstance(body[-1], Store):
            # what is stored side by side is computed before: the next stage reads it after the loop
            body = (Loop(Var("once", 1), Axis.SERIAL, body),)
        return (*allocate, *body)

    def part(self, stage: Stage) -> Part:
        starts = tuple(ZERO if axis is None else self.starts[axis] for axis in stage.shared)
        return Part(starts, self.chain.tile_shape(stage))


def remainder(statement: Statement, lanes: int) -> int:
    """Iterations of the innermost loop that fill no vector: two loops in one may have fewer."""
    nest = nested_loops(statement)
    return nest[-1].var.extent % lanes if nest else 0


def points(body: Body) -> int:
    """How often the innermost statements run, all lanes of a vector at once."""
    loops = [s for s in body if isinstance(s, Loop)]
    return sum(-(-s.var.extent // s.width) * points(s.body) for s in loops) or 1
