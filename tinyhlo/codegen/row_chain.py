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
kernels, whatever the work on rows is: no running maximum, no rescaling (docs/decisions/).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd

from tinyhlo.codegen.contraction import (
    Layout,
    TileLowering,
    find_layout,
    guarded,
    operand_strides,
    vector_loop,
)
from tinyhlo.codegen.contraction_plan import ceil_div, choose_tile, round_up
from tinyhlo.codegen.heuristics import vectorised
from tinyhlo.codegen.loops import (
    Allocate,
    Axis,
    Body,
    Expression,
    Guard,
    If,
    Load,
    Loop,
    LoopProgram,
    Memory,
    Multiply,
    Statement,
    Store,
    literal,
)
from tinyhlo.codegen.lower import (
    LETTERS,
    Conditions,
    Lowering,
    Position,
    Scope,
    argument_memories,
)
from tinyhlo.codegen.moves import join
from tinyhlo.codegen.row_mask import needed_tile
from tinyhlo.codegen.staging import stage_rows
from tinyhlo.codegen.target import Target
from tinyhlo.ir.contraction import Contraction
from tinyhlo.ir.graph import Node, Param
from tinyhlo.ir.index import ZERO, Condition, Index, Var, constant, index, linear, unravel
from tinyhlo.schedule.program import Kernel
from tinyhlo.schedule.row_chain import RowChain, find_row_chain

PARALLEL_WORK = 1 << 19  # multiply-adds worth waking another thread
BLOCK_TILES = 4  # tiles of rows in a block, fewer where long rows would leave the cache


def lower_row_chain(kernel: Kernel, target: Target) -> LoopProgram | None:
    """The LoopProgram of a kernel that holds a row chain, its moves chosen; None for others."""
    if len(kernel.graph.results) != 1 or kernel.in_place:
        return None
    chain = chain_in(kernel)
    if chain is None:
        return None
    layout = find_layout(kernel, chain.result, chain.second)
    if layout is None:
        return None
    return Builder(kernel, chain, layout, target).program()


def chain_in(kernel: Kernel) -> RowChain | None:
    """The chain whose result comes last."""
    for node in reversed(kernel.graph.nodes()):
        chain = find_row_chain(node, lambda n: isinstance(n, Param))
        if chain is not None:
            return chain
    return None


