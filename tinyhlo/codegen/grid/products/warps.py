"""Tiles of products by instructions for matrices: what the warps of a group compute.

soonest(tiles_of(MMA, COPIED), Extents(1, 1024, 1024, 1024), ..)  ->  tile 128x64x32 by mma
"""

from __future__ import annotations

from tinyhlo.codegen.grid.products.fragments import WGMMA, Fragment
from tinyhlo.codegen.grid.products.tiles import MOST_PARTS, PART, Extents, Tile
from tinyhlo.ir.dtypes import U16
from tinyhlo.ir.index import Index
from tinyhlo.numbers import ceil_div
from tinyhlo.records import dataclass
from tinyhlo.target import Target

DEPTH = 32  # of a step
DEEP = 64  # of one that is copied
STAGES = 4  # at most
SHARING = 1 << 14  # sums of a group that lets another one onto its multiprocessor
RESERVED = 1 << 10  # bytes of shared memory that a group takes besides
RUN = 8  # numbers that an item loads: 16 bytes
PADDING = 8  # words behind a line whose words are read one by one
# In multiply-adds of 16 bits that a multiprocessor does meanwhile, 1280 a cycle: a number from the
# 2nd cache (28 bytes a cycle), a partial sum stored and loaded again (20 bytes a cycle), a dispatch
# (4 us). A step has a barrier.
NUMBER, PARTIAL, DISPATCH, STEP = 90, 512, 1 << 23, 1 << 15
FOUR = 4  # sums of a row that an item stores at once, behind a group's instructions
FILLED = 1 << 21  # the first steps and the results of a tile, where nothing else is done meanwhile


@dataclass(frozen=True, slots=True)
class MatrixTile(Tile):
    """`warps` along the rows and the columns, each of which has its part of them."""

    fragment: Fragment
    warps: tuple[int, int]

    @property
    def counts(self) -> tuple[int, int]:
        """Fragments of a warp along the rows and the columns."""
        (down, across), fragment = self.warps, self.fragment
        return self.rows // down // fragment.rows, self.columns // across // fragment.columns

    def corner(self, item: Index) -> tuple[Index, Index, Index]:
        """Where the part of an item's warp begins, and the item's lane."""
        warp, lane = item // self.fragment.lanes, item % self.fragment.lanes
        down, across = self.counts
        row = warp // self.warps[1] * (down * self.fragment.rows)
        return row, warp % self.warps[1] * (across * self.fragment.columns), lane

    def places(self, item: Index) -> list[tuple[Index, Index]]:
        row, column, lane = self.corner(item)
        down, across = self.counts
        own = self.fragment.sums(lane)
        return [
            (row + r * self.fragment.rows + y, column + c * self.fragment.columns + x)
            for r in range(down)
            for c in range(across)
            for y, x in own
        ]

    @property
    def stage_bytes(self) -> int:
        """Of both operands' numbers of a step; rows that words are read from are longer."""
        numbers = (self.rows + self.columns) * self.depth
        if not self.fragment.copies:
            numbers += (self.rows + self.columns) * RUN
        if not self.fragment.turns:  # where both operands lie across
            numbers += 2 * PADDING * self.depth
        return numbers * self.fragment.itemsize

    def stages(self, target: Target) -> int:
        """How many fit what a group may have: where its sums take half of a multiprocessor's
        registers it is alone there, else two of them must fit."""
        most = max(target.group_bytes, target.asked_bytes)
        groups = 1 if self.rows * self.columns > SHARING else 2
        fit = max(target.group_bytes, min(most, target.l1_bytes // groups - RESERVED))
        return min(STAGES, fit // self.stage_bytes)

    def parts(self, extents: Extents, target: Target) -> int:
        """As many as are soonest done; each has some depth to itself."""
        short = ceil_div(target.threads, self.count(extents))
        most = max(1, min(short, MOST_PARTS, extents.depth // PART))
        best = min(range(1, most + 1), key=lambda n: self.time_of(n, extents, target))
        steps = ceil_div(extents.depth, self.depth)
        return ceil_div(steps, ceil_div(steps, best))

    def time_of(self, parts: int, extents: Extents, target: Target) -> float:
        """In multiply-adds of a multiprocessor, whose groups share it."""
        steps = ceil_div(ceil_div(extents.depth, self.depth), parts)
        turns = ceil_div(self.count(extents) * parts, target.threads)
        total = turns * self.alone(steps)
        if parts == 1:
            return total
        outputs = extents.batch * extents.rows * extents.columns
        more = DISPATCH + PARTIAL * outputs * parts / target.threads
        return total + more / self.fragment.pace

    def alone(self, steps: int) -> float:
        """The time of one tile, in the same measure."""
        pace = self.fragment.pace  # of which it does fewer meanwhile
        number = NUMBER * self.fragment.itemsize / U16.itemsize / pace
        each = self.rows * self.columns * (1 + number / self.rows + number / self.columns)
        return steps * (each * self.depth + STEP / pace)

    def __str__(self) -> str:
        return f"tile {self.rows}x{self.columns}x{self.depth} by {self.fragment.name}"


@dataclass(frozen=True, slots=True)
class WarpgroupTile(MatrixTile):
    """Of instructions that read both operands from memory which the group shares: four warps have
    64 rows, and all columns."""

    @property
    def epilogues(self) -> int:
        """Of each turn of a loop, of which compilers write out eight."""
        return FOUR * 8

    def alone(self, steps: int) -> float:
        """Operands take longer to come than to be multiplied."""
        each = self.rows * self.columns * (NUMBER / self.rows + NUMBER / self.columns)
        return steps * (each * self.depth + STEP) + FILLED


# Rows and columns of a group and of an item, and warps one above the other; more lie side by side.
Shape = tuple[int, int, int, int, int]
# Registers hold a step of operands on its way, or words of two parts of a step.
HELD: tuple[Shape, ...] = ((128, 128, 8, 8, 2), (64, 64, 8, 4, 2), (32, 32, 4, 4, 1))
# Copies take none: warps of 64 x 64 read the fewest words for each product.
COPIED: tuple[Shape, ...] = (
    (256, 128, 16, 8, 4),
    (128, 256, 16, 8, 2),
    (128, 128, 16, 8, 2),
    (128, 128, 8, 8, 2),
    (128, 64, 8, 8, 2),
    (64, 128, 8, 8, 1),
    (64, 64, 8, 4, 2),
    (32, 64, 4, 4, 1),
    (32, 32, 4, 4, 1),
)
# Sums of an item take up to 128 registers; 64 columns are as fast as shared memory.
GROUPED = ((128, 256), (128, 128), (64, 128))


def tiles_of(fragment: Fragment, shapes: tuple[Shape, ...]) -> list[MatrixTile]:
    """The tiles to choose from, whose steps are of as many bytes."""
    depth = DEPTH * U16.itemsize // fragment.itemsize
    found: list[MatrixTile] = []
    for rows, columns, item_rows, item_columns, down in shapes:
        warps = (rows // item_rows) * (columns // item_columns) // fragment.lanes
        layout = (min(down, warps), max(1, warps // down))
        found.append(MatrixTile(rows, columns, depth, item_rows, item_columns, fragment, layout))
    return found


def warpgroup_tiles() -> list[WarpgroupTile]:
    """The tiles of instructions that read memory which the group shares."""
    return [
        WarpgroupTile(rows, columns, DEEP, 2, columns // 4, WGMMA, (rows // 16, 1))
        for rows, columns in GROUPED
    ]
