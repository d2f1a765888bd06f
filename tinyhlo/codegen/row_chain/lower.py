"""Attention and its like as one kernel: contraction, work on whole rows, contraction.

In: a Kernel that holds a RowChain (`schedule/row_chain.py`). Out: a LoopProgram in which the
scores of a few rows at a time live in scratch that stays in the cache; they never reach memory:

    for chunk in 32 parallel:                     # batch x blocks of rows
      pack keys and values into panels of 16 columns
      for block in 43:
        pack 12 queries
        for panel in 32: for rows in 2:
          scores = queries * keys                 # 6x16 accumulators in registers
        for r in 12:                              # softmax, or whatever the program does to a row
          max0 = ...; add0 = ...
          for j in 512: weights[r*512 + j] = exp(scores[r*512 + j] - max0) / add0
        for panel in 4: for rows in 2:
          tile = weights * values
          y[...] = epilogue(tile)

A whole row is there before it is worked on, so every value is computed exactly as by separate
kernels, whatever the work on rows is: no running maximum, no rescaling
(docs/decisions/0020-attention-by-rows.md).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.contraction.ahead import memory_ahead
from tinyhlo.codegen.contraction.layout import Layout, find_layout
from tinyhlo.codegen.contraction.operand import cast, zeros
from tinyhlo.codegen.expressions import Expression, Load, Memory, literal
from tinyhlo.codegen.loops import (
    Allocate,
    Axis,
    Body,
    HoldMatrices,
    If,
    Loop,
    LoopProgram,
    Statement,
    Store,
    TileProduct,
    guarded,
)
from tinyhlo.codegen.lowering.fused import LoweringAround, Position, Scope, letter
from tinyhlo.codegen.moves.basic import join
from tinyhlo.codegen.moves.staging import stage_rows
from tinyhlo.codegen.moves.vectors import vectorised
from tinyhlo.codegen.row_chain.mask import needed_tile
from tinyhlo.codegen.row_chain.pack import Packing, choose_sizes
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.graph import Param
from tinyhlo.ir.index import ZERO, Index, Var, constant, index, linear, unravel
from tinyhlo.numbers import ceil_div
from tinyhlo.schedule.program import Kernel
from tinyhlo.schedule.row_chain import RowChain, find_row_chain
from tinyhlo.target import Target


def lower_row_chain(kernel: Kernel, target: Target, moves: Moves) -> LoopProgram | None:
    """The LoopProgram of a kernel that holds a row chain, its moves chosen; None for others."""
    if len(kernel.graph.results) != 1 or kernel.in_place:
        return None
    chain = chain_in(kernel)
    if chain is None:
        return None
    layout = find_layout(kernel, chain.result, chain.second)
    if layout is None:
        return None
    return Builder(kernel, chain, layout, target, moves).program()


def chain_in(kernel: Kernel) -> RowChain | None:
    """The chain whose result comes last."""
    for node in reversed(kernel.graph.nodes()):
        chain = find_row_chain(node, lambda n: isinstance(n, Param))
        if chain is not None:
            return chain
    return None


class Builder:
    """Builds the loops. Rows are flat positions along the row axes of the second contraction."""

    def __init__(
        self, kernel: Kernel, chain: RowChain, layout: Layout, target: Target, moves: Moves
    ) -> None:
        self.kernel, self.chain, self.target = kernel, chain, target
        self.layout = layout
        self.sizes = choose_sizes(chain, target, moves)
        self.packing = Packing(kernel, chain, self.sizes)
        self.tables = self.packing.operands.tables
        self.epilogue = LoweringAround(kernel, chain.result, tables=self.tables)
        self.moves = moves
        self.batch = chain.second.extent(chain.second.batch)
        self.chunk = Var("chunk", self.batch * self.sizes.row_chunks)
        sizes, dtype = self.sizes, chain.result.dtype
        rows = sizes.block_rows * sizes.stride
        self.scores = Memory("scores", dtype, rows, local=True)
        self.weights = Memory("weights", sizes.form.left, rows, local=True)
        self.tile = Memory("tile", dtype, sizes.block_rows * sizes.columns, local=True)

    # --- the nest ----------------------------------------------------------------------------

    def program(self) -> LoopProgram:
        sizes, packing = self.sizes, self.packing
        packed = (packing.keys, packing.values, packing.queries)
        batch, part = unravel(index(self.chunk), (self.batch, sizes.row_chunks))
        block = Var("block", ceil_div(sizes.chunk_rows, sizes.block_rows))
        row = part * sizes.chunk_rows + index(block) * sizes.block_rows
        rows = self.work_on_rows(batch, row)
        work: Body = (
            *self.packing.pack_queries(batch, row),
            self.first_product(row, rows),
            *rows,
            self.second_product(batch, row),
        )
        local = (*packed, self.scores, self.weights, self.tile)
        work = guarded(work, Condition(row, 0, packing.row_count))  # the last chunk may hold fewer
        body: Body = (
            *(Allocate(memory) for memory in local),
            *self.packing.pack_keys(batch),
            *self.packing.pack_values(batch),
            Loop(block, Axis.SERIAL, work),
        )
        if sizes.form.of_matrices:
            vectors = sizes.columns // sizes.lanes
            body = (HoldMatrices(sizes.rows, vectors), *body, HoldMatrices(0, 0))
        if self.chunk.extent > 1:
            body = (Loop(self.chunk, Axis.PARALLEL, body),)
        moves = (
            f"parallel {self.batch}x{sizes.row_chunks} chunks",
            f"block {sizes.block_rows} rows of scores",
            "stage queries, keys, values, scores, weights",
            f"tile {sizes.rows}x{sizes.columns}",
            *((str(sizes.form),) if sizes.form.group > 1 else ()),
            *self.moves,
        )
        return self.epilogue.program(body, moves)

    def first_product(self, row: Index, rows: Body) -> Statement:
        """All scores of a block but those that its mask hides."""
        sizes, packing = self.sizes, self.packing
        panel, tile = Var("panel", packing.key_panels), Var("rows", self.tiles)
        product = self.product(
            packing.queries, index(tile) * sizes.rows, packing.keys, index(panel),
            self.scores, index(tile) * (sizes.rows * sizes.stride) + index(panel) * sizes.columns,
        )  # fmt: skip
        first_key = index(panel) * sizes.columns
        spans = {
            Var(letter(0), self.chain.keys): (first_key, first_key + (sizes.columns - 1)),
            Var("r", sizes.block_rows): (ZERO, constant(sizes.block_rows - 1)),
        }
        body: Body = (self.over_tiles(tile, row, (product,)),)
        seen = needed_tile(rows, self.scores, spans)
        if seen:
            self.moves.append("skip hidden scores")
            body = (If(seen, body),)
        return Loop(panel, Axis.SERIAL, body)

    def second_product(self, batch: Index, row: Index) -> Statement:
        """Results of a block, panel by panel; long rows in steps, so that a step's part of the
        values stays in L1 for all tiles of the block."""
        sizes = self.sizes
        panel, tile = Var("panel", self.packing.value_panels), Var("rows", self.tiles)
        step = Var("step", self.packing.key_depth // sizes.step_keys)
        first = index(tile) * sizes.rows
        over_tiles = partial(self.over_tiles, tile, row)
        product = self.product(
            self.weights, first, self.packing.values, index(panel), self.tile,
            index(tile) * (sizes.rows * sizes.columns), index(step) * sizes.step_keys,
        )  # fmt: skip
        store = self.store(batch, row + first, index(panel), index(tile))
        product = replace(product, ahead=memory_ahead(plain_nest(store)))
        if step.extent == 1:
            return Loop(panel, Axis.SERIAL, (over_tiles((product, *store)),))
        lane = Var("lane", self.tile.size)
        zero = Store(self.tile, index(lane), literal(0, self.tile.dtype))
        body: Body = (
            Loop(lane, Axis.VECTOR, (zero,), width=sizes.lanes),
            Loop(step, Axis.SERIAL, (over_tiles((product,)),)),
            over_tiles(store),
        )
        return Loop(panel, Axis.SERIAL, body)

    def over_tiles(self, tile: Var, row: Index, body: Body) -> Statement:
        """`body` for each tile that has rows; the last block may have fewer."""
        existing = Condition(row + index(tile) * self.sizes.rows, 0, self.packing.row_count)
        return Loop(tile, Axis.SERIAL, guarded(body, existing))

    @property
    def tiles(self) -> int:
        return self.sizes.block_rows // self.sizes.rows

    def product(
        self,
        left: Memory,
        row: Index,
        right: Memory,
        panel: Index,
        tile: Memory,
        start: Index,
        begin: Index = ZERO,
    ) -> TileProduct:
        """tile[start..] = rows of `left` from `row` on, times a packed panel of `right`; one step
        from `begin` on of the second product."""
        sizes, packing, group = self.sizes, self.packing, self.sizes.form.group
        first = left is packing.queries
        whole = packing.depth if first else packing.key_depth
        taken = whole if first else sizes.step_keys
        depth = Var("depth", taken // group)
        left_row = packing.depth if first else sizes.stride
        right_start = (panel * whole + begin) * sizes.columns
        return TileProduct(
            left,
            tuple((row + r) * left_row + begin for r in range(sizes.rows)),
            index(depth) * group,
            right,
            tuple(right_start + lane * group for lane in range(0, sizes.columns, sizes.lanes)),
            index(depth) * (sizes.columns * group),
            (depth,),
            tile,
            tuple(start + lane for lane in range(0, sizes.columns, sizes.lanes)),
            sizes.stride if first else sizes.columns,
            sizes.lanes,
            accumulate=taken != whole,
            group=group,
            deep=sizes.form.deep,
        )

    # --- rows --------------------------------------------------------------------------------

    def work_on_rows(self, batch: Index, row: Index) -> Body:
        """weights[r] = what the program computes from scores[r], by the general lowering."""
        sizes, chain = self.sizes, self.chain
        r = Var("r", sizes.block_rows)
        start = index(r) * sizes.stride

        def read(at: Position) -> Expression:
            return Load(self.scores, start + at[chain.key])

        lowering = LoweringAround(self.kernel, chain.scores, read, self.tables)
        key = Var(letter(0), chain.keys)
        scope = Scope(lowering.root, key, 1)
        lowering.root.children[key] = scope
        at = self.packing.second_at(batch, row + index(r), ZERO, index(key))
        value = lowering.emit(chain.second.left, lowering.position(tuple(at)), scope, ())
        value = cast(value, self.weights.dtype)
        scope.stores.append(Store(self.weights, start + index(key), value))

        body = join(lowering.root.body())
        body += zeros(self.weights, start, chain.keys, self.packing.key_depth)
        body = tuple(vectorised(s, self.target, self.moves) for s in body)
        (whole,) = stage_rows((Loop(r, Axis.SERIAL, body),), self.target, self.moves)
        assert isinstance(whole, Loop)
        inside = Condition(row + index(r), 0, self.packing.row_count)
        return (Loop(r, Axis.SERIAL, guarded(whole.body, inside)),)

    # --- results -----------------------------------------------------------------------------

    def store(self, batch: Index, row: Index, panel: Index, tile: Index) -> Body:
        """Results of one tile: whole rows of vectors, or lane by lane at the right edge."""
        sizes = self.sizes
        r, lane = Var("r", sizes.rows), Var("lane", sizes.columns)
        first = panel * sizes.columns
        at = self.packing.second_at(batch, row + index(r), first + index(lane), ZERO)
        result = self.kernel.graph.results[0]
        where = self.layout.in_result(at, result)
        number = tile * sizes.rows + index(r)
        total = Load(self.tile, number * sizes.columns + index(lane))
        inside_m = Condition(row + index(r), 0, self.packing.row_count)
        inside_n = Condition(first + index(lane), 0, self.packing.width)
        value = self.epilogue.value_after(total, result, where, (inside_m, inside_n))
        store = Store(self.epilogue.writes[0], linear(where, result.shape), value)
        edge_from = self.packing.width - sizes.columns + 1
        whole = Condition(first, 0, edge_from)
        part = Condition(first, max(edge_from, 0), self.packing.width + sizes.columns)
        body = guarded((Loop(lane, Axis.VECTOR, (store,), width=sizes.lanes),), whole)
        if not whole.always:
            edge = Loop(lane, Axis.SERIAL, guarded((store,), inside_n))
            body = (*(() if whole.never else body), *guarded((edge,), part))
        return (Loop(r, Axis.SERIAL, guarded(body, inside_m)),)


def plain_nest(body: Body) -> Body:
    """The nest of loops around one store, without the conditions in it; the last of several."""
    match body[-1]:
        case If(body=inner):
            return plain_nest(inner)
        case Loop(body=inner) as loop:
            return (replace(loop, body=plain_nest(inner)),)
        case _:
            return body
