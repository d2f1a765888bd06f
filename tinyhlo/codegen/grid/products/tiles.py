"""Tiles of matrix products on grids: what a group computes, and its items.

choose_tile(Extents(1, 4096, 4096, 4096), 4, 1, target)  ->  tile 128x128x8 of 8x8
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple, TypeVar

from tinyhlo.ir.index import Index, unravel
from tinyhlo.numbers import ceil_div
from tinyhlo.records import dataclass
from tinyhlo.target import Target

MOST_PARTS = 16  # of a depth
PART = 256  # of a depth, at least
MOST_WRITTEN = 512  # operations of all epilogues of an item
LOADS = 0.25  # of the time of a multiply-add, when no operand had to be loaded
RUN = 4  # numbers of 16 bytes
WARP = (4, 8)  # items of a warp along the rows and the columns
RESIDENT = 512  # items whose sums the registers of a multiprocessor hold
# The rest is in multiply-adds of a multiprocessor, 128 a cycle; docs/decisions/0052.
READ = 1.5  # a number of shared memory, of an item
STEP = 40  # of an item, besides what it stages
IDLE = 3  # warps that wait for memory or each other
START = 128 << 10  # of a group, until its first loads are there, and behind its last step
GIVEN = 8  # a sum of a slice, to the one that adds it up
WAITS = 10_000  # of a group for each of its slices
ANOTHER = 600_000  # another dispatch
ADDED = 60  # a sum of a part, to memory and back


class Extents(NamedTuple):
    """Of a product."""

    batch: int
    rows: int
    columns: int
    depth: int


T = TypeVar("T", bound="Tile")


@dataclass(frozen=True, slots=True)
class Tile:
    """`rows` x `columns` sums of a group; an item has `item_rows` x `item_columns` of them, as many
    apart as there are items along that side. `depth` of both operands are staged at once."""

    rows: int
    columns: int
    depth: int
    item_rows: int
    item_columns: int

    @property
    def shape(self) -> tuple[int, int]:
        """Items along the rows and the columns."""
        return self.rows // self.item_rows, self.columns // self.item_columns

    @property
    def items(self) -> int:
        return self.shape[0] * self.shape[1]

    @property
    def sums(self) -> int:
        """Of an item."""
        return self.item_rows * self.item_columns

    @property
    def epilogues(self) -> int:
        """Of an item, that are written out."""
        return self.sums

    def count(self, extents: Extents) -> int:
        rows, columns = ceil_div(extents.rows, self.rows), ceil_div(extents.columns, self.columns)
        return extents.batch * rows * columns

    def parts(self, extents: Extents, target: Target) -> int:
        """How many groups share the depth of a tile, where tiles are too few for a device."""
        short = ceil_div(target.threads, self.count(extents))
        parts = max(1, min(short, MOST_PARTS, extents.depth // PART))
        steps = ceil_div(extents.depth, self.depth)
        return ceil_div(steps, ceil_div(steps, parts))

    def places(self, item: Index) -> list[tuple[Index, Index]]:
        """The row and column in the tile of each of an item's sums."""
        y, x = unravel(item, self.shape)
        down, across = self.shape
        return [
            (y + r * down, x + c * across)
            for r in range(self.item_rows)
            for c in range(self.item_columns)
        ]

    def time(self, extents: Extents, target: Target) -> float:
        """What `soonest` compares."""
        return self.time_of(self.parts(extents, target), extents, target)

    def time_of(self, parts: int, extents: Extents, target: Target) -> float:
        """In multiply-adds of one after another of the groups that a device runs at once."""
        turns = ceil_div(self.count(extents) * parts, target.threads)
        each = self.rows * self.columns * ceil_div(extents.depth, parts)
        return turns * each * (LOADS + 1 / self.item_rows + 1 / self.item_columns)

    def __str__(self) -> str:
        return (
            f"tile {self.rows}x{self.columns}x{self.depth} of {self.item_rows}x{self.item_columns}"
        )


