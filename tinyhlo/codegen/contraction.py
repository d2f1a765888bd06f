"""A contraction Kernel as a register-tiled matrix product.

In: a Kernel whose graph holds one sum of products, with elementwise work and views before and
after it (a convolution is windows times weights). Out: a LoopProgram, or None where the general
lowering is the better one (tiny sizes, matrix times vector, depthwise):

    for chunk in 32 parallel:                 # batch x blocks of rows x blocks of columns
      stage left: the padded rows of the image that these windows need
      for panel in 4:
        pack right: 576 x 16 weights
        for rows in 131:
          tile = left rows * right panel      # 6x16 accumulators in registers
          y[...] = epilogue(tile)

Columns are cut into vectors that lie next to each other in the result; where a row of them is no
multiple of the vector length the last one overlaps its neighbour, and so do the last tile of rows
and the last block: there are no edges. Which thread runs a chunk never changes the order of a sum.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyhlo.codegen.contraction_layout import (
    Layout,
    TileLowering,
    find_layout,
    operand_strides,
)
from tinyhlo.codegen.contraction_operand import (
    Affine,
    InPlace,
    Source,
    Staged,
    find_source,
    in_place,
    merged,
    stage,
    vector_loop,
)
from tinyhlo.codegen.contraction_plan import Plan, Use, plan_contraction
from tinyhlo.codegen.cut import Positions, at_most, ceil_div, joined
from tinyhlo.codegen.loops import (
    Allocate,
    Axis,
    Body,
    If,
    Load,
    Loop,
    LoopProgram,
    Memory,
    Statement,
    Store,
    TileProduct,
    literal,
)
from tinyhlo.codegen.lower import argument_memories
from tinyhlo.codegen.target import Target
from tinyhlo.ir.contraction import find_contraction
from tinyhlo.ir.graph import MultiReduce, Reduce
from tinyhlo.ir.index import ZERO, Condition, Index, Var, constant, index, linear, unravel
from tinyhlo.schedule.program import Kernel

STRUCTURE = (Reduce, MultiReduce)


def lower_contraction(kernel: Kernel, target: Target) -> LoopProgram | None:
    """The LoopProgram of a contraction kernel, its moves chosen; None for any other kernel and for
    contractions that the general lowering does as well."""
    reduces = [node for node in kernel.graph.nodes() if isinstance(node, STRUCTURE)]
    if len(reduces) != 1 or len(kernel.graph.results) != 1 or kernel.in_place:
        return None
    (node,) = reduces
    contraction = find_contraction(node)
    if contraction is None or not isinstance(node, Reduce):
        return None
    layout = find_layout(kernel, node, contraction)
    if layout is None or not layout.contraction.n:
        return None
    left, right = find_source(layout.contraction.left), find_source(layout.contraction.right)
    plan = plan_contraction(layout, node.dtype, target, left, right)
    if plan is None:
        return None
    return Builder(kernel, node, layout, plan, left, right).program()


class Builder:
    """Builds the loops around a TileProduct."""

    def __init__(
        self, kernel: Kernel, node: Reduce, layout: Layout, plan: Plan, left: Source | None,
        right: Source | None,
    ) -> None:  # fmt: skip
        self.kernel, self.node, self.layout, self.plan = kernel, node, layout, plan
        c = self.contraction = layout.contraction
        self.reads, self.writes = argument_memories(kernel)
        self.lowering = TileLowering(self.reads, node)
        self.shape = c.left.shape
        dtype = node.dtype
        self.chunk, self.step = Var("chunk", plan.chunks), Var("step", plan.steps)
        batch, self.m_block, self.n_block = unravel(
            index(self.chunk), (plan.batch, plan.m.blocks, plan.n.blocks)
        )
        extents = tuple(self.shape[axis] for axis in c.batch)
        self.batch = dict(zip(c.batch, unravel(batch, extents), strict=True))
        self.depth = [Var(f"k{axis}", n) for (axis,), n in zip(
            plan.k.runs[plan.k.number :], plan.k.inside, strict=True
        )]  # fmt: skip
        self.k = plan.k.within([index(var) for var in self.depth])
        self.k_origin = plan.k.origin(index(self.step))
        self.flat_depth = linear([index(v) for v in self.depth], plan.k.inside)

        m_inner, n_inner = plan.m.inner_extents(), plan.n.inner_extents()
        k_inner = plan.k.inner_extents()
        self.right_source = right
        self.left: InPlace | Staged | Memory = Memory(
            "left", dtype, plan.block_rows * plan.depth, local=True
        )
        panels = plan.panels if plan.packs_at_once else 1
        self.right: InPlace | Staged | Memory = Memory(
            "right", dtype, panels * plan.depth * plan.columns, local=True
        )
        if plan.left is Use.IN_PLACE and left:
            self.left = in_place(left, self.reads) or self.left
        if plan.left is Use.STAGED and left:
            self.left = stage("left", left, m_inner | k_inner, self.lowering, -1)
        if plan.right is Use.IN_PLACE and right:
            self.right = in_place(right, self.reads) or self.right
        if plan.right is Use.STAGED and right:
            self.right = stage("right", right, n_inner | k_inner, self.lowering, c.n[-1])
        tiles = plan.row_blocks * plan.panels * plan.row_tiles if plan.steps > 1 else 1
        self.tile = Memory("tile", dtype, tiles * plan.rows * plan.columns, local=True)

    # --- the nest ----------------------------------------------------------------------------

    def program(self) -> LoopProgram:
        plan = self.plan
        memories = [self.tile]
        memories += [m for m in (self.left, self.right) if isinstance(m, Memory)]
        memories += [s.memory for s in (self.left, self.right) if isinstance(s, Staged)]
        body: Body = (*map(Allocate, memories), *self.clear(), *self.steps())
        if plan.chunks > 1:
            body = (Loop(self.chunk, Axis.PARALLEL, body),)
        tables = tuple((memory, node.value) for node, memory in self.lowering.tables.items())
        return LoopProgram(
            self.kernel.name, self.reads, self.writes, body, (), tables, plan.moves()
        )

    def clear(self) -> Body:
        if self.plan.steps == 1:
            return ()
        at = Var("at", self.tile.size)
        zero = Store(self.tile, index(at), literal(0, self.node.dtype))
        return (vector_loop(at, (zero,), self.plan.lanes),)

    def steps(self) -> Body:
        plan = self.plan
        body: list[Statement] = []
        if isinstance(self.left, Staged):
            origin = self.origin(plan.m.origin(self.m_block))
            body += self.left.copy(self.lowering, origin, plan.lanes)
        if isinstance(self.right, Staged):
            origin = self.origin(plan.n.origin(self.n_block))
            body += self.right.copy(self.lowering, origin, plan.lanes)
        body += self.blocks()
        if plan.steps == 1:
            return tuple(body)
        return (Loop(self.step, Axis.SERIAL, tuple(body)),)

    def origin(self, side: Positions) -> dict[int, Index]:
        """Where the block begins along one side's axes, the batch and the depth."""
        return {**self.batch, **side, **self.k_origin}

    def blocks(self) -> Body:
        plan = self.plan
        block = Var("block", plan.row_blocks)
        start = at_most(index(block) * plan.block_rows, plan.m.positions - plan.block_rows)
        panel, tile = Var("panel", plan.panels), Var("rows", plan.row_tiles)
        row = at_most(index(tile) * plan.rows, plan.block_rows - plan.rows)
        work: list[Statement] = [self.product(block, start, row, panel, tile)]
        store = self.store(block, start + row, panel, tile)
        if plan.steps > 1:
            last = Condition(index(self.step), plan.steps - 1, plan.steps)
            store = (If((last,), store),)
        work += store
        inner: Body = (Loop(tile, Axis.SERIAL, tuple(work)),)
        if plan.right is Use.PACKED and not plan.packs_at_once:
            inner = (*self.pack_right(panel), *inner)
        body: Body = (Loop(panel, Axis.SERIAL, inner),)
        if plan.left is Use.PACKED:
            body = (*self.pack_left(start), *body)
        body = (Loop(block, Axis.SERIAL, body),) if plan.row_blocks > 1 else body
        if plan.right is Use.PACKED and plan.packs_at_once:
            body = (*self.pack_right(panel), *body)
        return body

    def product(self, block: Var, start: Index, row: Index, panel: Var, tile: Var) -> TileProduct:
        plan = self.plan
        rows: list[Index] = []
        for r in range(plan.rows):
            match self.left:
                case InPlace(place=place):
                    here = plan.m.at(self.m_block, plan.m.unravel(start + row + r))
                    rows.append(place.at(self.origin(here)))
                case Staged():
                    inner = plan.m.within(plan.m.unravel(start + row + r))
                    rows.append(self.left.address(inner))
                case _:
                    rows.append((row + r) * plan.depth)
        vectors: list[Index] = []
        for v in range(plan.vectors):
            inside = self.unit(panel, v)
            match self.right:
                case InPlace(place=place):
                    here = plan.n.at(self.n_block, inside)
                    vectors.append(place.at(self.origin(here)))
                case Staged():
                    vectors.append(self.right.address(plan.n.within(inside)))
                case _:
                    base = (
                        index(panel) * (plan.depth * plan.columns) if plan.packs_at_once else ZERO
                    )
                    vectors.append(base + v * plan.lanes)
        number = (index(block) * plan.panels + index(panel)) * plan.row_tiles + index(tile)
        size = plan.rows * plan.columns
        depth, left_step, right_step = merged(self.depth, self.left_step(), self.right_step())
        return TileProduct(
            memory_of(self.left), tuple(rows), left_step,
            memory_of(self.right), tuple(vectors), right_step,
            depth, self.tile, number * size if plan.steps > 1 else ZERO,
            plan.columns, plan.lanes, plan.steps > 1,
        )  # fmt: skip

    def left_step(self) -> Index:
        if isinstance(self.left, Memory):
            return self.flat_depth
        return self.step_of(self.left)

    def right_step(self) -> Index:
        if isinstance(self.right, Memory):
            return self.flat_depth * self.plan.columns
        return self.step_of(self.right)

    def step_of(self, operand: InPlace | Staged) -> Index:
        """How far a point of the depth lies from the block's origin."""
        if isinstance(operand, InPlace):
            return Affine(0, operand.place.coefficients).at(self.k)
        return operand.address(self.k) - operand.address({})

    def unit(self, panel: Var, vector: int | Var) -> list[Index]:
        """Where a vector of a panel begins, as an index into the chunk's columns."""
        plan = self.plan
        units = 1
        for extent in plan.units:
            units *= extent
        first = at_most(index(panel) * plan.vectors, units - plan.vectors)
        here = first + (index(vector) if isinstance(vector, Var) else vector)
        *outer, last = unravel(here, plan.units)
        extent = plan.n.inside[-1]
        return [*outer, at_most(last * plan.lanes, max(extent - plan.lanes, 0))]

    # --- packing -----------------------------------------------------------------------------

    def pack_right(self, panel: Var) -> Body:
        """right[panel][k][column], by vectors along the columns."""
        plan = self.plan
        at_once = [panel] if plan.packs_at_once else []
        if self.right_lies_along_depth():
            return self.pack_right_turned(panel, at_once)
        unit = Var("unit", plan.vectors)
        extent = min(plan.lanes, plan.n.inside[-1])
        lane = Var("lane", extent)
        store = self.pack_column(panel, unit, index(lane), self.depth_positions())
        body: Body = (vector_loop(lane, (store,), plan.lanes),)
        if extent < plan.lanes:
            rest = Var("rest", plan.lanes - extent)
            place = store.index - index(lane) + extent + index(rest)
            zero = Store(store.memory, place, literal(0, self.node.dtype))
            body = (*body, Loop(rest, Axis.SERIAL, (zero,)))
        return nested([*self.depth, *at_once, unit], body)

    def right_lies_along_depth(self) -> bool:
        """Whether neighbours of the right operand are neighbours along the depth."""
        source, plan = self.right_source, self.plan
        if source is None or plan.n.inside[-1] < plan.lanes or plan.k.inside[-1] < plan.lanes:
            return False
        flat = source.flat()
        across = flat.coefficient(self.contraction.n[-1])
        return flat.coefficient(self.contraction.k[-1]) == 1 and across != 1

    def pack_right_turned(self, panel: Var, at_once: list[Var]) -> Body:
        """All columns of a panel side by side, by vectors along the depth: the renderer turns
        blocks of them around in registers."""
        plan = self.plan
        *outer, along = self.depth
        columns = ((v, lane) for v in range(plan.vectors) for lane in range(plan.lanes))
        stores = tuple(
            self.pack_column(panel, v, constant(lane), self.depth_positions())
            for v, lane in columns
        )
        return nested([*outer, *at_once], (vector_loop(along, stores, plan.lanes),))

    def pack_column(
        self, panel: Var, unit: int | Var, lane: Index, k: tuple[Positions, Index]
    ) -> Store:
        """right[panel][k][unit and lane] = the operand there."""
        plan = self.plan
        assert isinstance(self.right, Memory)
        *outer, start = self.unit(panel, unit)
        here = plan.n.at(self.n_block, [*outer, start + lane])
        at = self.positions(joined(self.origin(here), k[0]))
        value = self.lowering.value(self.contraction.right, at, ())
        base = index(panel) * (plan.depth * plan.columns) if plan.packs_at_once else ZERO
        number = index(unit) if isinstance(unit, Var) else constant(unit)
        return Store(self.right, base + k[1] * plan.columns + number * plan.lanes + lane, value)

    def depth_positions(self, last: Index | None = None) -> tuple[Positions, Index]:
        """A point of the depth: positions from the origin, and its number within the step."""
        inside = [index(var) for var in self.depth]
        if last is not None:
            inside[-1] = last
        return self.plan.k.within(inside), linear(inside, self.plan.k.inside)

    def pack_left(self, start: Index) -> Body:
        """left[row][k]: by vectors along the depth, or along the rows where the operand is
        contiguous there; then a square of both is turned around in registers."""
        plan = self.plan
        row = Var("row", plan.block_rows)
        *outer, along = self.depth
        square = min(plan.block_rows, plan.k.inside[-1]) >= plan.lanes
        if self.layout.by_row or not square:
            store = self.pack_row(start, row, self.depth_positions())
            return nested([row, *outer], (vector_loop(along, (store,), plan.lanes),))
        group = Var("group", ceil_div(along.extent, plan.lanes))
        first = at_most(index(group) * plan.lanes, along.extent - plan.lanes)
        stores = tuple(
            self.pack_row(start, row, self.depth_positions(first + k)) for k in range(plan.lanes)
        )
        return nested([*outer, group], (vector_loop(row, stores, plan.lanes),))

    def pack_row(self, start: Index, row: Var, k: tuple[Positions, Index]) -> Store:
        """left[row][k] = the operand there."""
        plan = self.plan
        assert isinstance(self.left, Memory)
        here = plan.m.at(self.m_block, plan.m.unravel(start + index(row)))
        at = self.positions(joined(self.origin(here), k[0]))
        value = self.lowering.value(self.contraction.left, at, ())
        return Store(self.left, index(row) * plan.depth + k[1], value)

    def positions(self, at: Positions) -> list[Index]:
        return [at.get(axis, ZERO) for axis in range(len(self.shape))]

    # --- results -----------------------------------------------------------------------------

    def store(self, block: Var, row: Index, panel: Var, tile: Var) -> Body:
        """Results of one tile, by vectors along the columns, or along the rows where columns are
        fewer than a vector has lanes."""
        plan = self.plan
        r, v = Var("r", plan.rows), Var("v", plan.vectors)
        lane = Var("lane", min(plan.lanes, plan.n.inside[-1]))
        *outer, start = self.unit(panel, v)
        here = {
            **self.batch,
            **plan.m.at(self.m_block, plan.m.unravel(row + index(r))),
            **plan.n.at(self.n_block, [*outer, start + index(lane)]),
        }
        number = (index(block) * plan.panels + index(panel)) * plan.row_tiles + index(tile)
        first = number * (plan.rows * plan.columns) if plan.steps > 1 else ZERO
        source = first + index(r) * plan.columns + index(v) * plan.lanes + index(lane)
        result = self.kernel.graph.results[0]
        where = [ZERO] * len(result.shape)
        at = self.positions(here)
        kept = [position for axis, position in enumerate(at) if axis not in self.node.axes]
        for position, axis in zip(kept, self.layout.places, strict=True):
            if axis is not None:
                where[axis] = position
        self.lowering.sum = Load(self.tile, source)
        value = self.lowering.value(result, where, ())
        body: Body = (Store(self.writes[0], linear(where, result.shape), value),)
        if lane.extent < plan.lanes:
            return nested([v, lane], (vector_loop(r, body, plan.lanes),))
        return nested([r, v], (vector_loop(lane, body, plan.lanes),))


def nested(variables: Sequence[Var], body: Body) -> Body:
    """Loops around `body`, the last variable innermost."""
    for var in reversed(variables):
        body = (Loop(var, Axis.SERIAL, body),) if var.extent > 1 else body
    return body


def memory_of(operand: InPlace | Staged | Memory) -> Memory:
    return operand if isinstance(operand, Memory) else operand.memory


def guarded(condition: Condition, statement: Statement) -> Statement:
    return statement if condition.always else If((condition,), (statement,))


__all__ = [
    "Layout",
    "TileLowering",
    "find_layout",
    "guarded",
    "lower_contraction",
    "operand_strides",
    "vector_loop",
]