class RowLowering(Lowering):
    """Lowers the work on rows; a score is read from scratch. `asked` is where."""

    def __init__(
        self,
        memories: tuple[Memory, ...],
        scores: Node,
        read: Callable[[Position], Expression],
    ) -> None:
        super().__init__(memories)
        self.scores, self.read = scores, read
        self.asked: set[Position] = set()

    def compute(self, node: Node, at: Position, scope: Scope, guards: Conditions) -> Expression:
        if node is self.scores:
            self.asked.add(at)
            return self.read(at)
        return super().compute(node, at, scope, guards)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Tiles of rows x columns; blocks of rows; chunks = batch * row_chunks."""

    rows: int
    columns: int
    lanes: int
    block_rows: int
    chunk_rows: int
    row_chunks: int
    stride: int  # of a row of scores


def choose_sizes(chain: RowChain, target: Target) -> Sizes:
    """Scores and weights of a block take at most a quarter of L2."""
    second, dtype = chain.second, chain.result.dtype
    batch, m = second.extent(second.batch), second.extent(second.m)
    lanes = target.vector_bytes // dtype.itemsize
    rows, vectors = choose_tile(m, chain.keys, lanes, target)
    columns = vectors * lanes
    # a further vector apart, so that rows do not fall on the same lines of L1
    stride = round_up(chain.keys, columns) + columns
    most = target.l2_bytes // 4 // (2 * stride * dtype.itemsize) // rows
    block_rows = min(max(most, 1), BLOCK_TILES) * rows
    wanted = target.threads if batch * m * chain.keys >= PARALLEL_WORK // 64 else 1
    row_chunks = min(wanted // gcd(wanted, batch), ceil_div(m, block_rows))
    if batch >= 4 * wanted:
        row_chunks = 1
    chunk_rows = round_up(ceil_div(m, row_chunks), block_rows)
    return Sizes(rows, columns, lanes, block_rows, chunk_rows, ceil_div(m, chunk_rows), stride)


class Builder:
    """Builds the loops. Rows are flat positions along the row axes of the second contraction."""

    def __init__(self, kernel: Kernel, chain: RowChain, layout: Layout, target: Target) -> None:
        self.kernel, self.chain, self.target = kernel, chain, target
        self.places = layout.places
        self.sizes = choose_sizes(chain, target)
        self.reads, self.writes = argument_memories(kernel)
        self.operands = Lowering(self.reads)
        self.epilogue = TileLowering(self.reads, chain.result)
        self.moves: list[str] = []
        self.batch = chain.second.extent(chain.second.batch)
        self.row_count = chain.second.extent(chain.second.m)
        self.depth = chain.first.extent(chain.first.k)
        self.width = chain.second.extent(chain.second.n)
        self.chunk = Var("chunk", self.batch * self.sizes.row_chunks)
        self.memories()

    def memories(self) -> None:
        sizes, dtype = self.sizes, self.chain.result.dtype

        def scratch(name: str, size: int) -> Memory:
            return Memory(name, dtype, size, local=True)

        self.keys = scratch("keys", self.key_panels * sizes.columns * self.depth)
        self.values = scratch("values", self.value_panels * sizes.columns * self.chain.keys)
        self.queries = scratch("queries", sizes.block_rows * self.depth)
        self.scores = scratch("scores", sizes.block_rows * sizes.stride)
        self.weights = scratch("weights", sizes.block_rows * sizes.stride)
        self.tile = scratch("tile", sizes.rows * sizes.columns)

    @property
    def key_panels(self) -> int:
        return ceil_div(self.chain.keys, self.sizes.columns)

    @property
    def value_panels(self) -> int:
        return ceil_div(self.width, self.sizes.columns)

    # --- the nest ----------------------------------------------------------------------------

    def program(self) -> LoopProgram:
        sizes = self.sizes
        local = (self.keys, self.values, self.queries, self.scores, self.weights, self.tile)
        batch, part = unravel(index(self.chunk), (self.batch, sizes.row_chunks))
        block = Var("block", ceil_div(sizes.chunk_rows, sizes.block_rows))
        row = part * sizes.chunk_rows + index(block) * sizes.block_rows
        rows = self.work_on_rows(batch, row)
        work: Body = (
            *self.pack_queries(batch, row),
            self.first_product(rows),
            *rows,
            self.second_product(batch, row),
        )
        existing = Condition(row, 0, self.row_count)
        if not existing.always:  # the last chunk may hold fewer blocks
            work = (If((existing,), work),)
        body: Body = (
            *(Allocate(memory) for memory in local),
            *self.pack_keys(batch),
            *self.pack_values(batch),
            Loop(block, Axis.SERIAL, work),
        )
        if self.chunk.extent > 1:
            body = (Loop(self.chunk, Axis.PARALLEL, body),)
        moves = (
            f"parallel {self.batch}x{sizes.row_chunks} chunks",
            f"block {sizes.block_rows} rows of scores",
            "stage queries, keys, values, scores, weights",
            f"tile {sizes.rows}x{sizes.columns}",
            *self.moves,
        )
        tables = {**self.operands.tables, **self.epilogue.tables, **self.row_tables}
        named = tuple((memory, node.value) for node, memory in tables.items())
        name = self.kernel.name
        return LoopProgram(name, self.reads, self.writes, body, (), named, moves)

    def first_product(self, rows: Body) -> Statement:
        """All scores of a block but those that its mask hides."""
        sizes = self.sizes
        panel, tile = Var("panel", self.key_panels), Var("rows", sizes.block_rows // sizes.rows)
        product = Multiply(
            self.queries, index(tile) * (sizes.rows * self.depth), self.depth, 1,
            self.keys, index(panel) * (self.depth * sizes.columns),
            self.scores, index(tile) * (sizes.rows * sizes.stride) + index(panel) * sizes.columns,
            sizes.rows, sizes.columns, sizes.lanes, self.depth,
            accumulate=False, tile_row=sizes.stride,
        )  # fmt: skip
        first_key = index(panel) * sizes.columns
        spans = {
            Var(LETTERS[0], self.chain.keys): (first_key, first_key + (sizes.columns - 1)),
            Var("r", sizes.block_rows): (ZERO, constant(sizes.block_rows - 1)),
        }
        body: Body = (Loop(tile, Axis.SERIAL, (product,)),)
        seen = needed_tile(rows, self.scores, spans)
        if seen:
            self.moves.append("skip hidden scores")
            body = (If(seen, body),)
        return Loop(panel, Axis.SERIAL, body)

    def second_product(self, batch: Index, row: Index) -> Statement:
        sizes = self.sizes
        panel, tile = Var("panel", self.value_panels), Var("rows", sizes.block_rows // sizes.rows)
        first = index(tile) * sizes.rows
        product = Multiply(
            self.weights, first * sizes.stride, sizes.stride, 1,
            self.values, index(panel) * (self.chain.keys * sizes.columns),
            self.tile, ZERO,
            sizes.rows, sizes.columns, sizes.lanes, self.chain.keys,
            accumulate=False,
        )  # fmt: skip
        body: Body = (product, *self.store(batch, row + first, index(panel)))
        existing = Condition(row + first, 0, self.row_count)
        if not existing.always:
            body = (If((existing,), body),)
        return Loop(panel, Axis.SERIAL, (Loop(tile, Axis.SERIAL, body),))

    # --- rows --------------------------------------------------------------------------------

    def work_on_rows(self, batch: Index, row: Index) -> Body:
        """weights[r] = what the program computes from scores[r], by the general lowering."""
        sizes, chain = self.sizes, self.chain
        r = Var("r", sizes.block_rows)
        start = index(r) * sizes.stride

        def read(at: Position) -> Expression:
            return Load(self.scores, start + at[chain.key])

        lowering = RowLowering(self.reads, chain.scores, read)
        key = Var(LETTERS[0], chain.keys)
        scope = Scope(lowering.root, key, 1)
        lowering.root.children[key] = scope
        at = self.at(chain.second, batch, row + index(r), ZERO)
        at[chain.second.k[0]] = index(key)
        value = lowering.emit(chain.second.left, lowering.position(tuple(at)), scope, ())
        scope.stores.append(Store(self.weights, start + index(key), value))
        self.row_tables = lowering.tables

        body = join(lowering.root.body())
        body = tuple(vectorised(s, self.target, self.moves) for s in body)
        (whole,) = stage_rows((Loop(r, Axis.SERIAL, body),), self.target, self.moves)
        assert isinstance(whole, Loop)
        body = whole.body
        inside = Condition(row + index(r), 0, self.row_count)
        if not inside.always:
            body = (If((inside,), body),)
        return (Loop(r, Axis.SERIAL, body),)

    def position_of_scores(self, batch: Index, row: Index) -> list[Index]:
        """Where the scores of a row lie, as indices of the scores; the key axis at 0."""
        chain = self.chain
        lowering = RowLowering(self.reads, chain.scores, lambda _: literal(0, chain.result.dtype))
        at = self.at(chain.second, batch, row, ZERO)
        at[chain.second.k[0]] = index(Var(LETTERS[0], chain.keys))
        scope = Scope(lowering.root, Var(LETTERS[0], chain.keys), 1)
        lowering.emit(chain.second.left, lowering.position(tuple(at)), scope, ())
        asked = list(next(iter(lowering.asked)))
        asked[chain.key] = ZERO
        return asked

    # --- packing -----------------------------------------------------------------------------

    def pack_queries(self, batch: Index, row: Index) -> Body:
        """queries[row][k]; rows outside are not worked on, so they only need to exist."""
        r = Var("r", self.sizes.block_rows)
        loops, k, flat = self.depth_loops(self.chain.first)
        at = self.first_at(batch, row + index(r), ZERO)
        for axis, position in zip(self.k_axes, k, strict=True):
            at[axis] = position
        inside = Condition(row + index(r), 0, self.row_count)
        value = self.guarded_value(self.chain.first.left, at, inside)
        body: Body = (Store(self.queries, index(r) * self.depth + flat, value),)
        *outer, inner = loops or [Var("k", 1)]
        body = (vector_loop(inner, body, self.sizes.lanes),)
        for var in reversed(outer):
            body = (Loop(var, Axis.SERIAL, body),)
        return (Loop(r, Axis.SERIAL, body),)

    def pack_keys(self, batch: Index) -> Body:
        """keys[panel][k][lane], zero outside."""
        columns = self.sizes.columns
        panel, lane = Var("panel", self.key_panels), Var("lane", columns)
        column = index(panel) * columns + index(lane)
        loops, k, flat = self.depth_loops(self.chain.first)
        at = self.first_at(batch, ZERO, column)
        for axis, position in zip(self.k_axes, k, strict=True):
            at[axis] = position
        inside = Condition(column, 0, self.chain.keys)
        value = self.guarded_value(self.chain.first.right, at, inside)
        place = (index(panel) * self.depth + flat) * columns + index(lane)
        body: Body = (Store(self.keys, place, value),)
        body = (Loop(lane, Axis.VECTOR, body, width=self.sizes.lanes),)
        for var in reversed(loops):
            body = (Loop(var, Axis.SERIAL, body),)
        return (Loop(panel, Axis.SERIAL, body),)

    def pack_values(self, batch: Index) -> Body:
        """values[panel][key][lane], zero outside."""
        columns, keys = self.sizes.columns, self.chain.keys
        panel, lane, key = Var("panel", self.value_panels), Var("lane", columns), Var("k", keys)
        column = index(panel) * columns + index(lane)
        at = self.at(self.chain.second, batch, ZERO, column)
        at[self.chain.second.k[0]] = index(key)
        inside = Condition(column, 0, self.width)
        value = self.guarded_value(self.chain.second.right, at, inside)
        place = (index(panel) * keys + index(key)) * columns + index(lane)
        body: Body = (Store(self.values, place, value),)
        body = (Loop(lane, Axis.VECTOR, body, width=self.sizes.lanes),)
        return (Loop(panel, Axis.SERIAL, (Loop(key, Axis.SERIAL, body),)),)

    @property
    def k_axes(self) -> tuple[int, ...]:
        """The summed axes of the first contraction in the order of the queries' memory."""
        strides = operand_strides(
            TileLowering(self.reads, self.chain.result), self.chain.first.left
        )
        return tuple(sorted(self.chain.first.k, key=lambda axis: -strides[axis]))

    def depth_loops(self, c: Contraction) -> tuple[list[Var], list[Index], Index]:
        """Loop variables along k, the position along every k axis, and the flat position."""
        axes = self.k_axes
        found = [Var(f"k{number}", c.left.shape[axis]) for number, axis in enumerate(axes)]
        positions = [index(var) for var in found]
        shape = tuple(var.extent for var in found)
        return [v for v in found if v.extent > 1], positions, linear(tuple(positions), shape)

    def guarded_value(self, node: Node, at: list[Index], inside: Condition) -> Expression:
        lowering = self.operands
        guards: Conditions = () if inside.always else (inside,)
        guards = lowering.guards.setdefault(guards, guards)
        value = lowering.emit(node, lowering.position(tuple(at)), lowering.root, guards)
        return Guard(guards, value, literal(0, self.chain.result.dtype)) if guards else value

    def at(self, c: Contraction, batch: Index, row: Index, column: Index) -> list[Index]:
        """Indices of a product's axes from flat positions (k axes at 0)."""
        shape = c.left.shape
        found = [ZERO] * len(shape)
        for axes, flat in ((c.batch, batch), (c.m, row), (c.n, column)):
            extents = tuple(shape[axis] for axis in axes)
            for axis, position in zip(axes, unravel(flat, extents), strict=True):
                found[axis] = position
        return found

    def first_at(self, batch: Index, row: Index, key: Index) -> list[Index]:
        """Indices of the first product's axes for a row of the second."""
        first, scores = self.chain.first, self.chain.scores
        position = self.position_of_scores(batch, row)
        position[self.chain.key] = key
        kept = [axis for axis in range(len(first.left.shape)) if axis not in scores.axes]
        found = [ZERO] * len(first.left.shape)
        for axis, where in zip(kept, position, strict=True):
            found[axis] = where
        return found

    # --- results -----------------------------------------------------------------------------

    def store(self, batch: Index, row: Index, panel: Index) -> Body:
        """Results of one tile: whole rows of vectors, or lane by lane at the right edge."""
        sizes, second = self.sizes, self.chain.second
        r, lane = Var("r", sizes.rows), Var("lane", sizes.columns)
        first = panel * sizes.columns
        at = self.at(second, batch, row + index(r), first + index(lane))
        result = self.kernel.graph.results[0]
        where = [ZERO] * len(result.shape)
        kept = [position for axis, position in enumerate(at) if axis not in self.chain.result.axes]
        for position, axis in zip(kept, self.places, strict=True):
            if axis is not None:
                where[axis] = position
        self.epilogue.sum = Load(self.tile, index(r) * sizes.columns + index(lane))
        inside_m = Condition(row + index(r), 0, self.row_count)
        inside_n = Condition(first + index(lane), 0, self.width)
        value = self.epilogue.value(result, where, (inside_m, inside_n))
        store = Store(self.writes[0], linear(where, result.shape), value)
        edge_from = self.width - sizes.columns + 1
        whole = Condition(first, 0, edge_from)
        part = Condition(first, max(edge_from, 0), self.width + sizes.columns)
        body: list[Statement] = [
            guarded(whole, Loop(lane, Axis.VECTOR, (store,), width=sizes.lanes))
        ]
        if not whole.always:
            edge = Loop(lane, Axis.SERIAL, (guarded(inside_n, store),))
            body = [*(() if whole.never else body), guarded(part, edge)]
        inner: Body = tuple(body)
        if not inside_m.always:
            inner = (If((inside_m,), inner),)
        return (Loop(r, Axis.SERIAL, inner),)
