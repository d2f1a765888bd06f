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

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from math import log2, prod

from tinyhlo.codegen.bodies import nest_of, values_in
from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.expressions import Apply, Load, Memory, in_rows
from tinyhlo.codegen.loops import (
    Allocate,
    Axis,
    Body,
    Loop,
    LoopProgram,
    Statement,
    Store,
    around,
)
from tinyhlo.codegen.lowering.fused import Lowering, Tables
from tinyhlo.codegen.moves.basic import collapse
from tinyhlo.codegen.moves.parallel import PARALLEL_WORK, parallelised
from tinyhlo.codegen.transform.rows import NetworkLowering, Part, whole
from tinyhlo.codegen.walks import walk
from tinyhlo.ir.graph import MultiReduce, Node, Reduce
from tinyhlo.ir.index import ZERO, Index, Var, index, unravel
from tinyhlo.numbers import ceil_div
from tinyhlo.schedule.program import Kernel
from tinyhlo.schedule.transform_chain import Chain, Stage, chain_of
from tinyhlo.target import NEAR, Target

SHORTEST = 16  # bytes of a vector: of four points of a transform, which lie at strides
Access = tuple[Memory, Index, bool]  # whether it is a store


def lower_transform(kernel: Kernel, target: Target, moves: Moves) -> LoopProgram | None:
    """The LoopProgram of such a kernel, its moves chosen; None for any other kernel."""
    sums = [n for n in kernel.graph.nodes() if isinstance(n, (Reduce, MultiReduce))]
    if not sums or kernel.in_place:
        return None
    chain = chain_of(sums, target)
    if chain is None:
        return None
    tried = Moves(moves.asked)
    program = ChainBuilder(kernel, chain, target, tried).program()
    if program is not None:
        moves.adopt(tried)
    return program


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
                return None
            body.extend(inner)
        if self.tile.extent > 1:
            large = self.work * self.tile.extent >= PARALLEL_WORK
            axis = Axis.PARALLEL if large else Axis.SERIAL
            body = [Loop(self.tile, axis, tuple(body))]
            self.moves.append(f"{axis.value} {self.tile.extent} tiles")
        else:
            body = list(parallelised(tuple(body), PARALLEL_WORK, self.target, self.moves))
        return Lowering(self.kernel, self.tables).program(tuple(body), self.moves)

    def stage(self, stage: Stage, last: bool) -> Body | None:
        """The loops of one product; the last one's results are those of the kernel."""
        lowered = self.lowered(stage, last)
        if lowered is None:
            return None
        allocate, lowering = lowered
        lanes = self.target.vector_bytes // stage.node.dtype.itemsize
        body = lowering.root.body()
        if any(remainder(statement, lanes) for statement in body):
            body = collapse(body)
        self.moves.append("unroll {}x{}".format(*stage.transform.matrix.shape))
        body = tuple(vectorised(s, self.target, lanes, self.moves) for s in body)
        steps = len(lowering.network.steps) + sum(stage.transform.matrix.shape)
        self.work += steps * points(body)
        if not last and isinstance(body[-1], Store):
            # what is stored side by side is computed before: the next stage reads it after the loop
            body = (Loop(Var("once", 1), Axis.SERIAL, body),)
        return (*allocate, *body)

    def lowered(self, stage: Stage, last: bool) -> tuple[Body, NetworkLowering] | None:
        """The scratch of one product, and its loops as they are."""
        lowering = NetworkLowering(
            self.kernel, stage.node, stage.transform, self.target.fma, self.scratch, self.tables
        )
        part = self.part(stage)
        if last:
            for result, memory in zip(self.kernel.graph.results, lowering.writes, strict=True):
                rows = lowering.find_rows(result, part)
                if rows is None:
                    return None
                lowering.store_rows(result, memory, rows, whole(result.shape))
            return (), lowering
        node = stage.node
        memory = Memory(f"part{len(self.scratch)}", node.dtype, part.size, local=True)
        rows = lowering.find_rows(node, part)
        assert rows is not None
        lowering.store_rows(node, memory, rows, part)
        self.scratch[node] = memory, part
        return (Allocate(memory),), lowering

    def part(self, stage: Stage) -> Part:
        starts = tuple(ZERO if axis is None else self.starts[axis] for axis in stage.shared)
        return Part(starts, self.chain.tile_shape(stage))


def remainder(statement: Statement, lanes: int) -> int:
    """Iterations of the innermost loop that fill no vector: two loops in one may have fewer."""
    nest = nest_of(statement)
    return nest[-1].var.extent % lanes if nest else 0


def vectorised(statement: Statement, target: Target, lanes: int, moves: list[str]) -> Statement:
    """Give a vector width to the loop of a nest that takes the fewest instructions then. Loops
    shorter than a vector run in halves or quarters of one; the last vector of a loop may overlap
    the one before."""
    nest = nest_of(statement)
    least = min(lanes, lanes * SHORTEST // target.vector_bytes)
    widths = [lanes >> k for k in range(lanes.bit_length()) if lanes >> k >= least]
    choices = [(loop, width) for loop in nest for width in widths if loop.var.extent >= width]
    if not choices:
        return statement
    values = [value for s in nest[-1].body for value in values_in(s)]
    computed = list(walk(values))
    work = sum(isinstance(value, Apply) for value in computed)
    found = {(e.memory, e.index, False) for e in computed if isinstance(e, Load)}
    found |= {(s.memory, s.index, True) for s in nest[-1].body if isinstance(s, Store)}

    def cost(choice: tuple[Loop, int]) -> float:
        loop, width = choice
        vectors = ceil_div(loop.var.extent, width)
        return (work + access_cost(found, loop.var, width)) * vectors / loop.var.extent

    best, width = min(reversed(choices), key=cost)
    moves.append(f"vector {best.var.name} {width}")
    in_lanes = replace(best, axis=Axis.VECTOR, width=width)
    loops = [in_lanes if loop is best else loop for loop in nest]
    return around(loops, nest[-1].body)[0]


def points(body: Body) -> int:
    """How often the innermost statements run, all lanes of a vector at once."""
    loops = [s for s in body if isinstance(s, Loop)]
    return sum(ceil_div(s.var.extent, s.width) * points(s.body) for s in loops) or 1


def access_cost(accesses: Iterable[Access], var: Var, lanes: int) -> float:
    """Instructions for a vector of every access, `var` across the lanes."""
    total = 0.0
    runs: dict[tuple[Memory, object, int, bool], set[int]] = defaultdict(set)
    for memory, where, written in accesses:
        match where.coefficient(var):
            case 0:
                total += 0.25
            case 1:
                total += 1
            case int(stride) if stride > 1:
                runs[memory, where.terms, stride, written].add(where.offset)
            case _:
                total += 2 * lanes
    for (memory, terms, stride, written), offsets in runs.items():
        together = min(lanes, neighbours(offsets))
        if written:  # neighbours are shuffled into short rows
            total += len(offsets) * (log2(together) + 2 * lanes / together)
        elif stride <= NEAR:
            total += 3 * len(offsets)  # whole vectors, shuffled
        elif in_rows(memory, Index(0, terms), stride):  # type: ignore[arg-type]
            total += len(offsets) * (1 + log2(lanes)) * lanes / together  # squares, turned around
        else:
            total += 2 * lanes * len(offsets)
    return total


def neighbours(offsets: set[int]) -> int:
    """How many follow each other from the first on: a power of two."""
    first, count = min(offsets), 1
    while offsets.issuperset(range(first, first + 2 * count)):
        count *= 2
    return count