@dataclass(frozen=True, slots=True)
class WideTile(Tile):
    """An item's sums lie in squares of 4x4. As many items more share the depth of a step as there
    are `slices` of it. `staged`: instructions for an element of each operand until it is in shared
    memory."""

    slices: int = 1
    staged: tuple[int, int] = (2, 2)

    @property
    def items(self) -> int:
        return prod(self.shape) * self.slices

    @property
    def stage(self) -> int:
        """Words of both operands."""
        return self.depth * (self.pitch(self.rows) + self.pitch(self.columns))

    @property
    def words(self) -> int:
        """Of shared memory: two stages, or what the slices give each other."""
        given = self.sums // self.slices * self.items
        return max(2 * self.stage, given if self.slices > 1 else 0)

    @property
    def together(self) -> int:
        """Groups of a multiprocessor at once."""
        return max(1, RESIDENT // self.items)

    def pitch(self, count: int) -> int:
        """Words from one depth to the next: neighbours along the depth, of 8 and fewer rows, lie
        in different banks."""
        return count + RUN

    def fits(self, target: Target) -> bool:
        return self.words * 4 <= target.group_bytes and self.items <= target.group_items

    def slice_of(self, item: Index) -> tuple[Index, Index]:
        """The slice of an item, and its number in it."""
        count = prod(self.shape)
        return item // count, item % count

    def square(self, number: Index) -> tuple[Index, Index]:
        """The first square of an item along the rows and the columns. Lanes that differ in one bit,
        or in the next, read the same numbers of an operand: so does a half warp at once."""
        warp, lane = number // prod(WARP), number % prod(WARP)
        y, x = unravel(warp, (self.shape[0] // WARP[0], self.shape[1] // WARP[1]))
        return y * WARP[0] + lane // 16 * 2 + lane % 2, x * WARP[1] + lane // 2 % WARP[1]

    def places(self, item: Index) -> list[tuple[Index, Index]]:
        y, x = self.square(self.slice_of(item)[1])
        down, across = self.shape
        return [
            (y * RUN + r // RUN * RUN * down + r % RUN, x * RUN + c // RUN * RUN * across + c % RUN)
            for r in range(self.item_rows)
            for c in range(self.item_columns)
        ]

    def parts(self, extents: Extents, target: Target) -> int:
        """As many as make it soonest done."""
        steps = ceil_div(extents.depth, self.depth)
        most = max(1, min(MOST_PARTS, extents.depth // PART))
        ways = {ceil_div(steps, ceil_div(steps, parts)) for parts in range(1, most + 1)}
        return min(sorted(ways), key=lambda parts: self.time_of(parts, extents, target))

    def time_of(self, parts: int, extents: Extents, target: Target) -> float:
        """In multiply-adds of a multiprocessor, which keeps busier the more warps it has."""
        groups = ceil_div(self.count(extents) * parts, target.threads)  # of a multiprocessor
        together = min(groups, self.together)
        warps = together * self.items / prod(WARP)
        depth = self.depth * ceil_div(ceil_div(extents.depth, self.depth), parts)
        loads = 1 + READ * (1 / self.item_rows + 1 / self.item_columns)
        loads += self.staged[0] / self.columns + self.staged[1] / self.rows
        loads += STEP * self.slices / (self.sums * self.depth)
        time = groups * self.rows * self.columns * depth * loads * (1 + IDLE / warps)
        time += START * ceil_div(groups, together)
        if self.slices > 1:
            time += groups * (GIVEN * self.sums * self.items + WAITS * self.slices)
        if parts > 1:
            time += ANOTHER + ADDED * parts * prod(extents[:3]) / target.threads
        return time

    def __str__(self) -> str:
        text = Tile.__str__(self)
        return f"{text} by fours" + (f" in {self.slices} slices" if self.slices > 1 else "")


# Slices: more items where tiles are few. A step is 256 multiply-adds of an item or more.
WIDE = (
    WideTile(128, 128, 8, 8, 8),
    WideTile(128, 64, 8, 8, 8),
    WideTile(64, 128, 8, 8, 8),
    WideTile(128, 64, 16, 8, 8, 2),
    WideTile(64, 128, 16, 8, 8, 2),
    WideTile(64, 64, 8, 8, 8),
    WideTile(64, 64, 16, 8, 8, 2),
    WideTile(64, 64, 32, 8, 8, 4),
    WideTile(128, 32, 32, 8, 4, 2),
    WideTile(64, 32, 32, 8, 4, 4),
    WideTile(32, 64, 32, 4, 8, 4),
    WideTile(32, 32, 16, 4, 4),
    WideTile(32, 32, 64, 4, 4, 4),
    WideTile(16, 128, 32, 4, 4, 2),
    WideTile(16, 32, 64, 4, 4, 4),
)
SQUARE = (  # items of a group read few different rows and columns
    Tile(128, 128, 8, 8, 8),
    Tile(64, 64, 16, 4, 4),
    Tile(32, 32, 32, 2, 2),
    Tile(128, 32, 16, 8, 2),
    Tile(32, 128, 16, 2, 8),
    Tile(16, 16, 32, 1, 1),
    Tile(8, 256, 16, 8, 1),
    Tile(4, 256, 16, 4, 1),
    Tile(1, 256, 16, 1, 1),
)
# Items of a group become lanes of vectors: they have the same rows, and columns side by side.
FLAT = (
    Tile(16, 128, 16, 16, 2),
    Tile(16, 64, 16, 16, 1),
    Tile(8, 64, 16, 8, 1),
    Tile(4, 64, 32, 4, 1),
    Tile(1, 64, 32, 1, 1),
)


def choose_tile(extents: Extents, itemsize: int, written: float, target: Target) -> Tile | None:
    """The tile that is soonest done; `written` are the operations of an epilogue, which is written
    out for each sum of an item. None if none fits the device."""

    def fits(tile: Tile) -> bool:
        staged = (tile.rows + tile.columns + 2) * tile.depth * itemsize
        return staged <= target.group_bytes and tile.items <= target.group_items

    tiles = FLAT if target.is_processor else SQUARE
    return soonest([*filter(fits, tiles)], extents, written, MOST_WRITTEN, target)


def soonest(
    tiles: Sequence[T], extents: Extents, written: float, most: float, target: Target
) -> T | None:
    """The tile that is soonest done, of those with at most so many operations in epilogues."""
    least = min((tile.epilogues for tile in tiles), default=0)
    short = [t for t in tiles if t.epilogues * written <= most or t.epilogues == least]
    return min(short, key=lambda tile: tile.time(extents, target), default=None)
