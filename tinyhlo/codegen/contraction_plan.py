"""Tile and block sizes of a contraction, from its extents and the Target's numbers.

In: a Contraction (columns next to each other in the result), its element type, the Target.
Out: a Plan, or None when packing does not pay.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, lcm, prod

from tinyhlo.codegen.target import Target
from tinyhlo.ir.contraction import Contraction
from tinyhlo.ir.dtypes import BOOL, F32, F64, DType

# (rows, vectors) of the tile: accumulators, right vectors and one broadcast fill the registers
TILES = {16: ((6, 2), (12, 1)), 32: ((8, 3), (14, 2), (24, 1))}
MIN_WORK = 1 << 12  # multiply-adds below which packing costs more than it saves
PARALLEL_WORK = 1 << 19  # multiply-adds worth waking another thread
MAX_DEPTH = 1024  # k positions packed at once
RIGHT_BYTES = 1 << 20  # of a packed right operand (stack memory of one thread)
SUMS_BYTES = 1 << 20
MAX_UNIT = 512  # rows


@dataclass(frozen=True, slots=True)
class Plan:
    """The result is cut into batch * row_chunks * column_chunks chunks of chunk_rows x
    chunk_columns; the depth into `steps` of `depth`: k axes before `split_axis` advance by one
    position a step, the split axis in `split_steps` parts."""

    rows: int
    columns: int
    lanes: int
    block_rows: int
    chunk_rows: int
    chunk_columns: int
    batch: int
    row_chunks: int
    column_chunks: int
    depth: int
    steps: int
    split_axis: int
    split_steps: int

    @property
    def chunks(self) -> int:
        return self.batch * self.row_chunks * self.column_chunks

    def steps_below(self, extents: list[int], number: int) -> int:
        """Steps until the k axis `number` (before the split axis) advances."""
        return prod(extents[number + 1 : self.split_axis]) * self.split_steps

    def moves(self) -> tuple[str, ...]:
        return (
            f"parallel {self.batch}x{self.row_chunks}x{self.column_chunks} chunks",
            f"block {self.block_rows} rows, {self.depth} deep, {self.steps} steps",
            "stage left, right",
            f"tile {self.rows}x{self.columns}",
        )


def plan_contraction(c: Contraction, dtype: DType, target: Target, row_unit: int) -> Plan | None:
    """Sizes for a contraction of `dtype` sums. Blocks of rows start at multiples of `row_unit`
    where that is not too coarse."""
    m, n, batch = c.extent(c.m), c.extent(c.n), c.extent(c.batch)
    extents = [c.left.shape[axis] for axis in c.k]
    k = prod(extents)
    supported = dtype in (F32, F64) or (dtype.is_integer and dtype is not BOOL)
    if not supported or min(m, n, k) < 4 or m * n * k < MIN_WORK:
        return None
    lanes = target.vector_bytes // dtype.itemsize
    rows, vectors = choose_tile(m, n, lanes, target)
    columns = vectors * lanes
    split_axis, split_steps, depth = split_depth(extents)
    steps = k // depth

    widest = max(RIGHT_BYTES // (depth * dtype.itemsize) // columns, 1) * columns
    column_chunks = ceil_div(n, widest)
    wanted = target.threads if batch * m * n * k >= PARALLEL_WORK else 1
    parts = batch * column_chunks
    row_chunks = 1
    if parts < 4 * wanted:
        row_chunks = min(wanted // gcd(wanted, parts), ceil_div(m, rows))
        if row_chunks * parts < wanted:  # few rows: cut the columns instead
            row_chunks = 1
            pieces = wanted // gcd(wanted, parts) * column_chunks
            column_chunks = min(pieces, ceil_div(n, columns))
    chunk_columns = round_up(ceil_div(n, column_chunks), columns)
    column_chunks = ceil_div(n, chunk_columns)
    if steps > 1:  # all sums of a chunk stay in memory
        limit = max(SUMS_BYTES // (chunk_columns * dtype.itemsize) // rows, 1) * rows
        row_chunks = max(row_chunks, ceil_div(m, limit))
    unit = lcm(rows, row_unit) if row_unit % lanes == 0 else rows
    if unit > MAX_UNIT or unit > 2 * m:
        unit = rows
    chunk_rows = round_up(ceil_div(m, row_chunks), unit)
    # half of L2 for the packed rows
    most = max(target.l2_bytes // 2 // (depth * dtype.itemsize) // unit, 1) * unit
    blocks = ceil_div(chunk_rows, most)
    block_rows = round_up(ceil_div(chunk_rows, blocks), unit)
    row_chunks = ceil_div(m, chunk_rows)
    return Plan(
        rows, columns, lanes, block_rows, chunk_rows, chunk_columns, batch, row_chunks,
        column_chunks, depth, steps, split_axis, split_steps,
    )  # fmt: skip


def choose_tile(m: int, n: int, lanes: int, target: Target) -> tuple[int, int]:
    """The tile that computes least beyond the edges; the first of equals."""

    def padded(tile: tuple[int, int]) -> float:
        rows, vectors = tile
        waste = round_up(m, rows) * round_up(n, vectors * lanes)
        return waste * (1.0 if vectors > 1 else 1.15)  # one vector a row: bound by loads

    tiles = TILES[32] if target.vector_registers >= 32 else TILES[16]
    rows, vectors = min(tiles, key=padded)
    return min(rows, m), vectors


def split_depth(extents: list[int]) -> tuple[int, int, int]:
    """(axis cut in parts, number of parts, positions in a step)."""
    inner = 1
    for axis in range(len(extents) - 1, -1, -1):
        if inner * extents[axis] > MAX_DEPTH:
            fitting = (d for d in range(2, extents[axis] + 1) if extents[axis] % d == 0)
            parts = next(d for d in fitting if inner * extents[axis] // d <= MAX_DEPTH)
            positions = inner * extents[axis] // parts
            if positions < 64 and extents[axis] * inner <= 8 * MAX_DEPTH:  # no good divisor
                return axis, 1, inner * extents[axis]
            return axis, parts, positions
        inner *= extents[axis]
    return 0, 1, inner


def ceil_div(count: int, size: int) -> int:
    return -(-count // size)


def round_up(count: int, multiple: int) -> int:
    return ceil_div(count, multiple) * multiple
