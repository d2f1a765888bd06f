"""Sizes and packed operands of a row chain (`codegen/row_chain/lower.py`).

In: a RowChain and where its operands lie. Out: loops that copy them into scratch, computing what
the program does to them on the way:

    queries[row][k]    keys[panel][k][lane]    values[panel][key][lane]

Where the processor multiplies matrices of bf16 and both products are of those, two neighbours along
the depth lie side by side in keys and values, and zeros follow up to whole matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.contraction.form import Form, find_form
from tinyhlo.codegen.contraction.layout import operand_strides
from tinyhlo.codegen.contraction.operand import cast, vector_loop, zeros
from tinyhlo.codegen.contraction.tiles import matrix_slots, matrix_tiles, tile_slots, tiles
from tinyhlo.codegen.expressions import Expression, Guard, Memory, literal
from tinyhlo.codegen.loops import Axis, Body, Loop, Store, guarded, needed, nested
from tinyhlo.codegen.lowering.fused import Lowering, LoweringAround, Scope, letter
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.graph import Node
from tinyhlo.ir.index import ZERO, Index, Var, index, linear, unravel
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
    takes `step_keys` keys at once. Both multiply in one `form`."""

    form: Form
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
    form = choose_form(chain, target)
    rows, vectors = choose_tile(chain, form, m, lanes, target, moves)
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
    most_keys = target.l1_bytes // 2 // (columns * form.itemsize) // form.unit
    units = ceil_div(chain.keys, form.unit)
    steps = (step_of(units, most) for most in (most_keys, most_keys // 2, 2 * most_keys))
    return Sizes(
        form,
        rows,
        columns,
        lanes,
        block_rows,
        chunk_rows,
        ceil_div(m, chunk_rows),
        stride,
        form.unit * moves.number("keys at once", *steps, units),
    )


def choose_form(chain: RowChain, target: Target) -> Form:
    """Matrices for both products or for none: so rows of weights are of one type. Pairs have to be
    neighbours along one axis."""
    dtype = chain.result.dtype
    pairs = all(chain.first.left.shape[axis] % 2 == 0 for axis in chain.first.k)
    forms = {find_form(c, dtype, target, few=False) for c in (chain.first, chain.second)}
    if len(forms) == 1 and pairs:
        (form,) = forms
        if form is not None and form.of_matrices and form.group == 2:
            return form
    return Form(dtype, dtype, dtype)


def choose_tile(
    chain: RowChain, form: Form, m: int, lanes: int, target: Target, moves: Moves
) -> tuple[int, int]:
    """The tile that takes the fewest issue slots, of both products with `m` rows."""
    keys, width = (ceil_div(n, lanes) for n in (chain.keys, chain.second.extent(chain.second.n)))
    depth = chain.first.extent(chain.first.k)

    def of_tile(rows: int, vectors: int, depth: int) -> int:
        if form.of_matrices:
            return matrix_slots(rows, vectors, ceil_div(depth, form.unit))
        return tile_slots(rows, vectors, depth, target)

    def slots(tile: tuple[int, int]) -> int:
        rows, vectors = tile
        scores = ceil_div(keys, vectors) * of_tile(rows, vectors, depth)
        values = ceil_div(width, vectors) * of_tile(rows, vectors, chain.keys)
        return ceil_div(m, rows) * (scores + values)

    known = matrix_tiles(m, max(keys, width)) if form.of_matrices else tiles(m, target)
    fitting = sorted(known, key=slots)
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
        form = sizes.form
        self.filled = chain.first.extent(chain.first.k)  # of the depth; zeros follow
        self.depth, self.key_depth = (
            round_up(extent, form.unit) for extent in (self.filled, chain.keys)
        )
        self.width = chain.second.extent(chain.second.n)
        strides = operand_strides(Lowering(kernel), chain.first.left)
        self.k_axes = sorted(chain.first.k, key=lambda axis: -strides[axis])  # as queries lie
        self.scores_at: dict[tuple[Index, Index], list[Index]] = {}  # by batch and row
        columns = sizes.columns

        def scratch(name: str, dtype: DType, size: int) -> Memory:
            return Memory(name, dtype, size, local=True)

        self.queries = scratch("queries", form.left, sizes.block_rows * self.depth)
        self.keys = scratch("keys", form.right, self.key_panels * columns * self.depth)
        self.values = scratch("values", form.right, self.value_panels * columns * self.key_depth)

    @property
    def key_panels(self) -> int:
        return ceil_div(self.chain.keys, self.sizes.columns)

    @property
    def value_panels(self) -> int:
        return ceil_div(self.width, self.sizes.columns)

    def pack_queries(self, batch: Index, row: Index) -> Body:
        """queries[row][k]; what rows outside hold does not matter: nobody works on their scores."""
        r = Var("r", self.sizes.block_rows)
        loops, (k,), flat = self.depth_loops(1)
        at = self.first_at(batch, row + index(r), ZERO, k)
        inside = Condition(row + index(r), 0, self.row_count)
        value = self.value(self.chain.first.left, at, inside)
        body: Body = (Store(self.queries, index(r) * self.depth + flat, value),)
        *outer, inner = loops or [Var("k", 1)]
        body = nested(outer, (vector_loop(inner, body, self.sizes.lanes),))
        body += zeros(self.queries, index(r) * self.depth, self.filled, self.depth)
        return (Loop(r, Axis.SERIAL, guarded(body, inside)),)

    def pack_keys(self, batch: Index) -> Body:
        """keys[panel][k][lane], zero outside. Keys that lie along k are read along k and turned on
        the way: `llvm/interleave.py` transposes the stores of neighbours in registers."""
        columns, lanes, group = self.sizes.columns, self.sizes.lanes, self.sizes.form.group
        panel, lane = Var("panel", self.key_panels), Var("lane", columns)
        loops, members, flat = self.depth_loops(group)
        start = index(panel) * (self.depth * columns)

        def stores(number: Index) -> tuple[Store, ...]:
            """A group of a key."""
            column = index(panel) * columns + number
            inside = Condition(column, 0, self.chain.keys)
            place = start + flat * columns + number * group
            found: list[Store] = []
            for member, k in enumerate(members):
                at = self.first_at(batch, ZERO, column, k)
                value = self.guarded_value(self.chain.first.right, at, (inside,))
                found.append(Store(self.keys, place + member, value))
            return tuple(found)

        if self.keys_lie_along_depth() and loops[-1].extent % lanes == 0:
            unit = Var("unit", columns // lanes)
            turned = (s for n in range(lanes) for s in stores(index(unit) * lanes + n))
            body: Body = (Loop(loops.pop(), Axis.VECTOR, tuple(turned), width=lanes),)
            body = nested([unit], body)
        else:
            body = (Loop(lane, Axis.VECTOR, stores(index(lane)), width=lanes),)
        rest = zeros(self.keys, start, self.filled * columns, self.depth * columns)
        return (Loop(panel, Axis.SERIAL, (*nested(loops, body), *rest)),)

    def keys_lie_along_depth(self) -> bool:
        """Whether neighbours in memory are neighbours along the innermost summed axis, and no key
        of a panel lies outside."""
        first = self.chain.first
        strides = operand_strides(Lowering(self.kernel), first.right)
        whole = self.chain.keys % self.sizes.columns == 0
        return whole and strides[self.k_axes[-1]] == 1 and strides[first.n[0]] != 1

    def pack_values(self, batch: Index) -> Body:
        """values[panel][key][lane], zero outside."""
        columns, keys, group = self.sizes.columns, self.chain.keys, self.sizes.form.group
        panel, lane = Var("panel", self.value_panels), Var("lane", columns)
        pair = Var("k", ceil_div(keys, group))
        column = index(panel) * columns + index(lane)
        start = index(panel) * (self.key_depth * columns)
        stores: list[Store] = []
        for member in range(group):
            key = index(pair) * group + member
            inside = (Condition(column, 0, self.width), Condition(key, 0, keys))
            at = self.second_at(batch, ZERO, column, key)
            value = self.guarded_value(self.chain.second.right, at, inside)
            place = start + index(pair) * (columns * group) + index(lane) * group + member
            stores.append(Store(self.values, place, value))
        body: Body = (Loop(lane, Axis.VECTOR, tuple(stores), width=self.sizes.lanes),)
        filled = pair.extent * group * columns
        rest = zeros(self.values, start, filled, self.key_depth * columns)
        return (Loop(panel, Axis.SERIAL, (Loop(pair, Axis.SERIAL, body), *rest)),)

    def depth_loops(self, group: int) -> tuple[list[Var], list[list[Index]], Index]:
        """Loop variables along k, the positions along every k axis of each member of a group, and
        the flat position of the first."""
        shape = self.chain.first.left.shape
        extents = [shape[axis] for axis in self.k_axes]
        *outer, last = extents
        counts = (*outer, last // group)
        found = [Var(f"k{number}", count) for number, count in enumerate(counts)]
        *before, groups = map(index, found)
        members = [[*before, groups * group + member] for member in range(group)]
        return [v for v in found if v.extent > 1], members, linear(members[0], extents)

    def value(self, node: Node, at: list[Index], *inside: Condition) -> Expression:
        """An element of an operand, where all of `inside` holds, in the type that is multiplied."""
        found = self.operands.value(node, at, needed(*inside))
        return cast(found, self.sizes.form.left)

    def guarded_value(self, node: Node, at: list[Index], inside: Sequence[Condition]) -> Expression:
        """The same, and zero outside."""
        inside = needed(*inside)
        value = self.value(node, at, *inside)
        return Guard(inside, value, literal(0, value.dtype)) if inside else value

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
