"""Axes walked block by block.

A Cut says how a few axes of a product are divided: the axes before `number` advance by one
position a block, axis `number` by `size` positions, the axes after it are whole in every block.

    Cut(axes b, y, x of extents 8, 56, 56; number 1; size 14)     # 32 blocks of 14x56 positions

No block is shorter: the last one begins earlier and overlaps the one before it, so that nothing
inside has to ask whether it is still within bounds. What lies in two blocks is computed twice, to
the same value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod

from tinyhlo.codegen.expressions import Apply, IndexValue, literal
from tinyhlo.ir.dtypes import I64
from tinyhlo.ir.index import ZERO, Data, Index, constant, index, unravel
from tinyhlo.ir.ops import Op
from tinyhlo.numbers import ceil_div, round_up
from tinyhlo.records import dataclass

Positions = Mapping[int, Index]  # by axis of the product
MAX_DEPTH = 1024  # k positions in a step
# that an axis is cut in
PARTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 48, 64, 96, 128, 192, 256)


@dataclass(frozen=True, slots=True)
class Cut:
    """`runs[k]` are axes of the product, next to each other in memory, that count as one of
    `extents[k]` positions."""

    runs: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...]  # of the whole product
    number: int
    size: int
    apart: bool = False  # positions of a block are as many apart as there are blocks

    @property
    def extents(self) -> tuple[int, ...]:
        return extents(self.runs, self.shape)

    @property
    def parts(self) -> int:
        """Blocks along the axis that is cut."""
        return ceil_div(self.extents[self.number], self.size) if self.runs else 1

    @property
    def blocks(self) -> int:
        return prod(self.extents[: self.number]) * self.parts

    @property
    def inside(self) -> tuple[int, ...]:
        """Extents of one block."""
        return (self.size, *self.extents[self.number + 1 :]) if self.runs else ()

    @property
    def positions(self) -> int:
        return prod(self.inside)

    def units(self, lanes: int) -> tuple[int, ...]:
        """Vectors along each run of a block: those of the last run may overlap."""
        *outer, last = self.inside
        return (*outer, ceil_div(last, lanes))

    def runs_at(self, block: Index) -> list[Index]:
        """Where a block begins along every run."""
        *outer, part = unravel(block, (*self.extents[: self.number], self.parts))
        last = self.extents[self.number] - self.size
        start = part if self.apart else at_most(part * self.size, last)
        return [*outer, start, *[ZERO] * (len(self.runs) - self.number - 1)]

    def runs_within(self, inside: Sequence[Index]) -> list[Index]:
        """Positions along every run, from a block's origin, for indices into `inside`."""
        first, *rest = inside
        return [*[ZERO] * self.number, first * (self.parts if self.apart else 1), *rest]

    def axes(self, runs: Sequence[Index]) -> dict[int, Index]:
        """Positions along the product's axes from those along the runs."""
        found: dict[int, Index] = {}
        for run, position in zip(self.runs, runs, strict=True):
            inner = unravel(position, tuple(self.shape[axis] for axis in run))
            found.update(zip(run, inner, strict=True))
        return found

    def at(self, block: Index, inside: Sequence[Index]) -> dict[int, Index]:
        """Positions along the product's axes of a point of a block."""
        if not self.runs:
            return {}
        pairs = zip(self.runs_at(block), self.runs_within(inside), strict=True)
        return self.axes([start + offset for start, offset in pairs])

    def origin(self, block: Index) -> dict[int, Index]:
        """Where a block begins."""
        return self.at(block, [ZERO] * len(self.inside))

    def within(self, inside: Sequence[Index]) -> dict[int, Index]:
        """A point of a block, from its origin; only where every run is one axis."""
        return self.axes(self.runs_within(inside)) if self.runs else {}

    def unravel(self, flat: Index) -> list[Index]:
        """Indices into `inside` of point number `flat`."""
        return list(unravel(flat, self.inside)) if self.runs else []

    def inner_extents(self) -> dict[int, int]:
        """Positions of one block along every axis."""
        found: dict[int, int] = {}
        for number, run in enumerate(self.runs):
            for axis in run:
                whole = self.shape[axis] if number >= self.number else 1
                cut = number == self.number and len(run) == 1
                found[axis] = self.size if cut else whole
        return found


@lru_cache(1024)  # a planner that compares tiles asks for those of a product 500 times
def extents(runs: tuple[tuple[int, ...], ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Positions along every run."""
    return tuple(prod(shape[axis] for axis in run) for run in runs)


def at_most(position: Index, highest: int) -> Index:
    """min(position, highest)."""
    low, high = position.bounds
    if high <= highest:
        return position
    if low >= highest:
        return constant(highest)
    smaller = Apply(Op.MIN, (IndexValue(position, I64), literal(highest, I64)), I64)
    return index(Data(smaller, (low, highest)))


def joined(first: Positions, second: Positions) -> dict[int, Index]:
    """Sums, axis by axis."""
    found = dict(first)
    for axis, position in second.items():
        found[axis] = found[axis] + position if axis in found else position
    return found


def cuts(
    runs: tuple[tuple[int, ...], ...], shape: tuple[int, ...], unit: int, least: int, lanes: int
) -> Iterator[Cut]:
    """Blocks of axes from coarse to fine, each of as many rows or vectors as a tile has at `least`;
    along the last run they are multiples of `unit`."""
    if not runs:
        yield Cut((), shape, 0, 1)
    for number, run in enumerate(runs):
        extent = prod(shape[axis] for axis in run)
        before = 0
        for parts in PARTS:
            size = ceil_div(extent, parts)
            if number == len(runs) - 1 and parts > 1:
                size = min(round_up(size, unit), extent)
            if size == before or parts > extent:
                continue
            before = size
            cut = Cut(runs, shape, number, size)
            if prod(cut.units(lanes)) >= least:
                yield cut


def first(options: list[Cut], holds: Callable[[Cut], bool]) -> int:
    """The number of the first option for which `holds`, or the last one's."""
    return next((k for k, option in enumerate(options) if holds(option)), len(options) - 1)


def split_depth(extents: list[int], most: int = MAX_DEPTH) -> tuple[int, int, int]:
    """(axis cut in parts, number of parts, positions in a step), of which at most `most` if the
    extents have fitting divisors."""
    inner = 1
    for axis in range(len(extents) - 1, -1, -1):
        if inner * extents[axis] > most:
            fitting = (d for d in range(2, extents[axis] + 1) if extents[axis] % d == 0)
            parts = next(d for d in fitting if inner * extents[axis] // d <= most)
            positions = inner * extents[axis] // parts
            few = max(most // 16, 4)
            if positions < few and extents[axis] * inner <= 8 * MAX_DEPTH:  # no good divisor
                return axis, 1, inner * extents[axis]
            return axis, parts, positions
        inner *= extents[axis]
    return 0, 1, inner
