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
from dataclasses import replace
from math import prod

from tinyhlo.codegen.bodies import below, nest_of, substituted
from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.contraction.ahead import memory_ahead, next_step
from tinyhlo.codegen.contraction.cut import Cut, joined
from tinyhlo.codegen.contraction.groups import whole_groups
from tinyhlo.codegen.contraction.layout import Layout, only_product, operand_strides
from tinyhlo.codegen.contraction.operand import (
    SHORTEST,
    Affine,
    InPlace,
    Source,
    Staged,
    cast,
    find_source,
    in_lanes,
    in_place,
    merged,
    stage,
    vector_loop,
)
from tinyhlo.codegen.contraction.pack import Frame, depth_of, pack_left, pack_right
from tinyhlo.codegen.contraction.plan import Plan, Use
from tinyhlo.codegen.contraction.planner import plan_contraction
from tinyhlo.codegen.contraction.worth import is_along_batch, is_along_rows
from tinyhlo.codegen.expressions import Apply, Expression, Load, Memory, literal
from tinyhlo.codegen.loops import (
    Allocate,
    Axis,
    Bind,
    Body,
    HoldMatrices,
    If,
    Loop,
    LoopProgram,
    Place,
    Statement,
    Store,
    TileProduct,
    nested,
)
from tinyhlo.codegen.lowering.fused import Lowering, LoweringAround
from tinyhlo.codegen.moves.work import cost
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.graph import Reduce
from tinyhlo.ir.index import ZERO, Index, Var, at_each, constant, index, linear, substitute, unravel
from tinyhlo.ir.ops import Op
from tinyhlo.numbers import ceil_div, round_up
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import NEAR, Target

Operand = InPlace | Staged | Memory  # in an argument, in a box of scratch, packed
PARALLEL_SUMS = 1 << 14  # of all parts of the depth, that are worth another thread
SMALL_WORK = 1 << 20  # multiply-adds that may be as quick without tiles
# Operations an element of an epilogue that is written out for a whole tile, and that may be done in
# vectors which are short and overlap
MOST_UNROLLED = 8


def lower_contraction(kernel: Kernel, target: Target, moves: Moves) -> LoopProgram | None:
    """The LoopProgram of a contraction kernel, its moves chosen; None for any other kernel and for
    contractions that the general lowering does as well."""
    found = None if kernel.in_place else only_product(kernel, target)
    if found is None:
        return None
    node, layout = found
    left, right = find_source(layout.contraction.left), find_source(layout.contraction.right)
    lowering, c = Lowering(kernel), layout.contraction
    near = operand_strides(lowering, c.right)[c.k[-1]] <= NEAR
    if near and is_along_rows(layout, node.dtype, target, right, lowering):
        return None
    if is_along_batch(layout, node.dtype, target, lowering):
        return None
    computed = right is not None and in_lanes(layout, lowering)
    tried = Moves(moves.asked)
    plan = plan_contraction(layout, node.dtype, target, left, right, computed, near, tried)
    if plan is None:
        return None
    small = prod(layout.contraction.left.shape) <= SMALL_WORK
    if small and not moves.choose("product", {"tiles": True, "loops": False}):
        return None
    moves.adopt(tried)
    if plan.left is Use.STAGED:
        layout, left = whole_groups(layout, plan.form, target, left)
    return Builder(kernel, node, layout, plan, left, right).program()


