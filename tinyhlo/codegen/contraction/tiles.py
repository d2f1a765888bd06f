"""Register tiles that a product may have, and what a plan with one of them takes.

In: rows of a product and the Target, or a Plan. Out: (rows, vectors) of tiles; issue slots:

    tiles(49, AVX-512)  ->  (4, 4), (6, 4), (13, 2), (10, 2), (7, 2), ...
    49x512x512          ->  7x2 takes the fewest: 7 tiles of 7 rows, where 4 of 13 would be 52

The numbers were fitted to what was measured (docs/decisions/0041-tiles.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from tinyhlo.codegen.contraction.plan import Plan, Use
from tinyhlo.numbers import ceil_div, round_up
from tinyhlo.target import MATRIX_ROWS, Target

# registers -> tiles: accumulators, right vectors and one broadcast fill them
TILES = {
    16: ((6, 2), (4, 3), (14, 1)),
    32: ((4, 4), (6, 4), (14, 2), (10, 2), (7, 2), (29, 1), (22, 1), (15, 1)),
}
MATRIX_TILES = ((2, 2), (3, 1), (1, 3))  # matrices of rows, of columns
MATRIX_SLOTS = 64  # that such a tile takes besides
FAST_TILES = ((4, 4), (6, 4), (9, 3), (14, 2), (10, 2))  # of processors that outrun their caches
HALF_TILES = ((9, 3), (4, 5))  # of half vectors, of which columns fill an odd number
LATE = {Use.PACKED: 1, Use.IN_PLACE: 5}  # half slots of a vector that is beyond L1, there
POINTERS = 12  # to rows that registers hold beside those to the columns and what loops count
POINTER_SLOTS = 2  # that a tile takes for each
MIN_SUMS = 8  # accumulators that hide the latency of a multiply-add
TILE_SLOTS, STORE_SLOTS = 10, 3  # that a tile takes besides its products, and each of its sums
CHUNKS_A_THREAD = 8  # so that one on a slow core can take fewer


def tiles(m: int, target: Target, bias: int = 0, halves: bool = False) -> Iterator[tuple[int, int]]:
    """(rows, vectors), the rows as even as that leaves them. The columns' sums for a bias are a row
    more, and the bias a register."""
    registers = target.vector_registers
    known = TILES[32] if registers >= 32 else TILES[16]
    if target.outruns_caches:
        known = FAST_TILES
    if halves:
        known = HALF_TILES
    if m < min(rows for rows, _ in known):
        known = ((m, max(MIN_SUMS // m, 1)),)
    for rows, vectors in known:
        most = min(rows, (registers - 2) // vectors - 2) if bias else rows
        yield ceil_div(m, ceil_div(m, most)), vectors


def even_rows(most: int, positions: int, run: int) -> int:
    """So many rows, or fewer, as start at the fewest places: those within a `run` lie at even
    distances, and tiles begin at the same places in it where they do not overlap."""
    fitting = [rows for rows in range(most, most // 2, -1) if positions % rows == 0]
    return min(fitting, key=lambda rows: rows // gcd(rows, run), default=most)


def aligned_rows(most: int, positions: int, run: int) -> int:
    """So many rows, or fewer, as are parts of a run, or whole ones."""
    fitting = (rows for rows in range(most, 1, -1) if positions % rows == 0)
    return next((rows for rows in fitting if run % rows == 0 or rows % run == 0), most)


def matrix_tiles(m: int, vectors: int) -> Iterator[tuple[int, int]]:
    """(rows, vectors) of tiles that are made of matrices, for no more than so many of either. Their
    registers are eight: for sums, for a row of matrices on the right and for one or two on the
    left."""
    for rows, columns in MATRIX_TILES:
        high = min(rows * MATRIX_ROWS, m)
        yield ceil_div(m, ceil_div(m, high)), min(columns, vectors)


def matrix_slots(rows: int, vectors: int, depth: int) -> int:
    """Of a tile made of matrices, in cycles: of a product 16, of loading one eight."""
    high = ceil_div(rows, MATRIX_ROWS)
    point = max(16 * high * vectors, 8 * (high + vectors))
    return point * depth + MATRIX_SLOTS


def tile_slots(
    rows: int, vectors: int, depth: int, target: Target, late: int = 0, pointers: int = 1
) -> int:
    """Of a tile, in multiply-adds of a vector: a load takes as long as one, both run side by side.
    `pointers` to the rows that find no register are loads, too. A processor that outruns its caches
    waits half as long for each number that it broadcasts, and `late` halves for a vector."""
    sums = rows * vectors
    point = max(sums, rows + vectors + max(pointers - POINTERS, 0), MIN_SUMS)
    if target.outruns_caches:
        point += (rows + late * vectors) // 2
    return point * depth + TILE_SLOTS + STORE_SLOTS * sums + POINTER_SLOTS * (pointers - 1)


def issue_slots(plan: Plan, target: Target, threads: int, more: int = 0, pointers: int = 1) -> int:
    """Of all chunks, as if each thread had as many; each takes so many `more`, and a tile so many
    `pointers` to its rows."""
    rows = plan.rows + (1 if plan.form.bias else 0)
    depth = plan.steps * ceil_div(plan.depth, plan.form.unit)
    late = 0 if stays_near(plan, target) else LATE.get(plan.right, 0)
    if plan.form.of_matrices:
        tile = matrix_slots(rows, plan.vectors, depth)
    else:
        tile = tile_slots(rows, plan.vectors, depth, target, late, pointers)
    count = (plan.block_tiles if plan.shared else plan.row_tiles) * plan.panels
    few = plan.chunks < CHUNKS_A_THREAD * threads
    return (round_up(plan.chunks, threads) if few else plan.chunks) * (count * tile + more)


def stays_near(plan: Plan, target: Target) -> bool:
    """Whether L1 holds a panel of the right operand until the next tile of rows."""
    return plan.depth * plan.columns * plan.form.itemsize <= target.l1_bytes // 2
