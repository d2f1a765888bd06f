"""Cholesky's factor of matrices, block of columns by block of columns.

In: a call of `potrf` on a device. Out: a LoopProgram, whose turns are two grids:

    for turn in 16 dispatched:
      for group in 5 grid: local block: f32[4608]         # columns: the block on the diagonal, and
        for item in 128 item: a0 = block[..] .. a31 = ..  #   96 of the rows below
          for k in 32 ordered:                            # every item eliminates in its own row
            column[..] = a0; synchronize
            a0 = a1 - a0 / pivot * column[..] ..          # the next column is always a0
          ..                                              # all by 1 / sqrt(pivot)
      for group in 64 grid: ..                            # trailing: A[i, j] -= L[i, k] * L[j, k]

Each group of the first grid factors the block on the diagonal for itself, from where the second
grid has put a copy: one of them writes it while others still read. Of the second grid, groups above
the diagonal have nothing to do.

Source: Golub, Van Loan, Matrix Computations, section 4.2.6 (blocked, outer products).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from tinyhlo.codegen.expressions import (
    Apply,
    Guard,
    IndexValue,
    Load,
    Memory,
    Read,
    literal,
    where,
)
from tinyhlo.codegen.grid.factors.blocks import Blocked, Element, loads, multiply_add
from tinyhlo.codegen.grid.factors.calls import BLOCK, ITEMS, TILE
from tinyhlo.codegen.grid.mapping import by_item
from tinyhlo.codegen.grid.statements import Synchronize
from tinyhlo.codegen.lapack import letter
from tinyhlo.codegen.loops import (
    Allocate,
    Assign,
    Axis,
    Body,
    Declare,
    Loop,
    LoopProgram,
    Statement,
    Store,
    Turns,
    guarded,
)
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import I32
from tinyhlo.ir.graph import LibraryCall, Param
from tinyhlo.ir.index import Index, Var, index, unravel
from tinyhlo.ir.ops import Op
from tinyhlo.numbers import ceil_div
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

MOST_LINES = 128  # rows of a group that eliminates, an item each


class Place(NamedTuple):
    """An item of a group, whose lines are in `block`: of columns as they were eliminated, which
    their `scales` make those of the factor. `column`: see `eliminated`."""

    block: Memory
    column: Memory
    scales: Memory
    chunk: Index
    matrix: Index
    item: Var


Move = Callable[[Place, Index, Index | None, Index], Body]


class Cholesky(Blocked):
    """The lower factor; LAPACK's upper one of columns is the lower one of rows."""

    def __init__(self, kernel: Kernel, call: LibraryCall, target: Target) -> None:
        super().__init__(kernel, call, target)
        self.by_rows = letter(call, "uplo") == "U"
        size = self.batch * self.rows**2
        self.unread = self.result(0) is None
        self.factor = self.result(0) or Memory("factor", self.dtype, size, local=True)
        self.pivots = Memory("pivots", self.dtype, self.batch * BLOCK**2, local=True)
        self.failed = self.result(1)
        self.lines_of_group = min(MOST_LINES, 1 << (self.count * BLOCK - 1).bit_length())

    def program(self) -> LoopProgram:
        grids = [self.columns()]
        if self.tiles(0):
            grids.append(self.trailing())
        groups = tuple((self.chunks(t), self.tiles(t) * self.tiles(0)) for t in range(self.count))
        groups = tuple(tuple(n * self.batch for n in each[: len(grids)]) for each in groups)
        turns = Turns(self.turn, self.numbers, tuple(grids), groups)
        kept = (self.numbers, self.pivots, *((self.factor,) if self.unread else ()))
        body = (*map(Allocate, kept), self.prepared())
        loops = self.lowering.program(body, (f"{self.count} blocks of {BLOCK} columns",))
        return replace(loops, turns=turns)

    def place(self, matrix: Index, row: Index, column: Index) -> Index:
        at = (row, column) if self.by_rows else (column, row)
        return (matrix * self.rows + at[0]) * self.rows + at[1]

    def chunks(self, turn: int) -> int:
        """Groups that share the rows of a turn."""
        below = self.lines_of_group - BLOCK
        return max(1, ceil_div(self.left_behind(turn), below)) if below else 1

    # --- before the first turn -----------------------------------------------------------------

    def prepared(self) -> Statement:
        """The matrix where its factor will be, the first block on the diagonal, and numbers."""
        source = self.call.inputs[0]
        in_place = isinstance(source, Param) and any(
            self.lowering.writes[k] == self.factor and p == source.position
            for k, p in self.lowering.kernel.in_place
        )

        def of(number: Index) -> Body:
            matrix, *at = unravel(number, (self.batch, self.rows, self.rows))
            value = self.operand(0, matrix, tuple(at))
            row, column = at if self.by_rows else reversed(at)
            pivot = Store(self.pivots, in_pivots(matrix, row, column), value)
            near = (Condition(row, 0, BLOCK), Condition(column, 0, BLOCK))
            counted = Store(self.numbers, number, IndexValue(number, I32))
            found: Body = () if in_place else (Store(self.factor, number, value),)
            found += guarded((pivot,), *near)
            found += guarded((counted,), Condition(number, 0, self.count))
            if self.failed is not None:
                none = Store(self.failed, number, literal(0, I32))
                found += guarded((none,), Condition(number, 0, self.batch))
            return found

        return by_item(self.batch * self.rows**2, ITEMS, of)

    # --- a block of columns --------------------------------------------------------------------

    def columns(self) -> Loop:
        """An item has a row in registers."""
        lines = self.lines_of_group
        group, item = Var("group", self.chunks(0) * self.batch), Var("item", lines)
        chunk, matrix = unravel(index(group), (self.chunks(0), self.batch))
        block, column = self.lines("block", lines), self.shared("column", BLOCK**2)
        scales = self.shared("scales", BLOCK)
        at = Place(block, column, scales, chunk, matrix, item)
        k, own = Var("k", BLOCK), index(item) * self.pitch
        names = tuple(f"a{j}" for j in range(BLOCK))
        body: Body = (
            *self.moved(at, self.taken),
            Synchronize(),
            *loads(names, block, own, self.by_fours),
            Declare("failed", literal(0, I32)),
            Loop(k, Axis.ORDERED, self.eliminated(at, index(k))),
            *self.scales_of(at),
            Synchronize(),
            *self.moved(at, self.given),
            *self.told(at),
        )
        shared = map(Allocate, (block, column, scales))
        return Loop(group, Axis.GRID, (*shared, Loop(item, Axis.ITEM, body)))

    def moved(self, at: Place, move: Move) -> Body:
        """`move` of each (line, its row behind the first one of the turn, place in it): first the
        block on the diagonal, whose lines have no other number, then the rows below it."""
        below, across = self.lines_of_group - BLOCK, not self.by_rows

        def diagonal(line: Index, place: Index) -> Body:
            return move(at, line, None, place)

        def rest(line: Index, place: Index) -> Body:
            return move(at, line + BLOCK, at.chunk * below + line + BLOCK, place)

        sides = ((BLOCK, diagonal), (below, rest))
        each = (self.each(n, at.item, self.lines_of_group, across, of) for n, of in sides if n)
        return tuple(each)

    def taken(self, at: Place, line: Index, row: Index | None, place: Index) -> Body:
        """From memory; behind the matrix there are ones on the diagonal."""
        spot, zero = line * self.pitch + place, literal(0, self.dtype)
        if row is not None:
            held = (Condition(self.first + row, 0, self.rows),)
            source = self.place(at.matrix, self.first + row, self.first + place)
            return (Store(at.block, spot, Guard(held, Load(self.factor, source), zero)),)
        own = self.first + line
        held = (Condition(own, 0, self.rows), Condition(line - place, 0, BLOCK))
        value = Guard(held, Load(self.pivots, in_pivots(at.matrix, line, place)), zero)
        unit = Store(at.block, spot, literal(1, self.dtype))
        outside = (Condition(own, self.rows, self.count * BLOCK), Condition(line - place, 0, 1))
        ones = guarded((unit,), *outside) if self.rows % BLOCK else ()
        return (Store(at.block, spot, value), *ones)

    def given(self, at: Place, line: Index, row: Index | None, place: Index) -> Body:
        """To memory; the block on the diagonal by one group."""
        own = self.first + (line if row is None else row)
        spot = self.place(at.matrix, own, self.first + place)
        value = Load(at.block, line * self.pitch + place) * Load(at.scales, place)
        store = Store(self.factor, spot, value)
        held = [Condition(own, 0, self.rows)]
        if row is None:
            held += [Condition(line - place, 0, BLOCK), Condition(at.chunk, 0, 1)]
        return guarded((store,), *held)

    def eliminated(self, at: Place, k: Index) -> Body:
        """Column k, which is in a0, and what it changes in those behind it. What all items read of
        it lies from the row behind the pivot on, as columns do in registers; the pivot is last."""
        column = at.column
        own, part, pivot = (Read(name, self.dtype) for name in ("a0", "part", "pivot"))
        shown = Store(column, k * BLOCK + (index(at.item) + (BLOCK - 1) - k) % BLOCK, own)
        bad = ~(literal(0, self.dtype) < pivot) & Read("failed", I32).equals(0)
        failed = where(bad, IndexValue(self.first + k + 1, I32), Read("failed", I32))
        names = tuple(f"c{j}" for j in range(BLOCK))
        return (
            *guarded((shown,), Condition(index(at.item), 0, BLOCK)),
            Synchronize(),
            Declare("pivot", Load(column, k * BLOCK + BLOCK - 1)),
            Declare("part", -(own / pivot)),
            Store(at.block, index(at.item) * self.pitch + k, own),
            Assign(("failed",), (failed,)),
            *loads(names, column, k * BLOCK, self.by_fours),
            *(
                multiply_add(f"a{j}", part, Read(f"c{j}", self.dtype), f"a{j + 1}")
                for j in range(BLOCK - 1)
            ),
        )

    def scales_of(self, at: Place) -> Body:
        """Of all columns at once: in each step, everybody would wait for a root and a division."""
        k = index(at.item)
        pivot = Load(at.column, k * BLOCK + BLOCK - 1)
        root = Apply(Op.SQRT, (pivot,), self.dtype)
        store = Store(at.scales, k, literal(1, self.dtype) / root)
        return guarded((store,), Condition(k, 0, BLOCK))

    def told(self, at: Place) -> Body:
        """The first column without a positive pivot, counted from 1."""
        if self.failed is None:
            return ()
        before = Load(self.failed, at.matrix)
        value = where(before.equals(0), Read("failed", I32), before)
        first = Condition(index(at.item), 0, 1), Condition(at.chunk, 0, 1)
        return guarded((Store(self.failed, at.matrix, value),), *first)

    # --- what is behind it ---------------------------------------------------------------------

    def trailing(self) -> Loop:
        """The product of the columns and their transpose, taken from the lower triangle."""
        tiles = self.tiles(0)
        group, item = Var("group", tiles**2 * self.batch), Var("item", ITEMS)
        row, column, matrix = unravel(index(group), (tiles, tiles, self.batch))
        blocks = self.lines("left", TILE), self.lines("right", TILE)
        sides = (row, column) if self.by_rows else (column, row)  # neighbours are of the last one

        def turned(y: Index, x: Index) -> tuple[Index, Index]:
            return (y, x) if self.by_rows else (x, y)

        def of(*lines: Index) -> Element:
            y, x = (side * TILE + line for side, line in zip(sides, lines, strict=True))
            i, j = turned(y, x)
            held = (Condition(self.behind + i, 0, self.rows), Condition(i - j, 0, self.rows))
            return Element(self.place(matrix, self.behind + i, self.behind + j), held)

        before, after = self.taken_off(*blocks, item, self.factor, of)
        next_: Body = ()  # block on the diagonal, which is in the first tile
        for lines in self.places(item):
            near = (Condition(line, 0, BLOCK) for line in lines)
            element, to = of(*lines), in_pivots(matrix, *turned(*lines))
            pivot = Store(self.pivots, to, Load(self.factor, element.at))
            next_ += guarded((pivot,), *element.held, *near)
        next_ = guarded(next_, Condition(row, 0, 1), Condition(column, 0, 1))
        staged = (
            self.each(TILE, item, ITEMS, not self.by_rows, self.of_columns(block, matrix, side))
            for block, side in zip(blocks, sides, strict=True)
        )
        body = (*before, *staged, Synchronize(), *after, *next_)
        lower = guarded(body, Condition(row - column, 0, tiles))
        return Loop(group, Axis.GRID, (*map(Allocate, blocks), Loop(item, Axis.ITEM, lower)))

    def of_columns(self, block: Memory, matrix: Index, side: Index) -> Callable[..., Body]:
        """What has just been eliminated, of a tile's rows."""

        def staged(line: Index, place: Index) -> Body:
            row = self.behind + side * TILE + line
            value = Load(self.factor, self.place(matrix, row, self.first + place))
            held = Guard((Condition(row, 0, self.rows),), value, literal(0, self.dtype))
            return (Store(block, line * self.pitch + place, held),)

        return staged


def in_pivots(matrix: Index, row: Index, column: Index) -> Index:
    return matrix * BLOCK**2 + row * BLOCK + column
