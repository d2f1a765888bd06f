"""Sizes and packed operands of a row chain (`codegen/row_chain/lower.py`).

In: a RowChain and where its operands lie. Out: loops that copy them into scratch, computing what
the program does to them on the way:

    queries[row][k]    keys[panel][k][lane]    values[panel][key][lane]
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.contraction.layout import operand_strides
from tinyhlo.codegen.contraction.operand import vector_loop
from tinyhlo.codegen.contraction.tiles import tile_slots, tiles
from tinyhlo.codegen.expressions import Expression, Guard, Memory, literal
from tinyhlo.codegen.loops import Axis, Body, Loop, Store, guarded, nested
from tinyhlo.codegen.lowering.fused import Lowering, LoweringAround, Scope, letter
from tinyhlo.ir.graph import Node
from tinyhlo.ir.index import ZERO, Condition, Index, Var, index, linear, unravel
from tinyhlo.numbers import ceil_div, round_up
from tinyhlo.records import dataclass
from tinyhlo.schedule.program import Kernel
from tinyhlo.schedule.row_chain import RowChain
from tinyhlo.target import Target

PARALLEL_WORK = 1 << 13  # scores worth waking another thread, with which it has half
BLOCK_ROWS = 64  # fewer where long rows would leave the cache; a mask hides scores of all of them


@dataclass(frozen=True, slots=True)
class Sizes:
    """Tiles of rows x columns; blocks of rows; chunks = batch * row_chunks; the second product
    takes `step_keys` keys at once."""

    rows: int
    columns: int
    lanes: int
    block_rows: int
    chunk_rows: int
    row_chunks: int
    stride: int  # of a row of scores
    step_keys: int


def choose_sizes(chain: RowChain, target: Target, moves: Moves) -> Sizes:
    """Scores and weights of a block take at most a quarter of L2."""
    second, dtype = chain.second, chain.result.dtype
    batch, m = second.extent(second.batch), second.extent(second.m)
    lanes = target.vector_bytes // dtype.itemsize
    rows, vectors = choose_tile(chain, m, lanes, target, moves)
    columns = vectors * lanes
    # a further vector apart, so that rows do not fall on the same lines of L1
    stride = round_up(chain.keys, columns) + columns
    most = target.l2_bytes // 4 // (2 * stride * dtype.itemsize) // rows
    count = max(min(most, BLOCK_ROWS // rows, ceil_div(m, rows)), 1)
    block_rows = rows * moves.number("block", count, 1, 2, 3, 4, 6, 8)
    wanted = target.threads_for(batch * m * chain.keys, PARALLEL_WORK)
    row_chunks = min(wanted // gcd(wanted, batch), ceil_div(m, block_rows))
    if batch >= 4 * wanted:
        row_chunks = 1
    chunk_rows = round_up(ceil_div(m, row_chunks), block_rows)
    most_keys = target.l1_bytes // 2 // (columns * dtype.itemsize)
    steps = (step_of(chain.keys, most) for most in (most_keys, most_keys // 2, 2 * most_keys))
    return Sizes(
        rows,
        columns,
        lanes,
        block_rows,
        chunk_rows,
        ceil_div(m, chunk_rows),
        stride,
        moves.number("keys at once", *steps, chain.keys),
    )


def choose_tile(
    chain: RowChain, m: int, lanes: int, target: Target, moves: Moves
) -> tuple[int, int]:
    """The tile that takes the fewest issue slots, of both products with `m` rows."""
    keys, width = (ceil_div(n, lanes) for n in (chain.keys, chain.second.extent(chain.second.n)))
    depth = chain.first.extent(chain.first.k)

    def slots(tile: tuple[int, int]) -> int:
        rows, vectors = tile
        scores = ceil_div(keys, vectors) * tile_slots(rows, vectors, depth, target)
        values = ceil_div(width, vectors) * tile_slots(rows, vectors, chain.keys, target)
        return ceil_div(m, rows) * (scores + values)

    fitting = sorted(tiles(m, target), key=slots)
    return moves.choose("tile", {f"{r}x{v}": (r, v) for r, v in fitting})


def step_of(keys: int, most: int) -> int:
    """The largest divisor up to `most`; all keys where it would be too small to pay."""
    largest = next(d for d in range(min(keys, most), 0, -1) if keys % d == 0)
    return largest if largest >= most // 4 else keys


class Packing:
    """Packs operands; rows are flat positions along the row axes of the second contraction."""

    def __init__(self, kernel: Kernel, chain: RowChain, sizes: Sizes) -> None:
        self.kernel, self.chain, self.sizes = kernel, chain, sizes
        self.operands = Lowering(kernel)
        self.row_count = chain.second.extent(chain.second.m)
        self.depth = chain.first.extent(chain.first.k)
        self.width = chain.second.extent(chain.second.n)
        strides = operand_strides(Lowering(kernel), chain.first.left)
        self.k_axes = sorted(chain.first.k, key=lambda axis: -strides[axis])  # as queries lie
        self.scores_at: dict[tuple[Index, Index], list[Index]] = {}  # by batch and row
        dtype, columns = chain.result.dtype, sizes.columns

        def scratch(name: str, size: int) -> Memory:
            return Memory(name, dtype, size, local=True)

        self.queries = scratch("queries", sizes.block_rows * self.depth)
        self.keys = scratch("keys", self.key_panels * columns * self.depth)
        self.values = scratch("values", self.value_panels * columns * chain.keys)

    @property
    def key_panels(self) -> int:
        return ceil_div(self.chain.keys, self.sizes.columns)

    @property
    def value_panels(self) -> int:
        return ceil_div(self.width, self.sizes.columns)

    def pack_queries(self, batch: Index, row: Index) -> Body:
        """queries[row][k]; what rows outside hold does not matter: nobody works on their scores."""
        r = Var("r", self.sizes.block_rows)
        loops, k, flat = self.depth_loops()
        at = self.first_at(batch, row + index(r), ZERO, k)
        inside = Condition(row + index(r), 0, self.row_count)
        value = self.value(self.chain.first.left, at, inside)
        body: Body = (Store(self.queries, index(r) * self.depth + flat, value),)
        *outer, inner = loops or [Var("k", 1)]
        body = nested(outer, (vector_loop(inner, body, self.sizes.lanes),))
        return (Loop(r, Axis.SERIAL, guarded(body, inside)),)

    def pack_keys(self, batch: Index) -> Body:
        """keys[panel][k][lane], zero outside. Keys that lie along k are read along k and turned on
        the way: `llvm/interleave.py` transposes the stores of neighbours in registers."""
        columns, lanes = self.sizes.columns, self.sizes.lanes
        panel, lane = Var("panel", self.key_panels), Var("lane", columns)
        loops, k, flat = self.depth_loops()

        def store(number: Index) -> Store:
            column = index(panel) * columns + number
            at = self.first_at(batch, ZERO, column, k)
            inside = Condition(column, 0, self.chain.keys)
            value = self.guarded_value(self.chain.first.right, at, inside)
            return Store(self.keys, (index(panel) * self.depth + flat) * columns + number, value)

        if self.keys_lie_along_depth() and loops[-1].extent % lanes == 0:
            unit = Var("unit", columns // lanes)
            stores = tuple(store(index(unit) * lanes + number) for number in range(lanes))
            body: Body = (Loop(loops.pop(), Axis.VECTOR, stores, width=lanes),)
            body = nested([unit], body)
        else:
            body = (Loop(lane, Axis.VECTOR, (store(index(lane)),), width=lanes),)
        return (Loop(panel, Axis.SERIAL, nested(loops, body)),)

    def keys_lie_along_depth(self) -> bool:
        """Whether neighbours in memory are neighbours along the innermost summed axis, and no key
        of a panel lies outside."""
        first = self.chain.first
        strides = operand_strides(Lowering(self.kernel), first.right)
        whole = self.chain.keys % self.sizes.columns == 0
        return whole and strides[self.k_axes[-1]] == 1 and strides[first.n[0]] != 1

    def pack_values(self, batch: Index) -> Body:
        """values[panel][key][lane], zero outside."""
        columns, keys = self.sizes.columns, self.chain.keys
        panel, lane, key = Var("panel", self.value_panels), Var("lane", columns), Var("k", keys)
        column = index(panel) * columns + index(lane)
        at = self.second_at(batch, ZERO, column, index(key))
        inside = Condition(column, 0, self.width)
        value = self.guarded_value(self.chain.second.right, at, inside)
        place = (index(panel) * keys + index(key)) * columns + index(lane)
        body: Body = (Store(self.values, place, value),)
        body = (Loop(lane, Axis.VECTOR, body, width=self.sizes.lanes),)
        return (Loop(panel, Axis.SERIAL, (Loop(key, Axis.SERIAL, body),)),)

    def depth_loops(self) -> tuple[list[Var], list[Index], Index]:
        """Loop variables along k, the position along every k axis, and the flat position."""
        shape = self.chain.first.left.shape
        found = [Var(f"k{number}", shape[axis]) for number, axis in enumerate(self.k_axes)]
        positions = [index(var) for var in found]
        flat = linear(positions, [var.extent for var in found])
        return [v for v in found if v.extent > 1], positions, flat

    def value(self, node: Node, at: list[Index], inside: Condition) -> Expression:
        """An element of an operand, where `inside` holds."""
        return self.operands.value(node, at, () if inside.always else (inside,))

    def guarded_value(self, node: Node, at: list[Index], inside: Condition) -> Expression:
        """The same, and zero outside."""
        value = self.value(node, at, inside)
        zero = literal(0, self.chain.result.dtype)
        return value if inside.always else Guard((inside,), value, zero)

    def second_at(self, batch: Index, row: Index, column: Index, key: Index) -> list[Index]:
        """Indices of the second product's axes from flat positions."""
        c = self.chain.second
        shape = c.left.shape
        found = [ZERO] * len(shape)
        found[c.k[0]] = key
        for axes, flat in ((c.batch, batch), (c.m, row), (c.n, column)):
            extents = tuple(shape[axis] for axis in axes)
            for axis, position in zip(axes, unravel(flat, extents), strict=True):
                found[axis] = position
        return found

    def first_at(self, batch: Index, row: Index, key: Index, k: Sequence[Index]) -> list[Index]:
        """Indices of the first product's axes for a row of the second, at `k`."""
        rank, scores = len(self.chain.first.left.shape), self.chain.scores
        if (batch, row) not in self.scores_at:
            self.scores_at[batch, row] = self.position_of_scores(batch, row)
        position = [*self.scores_at[batch, row]]
        position[self.chain.key] = key
        known = dict(zip(scores.kept, position, strict=True))
        known |= zip(self.k_axes, k, strict=True)
        return [known.get(axis, ZERO) for axis in range(rank)]

    def position_of_scores(self, batch: Index, row: Index) -> list[Index]:
        """Where the scores of a row lie, as indices of the scores; the key axis at 0."""
        chain = self.chain
        zero = literal(0, chain.result.dtype)
        lowering = LoweringAround(self.kernel, chain.scores, lambda _: zero)
        key = Var(letter(0), chain.keys)
        at = self.second_at(batch, row, ZERO, index(key))
        scope = Scope(lowering.root, key, 1)
        lowering.emit(chain.second.left, lowering.position(tuple(at)), scope, ())
        asked = list(next(iter(lowering.seen)))
        asked[chain.key] = ZERO
        return asked
