"""Triangular systems, block of rows by block of rows.

In: a call of `trsm` on a device. Out: a LoopProgram, whose turns are one grid. Of the system that
`codegen/lapack.py` makes of all cases, T X = B, B is copied to scratch:

    for turn in 16 dispatched:
      for group in 64 grid:                       # 64 rows behind the block, 64 columns
        for item in 256 item:
          b0 = rest[..] .. b31 = ..               # items below 64: a column of the turn's rows
          for k in 32 ordered: solved[..] = x; b0 = b1 - x * triangle[..] ..
          rest[..] -= T[i, k] * solved[k, j]

Each group solves for the block by itself: that takes less time than another dispatch. The first of
those that share columns writes what it has found.

Source: Golub, Van Loan, Matrix Computations, section 3.1.4 (block substitution).
"""

from __future__ import annotations

from dataclasses import replace

from tinyhlo.codegen.expressions import Guard, IndexValue, Load, Memory, Read, literal, where
from tinyhlo.codegen.grid.factors.blocks import Blocked, Element, loads, multiply_add
from tinyhlo.codegen.grid.factors.calls import BLOCK, ITEMS, TILE
from tinyhlo.codegen.grid.mapping import by_item
from tinyhlo.codegen.grid.statements import Synchronize
from tinyhlo.codegen.lapack import TriangularSystem
from tinyhlo.codegen.loops import (
    Allocate,
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
from tinyhlo.ir.graph import LibraryCall
from tinyhlo.ir.index import Index, Var, index, linear, unravel
from tinyhlo.numbers import ceil_div
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target


class Triangles(Blocked):
    """The solution of a triangular system."""

    def __init__(self, kernel: Kernel, call: LibraryCall, target: Target) -> None:
        super().__init__(kernel, call, target)
        self.columns = call.results[0].size // (self.batch * self.rows)
        self.system = TriangularSystem(call)
        self.across = ceil_div(self.columns, TILE)
        size = self.batch * self.rows * self.columns
        self.rest = Memory("rest", self.dtype, size, local=True)

    def program(self) -> LoopProgram:
        groups = [max(1, self.tiles(t)) * self.across * self.batch for t in range(self.count)]
        grid = self.solved(Var("group", groups[0]))
        turns = Turns(self.turn, self.numbers, (grid,), tuple((n,) for n in groups))
        body = (*map(Allocate, (self.numbers, self.rest)), self.prepared())
        loops = self.lowering.program(body, (f"{self.count} blocks of {BLOCK} rows",))
        return replace(loops, turns=turns)

    def in_rest(self, matrix: Index, i: Index, column: Index) -> Index:
        return linear((matrix, i, column), (self.batch, self.rows, self.columns))

    # --- what runs -----------------------------------------------------------------------------

    def prepared(self) -> Statement:
        """Right sides, row by row, and numbers."""

        def of(number: Index) -> Body:
            matrix, i, column = unravel(number, (self.batch, self.rows, self.columns))
            value = self.operand(1, matrix, self.system.of_solution(i, column))
            counted = Store(self.numbers, number, IndexValue(number, I32))
            store = Store(self.rest, number, value)
            return (store, *guarded((counted,), Condition(number, 0, self.count)))

        return by_item(self.batch * self.rows * self.columns, ITEMS, of)

    def solved(self, group: Var) -> Loop:
        """The rows of a turn, and what they change in a tile of those behind them."""
        item = Var("item", ITEMS)
        tiles = max(1, self.tiles(0))
        tile, side, matrix = unravel(index(group), (tiles, self.across, self.batch))
        triangle, found = self.shared("triangle", BLOCK**2), self.lines("found", TILE)
        below = self.lines("below", TILE)
        column = side * TILE + index(item)
        names = tuple(f"b{j}" for j in range(BLOCK))
        sides: list[Statement] = []
        for j, name in enumerate(names):
            held = Condition(column, 0, self.columns), Condition(self.first + j, 0, self.rows)
            value = Load(self.rest, self.in_rest(matrix, self.first + j, column))
            sides.append(Declare(name, Guard(held, value, literal(0, self.dtype))))
        k = Var("k", BLOCK)
        steps = Loop(k, Axis.ORDERED, self.substituted(triangle, found, item, index(k)))
        body: list[Statement] = [
            self.staged(triangle, matrix, item),
            *([self.rows_below(below, matrix, tile, item)] if self.tiles(0) else []),
            Synchronize(),
            *guarded((*sides, steps), Condition(index(item), 0, TILE)),
            Synchronize(),
            *guarded((self.written(found, matrix, side, item),), Condition(tile, 0, 1)),
            *(self.product_below(below, found, matrix, tile, side, item) if self.tiles(0) else ()),
        ]
        shared = map(Allocate, (triangle, found, *((below,) if self.tiles(0) else ())))
        return Loop(group, Axis.GRID, (*shared, Loop(item, Axis.ITEM, tuple(body))))

    def staged(self, triangle: Memory, matrix: Index, item: Var) -> Statement:
        """The block on the diagonal, column by column, each from the row behind the diagonal on;
        the reciprocal of the diagonal is last. Behind the matrix there are zeros."""

        def of(i: Index, j: Index) -> Body:
            held = Condition(self.first + i, 0, self.rows), Condition(i - j, 0, BLOCK)
            at = self.system.of_triangle(self.first + i, self.first + j)
            value = self.operand(0, matrix, at)
            one, same = literal(1, self.dtype), IndexValue(i, I32).equals(IndexValue(j, I32))
            value = where(same, one if self.system.unit else one / value, value)
            inside = Guard(held, value, literal(0, self.dtype))
            spot = j * BLOCK + (i + (BLOCK - 1) - j) % BLOCK
            return (Store(triangle, spot, inside),)

        return self.each(BLOCK, item, ITEMS, not self.system.turned, of)

    def rows_below(self, below: Memory, matrix: Index, tile: Index, item: Var) -> Statement:
        """The triangle's rows of a tile, in the columns of the turn."""

        def of(line: Index, place: Index) -> Body:
            row = self.behind + tile * TILE + line
            at = self.system.of_triangle(row, self.first + place)
            held = (Condition(row, 0, self.rows),)
            value = Guard(held, self.operand(0, matrix, at), literal(0, self.dtype))
            return (Store(below, line * self.pitch + place, value),)

        return self.each(TILE, item, ITEMS, not self.system.turned, of)

    def substituted(self, triangle: Memory, found: Memory, item: Var, k: Index) -> Body:
        """Row k of an item's column, which is in b0, and what it changes in those behind it."""
        names = tuple(f"t{j}" for j in range(BLOCK))
        solution = Read("solution", self.dtype)
        return (
            *loads(names, triangle, k * BLOCK, self.by_fours),
            Declare("solution", Read("b0", self.dtype) * Read(names[-1], self.dtype)),
            Store(found, index(item) * self.pitch + k, solution),
            *(
                multiply_add(f"b{j}", -solution, Read(names[j], self.dtype), f"b{j + 1}")
                for j in range(BLOCK - 1)
            ),
        )

    def written(self, found: Memory, matrix: Index, side: Index, item: Var) -> Statement:
        memory = self.lowering.writes[0]
        shape = self.call.results[0].shape

        def of(line: Index, place: Index) -> Body:
            i, column = self.first + place, side * TILE + line
            held = Condition(i, 0, self.rows), Condition(column, 0, self.columns)
            at = (*unravel(matrix, self.batch_shape), *self.system.of_solution(i, column))
            value = Load(found, line * self.pitch + place)
            return guarded((Store(memory, linear(at, shape), value),), *held)

        return self.each(TILE, item, ITEMS, not self.system.left, of)

    def product_below(
        self, below: Memory, found: Memory, matrix: Index, tile: Index, side: Index, item: Var
    ) -> Body:
        def of(y: Index, x: Index) -> Element:
            i, column = self.behind + tile * TILE + y, side * TILE + x
            held = Condition(i, 0, self.rows), Condition(column, 0, self.columns)
            return Element(self.in_rest(matrix, i, column), held)

        before, after = self.taken_off(below, found, item, self.rest, of)
        return (*before, *after)