class Builder:
    """Builds the loops around a TileProduct."""

    def __init__(
        self, kernel: Kernel, node: Reduce, layout: Layout, plan: Plan, left: Source | None,
        right: Source | None,
    ) -> None:  # fmt: skip
        self.kernel, self.node, self.layout, self.plan = kernel, node, layout, plan
        c = layout.contraction
        self.lowering = LoweringAround(kernel, node)
        self.chunk, self.step = Var("chunk", plan.chunks), Var("step", plan.steps)
        self.block, self.piece = Var("block", plan.row_blocks), Var("piece", plan.n.blocks)
        self.part, batch, m_block, n_block = unravel(
            index(self.chunk), (plan.parts, plan.batch, plan.m.blocks, plan.n.blocks)
        )
        n_block = index(self.piece) if plan.shared else n_block
        extents = tuple(c.left.shape[axis] for axis in c.batch)
        self.frame = Frame(
            layout, plan, self.lowering, dict(zip(c.batch, unravel(batch, extents), strict=True)),
            m_block, n_block, self.step, self.block, self.piece,
            Var("panels", ceil_div(plan.panels, plan.together)),
        )  # fmt: skip
        self.depth = depth_of(plan, plan.form.group)
        self.right_source = right
        self.left, self.right = self.operand_left(left), self.operand_right(right)
        tiles = self.held_tiles * plan.panels if plan.steps > 1 else 1
        self.sums = tiles * plan.rows * plan.columns  # of a chunk
        self.tile = Memory("tile", plan.form.sums, self.sums * plan.parts, local=True)

    @property
    def held_tiles(self) -> int:
        """Tiles of rows whose sums wait for further steps."""
        return self.plan.block_tiles if self.plan.shared else self.plan.row_tiles

    def operand_left(self, source: Source | None) -> Operand:
        plan = self.plan
        form, size = plan.form, plan.left_size * (plan.steps if plan.shared else 1)
        across = form.group > 1 or not self.layout.by_row
        fast = self.layout.contraction.k[-1] if across else None
        memory = Memory("left", form.left, size, local=True)
        return self.operand(memory, plan.left, source, plan.m, fast, form.bias)

    def operand_right(self, source: Source | None) -> Operand | None:
        plan = self.plan
        if plan.right is Use.IN_REGISTERS:
            return None
        size = plan.right_size * (plan.steps * plan.n.blocks if plan.shared else 1)
        memory = Memory("right", plan.form.right, size, local=True)
        return self.operand(memory, plan.right, source, plan.n, self.layout.contraction.n[-1])

    def operand(
        self, packed: Memory, use: Use, source: Source | None, side: Cut, fast: int | None,
        bias: int = 0,
    ) -> Operand:  # fmt: skip
        """Where a factor is read: where it lies, in a box of its source, or `packed`."""
        if use is Use.IN_PLACE and source:
            return in_place(source, self.lowering.reads)
        if use is Use.STAGED and source:
            inner = side.inner_extents() | self.plan.k.inner_extents()
            return stage(packed.name, source, packed.dtype, inner, self.lowering, fast, bias)
        return packed

    # --- the nest ----------------------------------------------------------------------------

    def program(self) -> LoopProgram:
        plan = self.plan
        if plan.shared:
            body = self.packed_first()
        else:
            memories = [m for m in (self.left, self.right) if isinstance(m, Memory)]
            memories += [s.memory for s in (self.left, self.right) if isinstance(s, Staged)]
            body = (*map(Allocate, memories), *self.clear(), *self.steps())
            body = self.with_matrices(self.with_tile(body) if plan.parts == 1 else body)
            if plan.chunks > 1:
                body = (Loop(self.chunk, Axis.PARALLEL, body),)
            if plan.parts > 1:
                body = (Allocate(self.tile), *body, *self.add_parts())
        return self.lowering.program(body, plan.moves())

    def packed_first(self) -> Body:
        """All of both operands is packed, then multiplied chunk by chunk."""
        plan = self.plan
        assert self.right is not None
        right = memory_of(self.right)
        body: Body = (Allocate(right), *self.pack_right(Var("panel", plan.panels)))
        if plan.left is Use.PACKED:
            body += (Allocate(memory_of(self.left)), *self.pack_left())
        piece, block = unravel(index(self.chunk), (plan.n.blocks, plan.row_blocks))
        product: Body = (
            Bind(self.piece, piece),
            Bind(self.block, block),
            *self.with_matrices(self.with_tile((*self.clear(), *nested([self.step], self.rows())))),
        )
        return (*body, Loop(self.chunk, Axis.PARALLEL, product))

    def with_tile(self, body: Body) -> Body:
        """With room for sums, unless they are stored where results lie."""
        products = (s for s in below(body) if isinstance(s, TileProduct))
        held = any(product.tile == self.tile for product in products)
        return (Allocate(self.tile), *body) if held else body

    def with_matrices(self, body: Body) -> Body:
        """With the registers that hold matrices, if tiles are products of those."""
        plan = self.plan
        if not plan.form.of_matrices:
            return body
        return (HoldMatrices(plan.rows, plan.vectors), *body, HoldMatrices(0, 0))

    def clear(self) -> Body:
        if self.plan.steps == 1:
            return ()
        at = Var("at", self.sums)
        zero = Store(self.tile, self.first_sum + index(at), literal(0, self.tile.dtype))
        return (vector_loop(at, (zero,), self.plan.lanes),)

    @property
    def first_sum(self) -> Index:
        """Where the sums of the current part of the depth begin."""
        return self.part * self.sums if self.plan.parts > 1 else ZERO

    def add_parts(self) -> Body:
        """Results from the sums of all parts of the depth."""
        plan = self.plan
        panel, tile = Var("panel", plan.panels), Var("rows", plan.row_tiles)
        number = index(panel) * self.held_tiles + index(tile)
        first = number * (plan.rows * plan.columns)
        body = self.frame.tiles(tile, self.store(self.frame.row(tile), panel, first))
        axis = Axis.PARALLEL if self.tile.size >= PARALLEL_SUMS else Axis.SERIAL
        return (Loop(panel, axis, nested([self.block], body)),)

    def steps(self) -> Body:
        plan = self.plan
        body: list[Statement] = []
        if isinstance(self.left, Staged):
            origin = self.frame.origin(plan.m.origin(self.frame.m_block))
            body += self.left.copy(self.lowering, origin, plan.lanes)
        if isinstance(self.right, Staged):
            origin = self.frame.origin(plan.n.origin(self.frame.n_block))
            body += self.right.copy(self.lowering, origin, plan.lanes)
        if plan.right is Use.PACKED and (plan.row_blocks > 1 or plan.by_rows):
            body += self.pack_right(Var("panel", plan.panels))
        rows = self.rows()
        if plan.left is Use.PACKED:
            rows = (*self.pack_left(), *rows)
        body += nested([self.block], rows)
        if plan.parts > 1:
            count = plan.steps // plan.parts
            return (Loop(self.step, Axis.SERIAL, tuple(body), 1, self.part * count, count),)
        return nested([self.step], tuple(body))

    def rows(self) -> Body:
        """A block of rows times all columns of the chunk."""
        plan = self.plan
        panel, tile = Var("panel", plan.panels), Var("rows", plan.row_tiles)
        number = self.frame.in_block(tile) if plan.shared else index(tile)
        number = index(panel) * self.held_tiles + number
        first = number * (plan.rows * plan.columns) if plan.steps > 1 else ZERO
        multiply = self.product(tile, panel, self.first_sum + first)
        store = self.store(self.frame.row(tile), panel, first) if plan.parts == 1 else ()
        if plan.steps == 1:
            multiply = replace(multiply, ahead=memory_ahead(store))
            multiply, store = straight(multiply, store)
        elif store:
            last = Condition(index(self.step), plan.steps - 1, plan.steps)
            store = (If((last,), store),)
        if plan.by_rows:
            return self.frame.tiles(tile, (Loop(panel, Axis.SERIAL, (multiply, *store)),))
        body = self.frame.tiles(tile, (multiply, *store))
        if plan.shared or plan.right is not Use.PACKED or plan.row_blocks > 1:
            return (Loop(panel, Axis.SERIAL, body),)
        body = (*self.pack_right(panel), *self.frame.panels(panel, body))
        return nested([self.frame.group], body)

    def product(self, tile: Var, panel: Var, first: Index) -> TileProduct:
        plan = self.plan
        lane = Var("lane", plan.lanes)
        values: tuple[Expression, ...] = ()
        ahead: tuple[Place, ...] = ()
        depth, left_step = self.depth.loops, self.step_of(self.left, plan.left_step)
        right, right_step, early = None, ZERO, 0
        if self.right is None:
            values = tuple(self.computed(panel, v, lane) for v in range(plan.vectors))
            if plan.steps > 1:
                ahead = next_step(values, lane, self.step, depth)
        else:
            right, right_step = memory_of(self.right), self.step_of(self.right, plan.columns)
            if plan.depth > round_up(plan.k.positions, plan.form.group):  # zeros follow
                whole = Var("group", plan.depth // plan.form.group)
                depth, number = (whole,), index(whole) * plan.form.group
                left_step, right_step = number * plan.left_step, number * plan.columns
            depth, left_step, right_step = merged(depth, left_step, right_step)
            step = right_step.coefficient(depth[-1]) if depth else 0  # one group is all of a depth
            early = plan.fetched * (plan.columns if plan.streamed else step or 0)
        return TileProduct(
            memory_of(self.left), self.row_starts(tile), left_step,
            right, self.vector_starts(panel), right_step,
            depth, self.tile, tuple(first + v * plan.lanes for v in range(plan.vectors)),
            plan.columns, plan.lanes, plan.steps > 1, plan.form.group, plan.form.bias,
            plan.form.deep, ahead, fetched=early, values=values, lane=lane if values else None,
        )  # fmt: skip

    def row_starts(self, tile: Var) -> tuple[Index, ...]:
        """Where the rows of a tile begin in the left operand."""
        plan, frame = self.plan, self.frame
        if isinstance(self.left, Memory):
            start = frame.tile_start(tile)
            return tuple(start + r * plan.left_row for r in range(plan.rows))
        inside = [plan.m.unravel(frame.row(tile) + r) for r in range(plan.rows)]
        return self.addresses(self.left, plan.m, frame.m_block, inside)

    def vector_starts(self, panel: Var) -> tuple[Index, ...]:
        """Where the vectors of a panel begin in the right operand, if it lies in memory."""
        plan, frame = self.plan, self.frame
        if self.right is None:
            return ()
        if isinstance(self.right, Memory):
            start, size = frame.panel_start(panel), plan.lanes * plan.form.group
            return tuple(start + v * size for v in range(plan.vectors))
        inside = [frame.unit(panel, v) for v in range(plan.vectors)]
        return self.addresses(self.right, plan.n, frame.n_block, inside)

    def addresses(
        self, operand: InPlace | Staged, cut: Cut, block: Index, inside: Sequence[Sequence[Index]]
    ) -> tuple[Index, ...]:
        """Where points within a block lie in an operand that is not packed."""
        if isinstance(operand, Staged):
            return tuple(operand.address(cut.within(at)) for at in inside)
        here = (cut.at(block, at) for at in inside)
        return tuple(operand.place.at(self.frame.origin(at)) for at in here)

    def computed(self, panel: Var, vector: int, lane: Var) -> Expression:
        """A vector of a panel of the right operand, for the tile to compute."""
        *outer, start = self.frame.unit(panel, vector)
        here = self.plan.n.at(self.frame.n_block, [*outer, start + index(lane)])
        at = joined(self.frame.origin(here), self.depth.points[0])
        return self.frame.value(self.layout.contraction.right, at, self.plan.form.right)

    def step_of(self, operand: Operand, packed: int) -> Index:
        """How far a point of the depth lies from the block's origin; so many rows or columns are
        packed side by side."""
        if isinstance(operand, Memory):
            return self.depth.number * (self.plan.form.group * packed)
        if isinstance(operand, InPlace):
            return Affine(0, operand.place.coefficients).at(self.depth.points[0])
        return operand.address(self.depth.points[0]) - operand.address({})

    def pack_left(self) -> Body:
        return pack_left(self.frame, memory_of(self.left))

    def pack_right(self, panel: Var) -> Body:
        assert self.right is not None
        return pack_right(self.frame, self.depth, memory_of(self.right), self.right_source, panel)

    # --- results -----------------------------------------------------------------------------

    def store(self, row: Index, panel: Var, first: Index) -> Body:
        """Results of one tile, by vectors along the columns, or along the rows where columns are
        few and lie across memory or are dear, and where rows are places of an image by channels.
        Where rows are neighbours in the result, vectors of all of them are shuffled."""
        plan = self.plan
        r, v = Var("r", plan.rows), Var("v", plan.vectors)
        lane = Var("lane", min(plan.lanes, plan.n.inside[-1]))
        *outer, start = self.frame.unit(panel, v)
        here = {
            **self.frame.batch,
            **plan.m.at(self.frame.m_block, plan.m.unravel(row + index(r))),
            **plan.n.at(self.frame.n_block, [*outer, start + index(lane)]),
        }
        source = first + index(r) * plan.columns + index(v) * plan.lanes + index(lane)
        result = self.kernel.graph.results[0]
        where = self.layout.in_result(self.frame.positions(here), result)
        total: Expression = Load(self.tile, source)
        for part in range(1, plan.parts):
            total = Apply(Op.ADD, (total, Load(self.tile, source + part * self.sums)), total.dtype)
        total = cast(total, self.node.dtype)
        value = self.lowering.value_after(total, result, where)
        place = linear(where, result.shape)
        body: Body = (Store(self.lowering.writes[0], place, value),)
        dear = cost(value) > MOST_UNROLLED
        along, across = place.coefficient(lane) == 1, place.coefficient(r) == 1
        least = 2 * SHORTEST if dear else SHORTEST
        few = lane.extent < plan.lanes and not (along and lane.extent >= least)
        if few or (across and self.layout.by_channels):
            return nested([v, lane], (vector_loop(r, body, plan.lanes),))
        if across and not (along or dear):
            body = tuple(s for k in range(plan.rows) for s in substituted(body, {r: constant(k)}))
            return (Loop(v, Axis.UNROLL, (vector_loop(lane, body, plan.lanes),)),)
        body = (vector_loop(lane, body, plan.lanes),)
        if dear or len(plan.m.inside) > 1:  # each row has its own divisions
            return nested([r, v], body)
        return (Loop(r, Axis.UNROLL, (Loop(v, Axis.UNROLL, body),)),)


def straight(multiply: TileProduct, store: Body) -> tuple[TileProduct, Body]:
    """What multiplies a tile and what stores its results. Where those are the sums as they are, and
    rows lie at even distances, the product stores them itself, and nothing else is left to do."""
    *outer, innermost = nest_of(store[0])
    last, lane = innermost.body[-1], innermost.var
    if not (isinstance(last, Store) and isinstance(last.value, Load)):
        return multiply, store
    sums, results = last.value.index, last.index
    strides = {sums.coefficient(loop.var): loop.var for loop in outer if loop.var.extent > 1}
    r = strides.pop(multiply.tile_row, Var("r", 1))
    v = strides.pop(multiply.lanes, Var("v", 1))
    row, along = results.coefficient(r), sums.coefficient(lane)
    whole = lane.extent == multiply.lanes and along == results.coefficient(lane) == 1
    if row is None or strides or not whole or last.value.memory != multiply.tile:
        return multiply, store
    vectors = at_each(substitute(results, {r: ZERO, lane: ZERO}), v)
    return replace(multiply, tile=last.memory, tile_vectors=vectors, tile_row=row), ()


def memory_of(operand: Operand) -> Memory:
    return operand if isinstance(operand, Memory) else operand.memory
