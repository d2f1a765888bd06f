"""A product of floats of 16 bits where operands are copied to shared memory some steps ahead.

In: a product, on a device that copies past registers and loads fragments from shared memory. Out:

    for tile in 128 grid:
      local left: u32[4*128*16]; local right: u32[4*64*16]  # stages, each of a step
      for item in 128 item:
        sum0 = 0 .. sum63 = 0
        copy left[..], right[..] of three steps
        synchronize, 2 behind; a0, .. = load_matrices(left[..]) ..   # of the first part of a step
        for step in 32 ordered:
          a1, .. = ..                                       # of the next part, during this one
          copy left[..], right[..]                          # three steps ahead
          sum0, .. += mma_bf16(a0, .., b0, ..) ..
          synchronize, 2 behind                             # the next step is there
          a0, .. = ..
          sum0, .. += mma_bf16(a1, .., b1, ..) ..
        y[..] = epilogue(sum0) ..

An operand stays as it lies in memory: runs of 8 numbers along the depth, or along the rows (or
columns), which the loads of fragments turn. What is no such run in memory (borders, work before the
product) passes through registers, a step ahead, into the same places.

Runs of a line are rotated, each line by one more: 8 that are neighbours in a line, or lie below
each other, are in different banks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tinyhlo.codegen.bodies import substituted
from tinyhlo.codegen.expressions import Expression, Memory, Read, literal
from tinyhlo.codegen.grid.products.contraction import Place, Positions
from tinyhlo.codegen.grid.products.operands import NarrowProduct, Staged, fetch, packed
from tinyhlo.codegen.grid.products.tiles import Tile
from tinyhlo.codegen.grid.products.warps import RUN, MatrixTile
from tinyhlo.codegen.loops import (
    Body,
    Copy,
    Declare,
    EndCopies,
    Fetch,
    Statement,
    Store,
    Synchronize,
    guarded,
)
from tinyhlo.codegen.numbers import ceil_div
from tinyhlo.ir.dtypes import U32
from tinyhlo.ir.graph import Node
from tinyhlo.ir.index import Condition, Index, Var, index, unravel
from tinyhlo.records import dataclass

WORDS = RUN // 2  # of a run
SIDE = 16  # rows, or columns, of a load of fragments, and its depth


@dataclass(frozen=True, eq=False, slots=True)
class Shelf:
    """How an operand's numbers of a step lie in shared memory: `lines` of `runs`, which are along
    the depth, or else along the rows (or columns). The first stage begins at word `start`, the next
    ones follow. A warp's fragments begin at `corner`, and `count` loads get those of a part of a
    step; their words are called after the `side`."""

    side: str
    memory: Memory
    lines: int
    runs: int
    along_depth: bool
    corner: Index
    count: int
    start: int = 0

    @property
    def words(self) -> int:
        """Of a stage."""
        return self.lines * self.runs * WORDS

    def stage(self, number: Index) -> Index:
        """Its first word."""
        return number * self.words + self.start

    def place(self, line: Index, run: Index) -> Index:
        """The first word of a run in its stage."""
        turn = line // max(1, RUN // self.runs) % min(RUN, self.runs)
        return (line * self.runs + (run + turn) % self.runs) * WORDS

    def load(self, number: int, part: int, stage: Index, lane: Index) -> Fetch:
        """Fragments of a part of a step, 16 rows (or columns) of them. The four matrices of a left
        one follow each other along its rows first, those of two right ones along the depth."""
        if (self.side == "a") == self.along_depth:
            line, run = lane % 16, lane // 16
        else:
            line, run = lane % 8 + lane // 16 * 8, lane // 8 % 2
        begin = self.corner + number * SIDE
        if self.along_depth:
            line, run = line + begin, run + part * (SIDE // RUN)
        else:
            line, run = line + part * SIDE, run + begin // RUN
        way = "load_matrices" if self.along_depth else "load_matrices_turned"
        where = self.stage(stage) + self.place(line, run)
        return Fetch(self.names(number, part), self.memory, where, way)

    def names(self, number: int, part: int) -> tuple[str, ...]:
        """The words of a load; those of the next part need others meanwhile."""
        return tuple(f"{self.side}{part % 2}_{number}_{k}" for k in range(4))


class Moves(NamedTuple):
    """What takes a step's operands to shared memory: Copies, and registers `names`, their loads and
    stores."""

    copies: Body
    names: tuple[str, ...]
    loads: Body
    stores: Body


class AheadProduct(NarrowProduct):
    """The same product."""

    def multiplied(self, tile: Tile, place: Place) -> tuple[list[Memory], Body, Body]:
        assert isinstance(tile, MatrixTile)
        copied = any(self.copies(*each) for each in self.operands)
        stages = tile.stages(self.target) if copied else 2
        shelves = self.shelves(tile, place, stages)
        moves = self.moves(shelves, tile, place, stages)
        step, lane = index(place.step), tile.corner(index(place.item))[2]
        parts = tile.depth // self.fragment.depth
        steps, groups = place.step.extent, tile.parts(self.extents, self.target)
        arrived = Synchronize(stages - 2 if moves.copies else None)

        def moved(body: Body, at: Index) -> Body:
            """What moves a step's operands, of another step, if there is one to this group."""
            own = Condition(at - place.start, 0, ceil_div(steps, groups))
            inside = Condition(at, 0, steps), *([own] * (groups > 1))
            return guarded(substituted(body, {place.step: at}), *inside) if body else ()

        def fragments(part: int, at: Index) -> Body:
            stage = at % stages
            return tuple(s.load(n, part, stage, lane) for s in shelves for n in range(s.count))

        words = [w for s in shelves for n in range(s.count) for p in (0, 1) for w in s.names(n, p)]
        before: list[Statement] = []
        for ahead in range(stages - 1) if moves.copies else ():
            before += [*moved(moves.copies, place.start + ahead), EndCopies()]
        before += [Declare(name, literal(0, U32)) for name in (*moves.names, *words)]
        before += [*moved(moves.loads, place.start), *moved(moves.stores, place.start), arrived]
        before += [*moved(moves.loads, place.start + 1), *fragments(0, place.start)]
        body: list[Statement] = []
        for part in range(parts - 1):
            body += fragments(part + 1, step)
            # To where all items have read the step before; some by some, as loads wait for them.
            body += moved(moves.copies[part :: parts - 1], step + (stages - 1))
            body += self.products(tile, held(shelves, part))
        body += [EndCopies()] if moves.copies else []
        body += [*moved(moves.stores, step + 1), arrived, *moved(moves.loads, step + 2)]
        body += [*fragments(0, step + 1), *self.products(tile, held(shelves, parts - 1))]
        return [shelf.memory for shelf in shelves], tuple(before), tuple(body)

    def shelves(self, tile: MatrixTile, place: Place, stages: int) -> list[Shelf]:
        row, column, _ = tile.corner(index(place.item))
        down, across = tile.counts
        sides = (
            ("a", "left", tile.rows, row, down * self.fragment.rows),
            ("b", "right", tile.columns, column, across * self.fragment.columns),
        )
        found: list[Shelf] = []
        for operand, (side, name, size, corner, own) in zip(self.operands, sides, strict=True):
            along = self.lies_along_depth(*operand)
            shape = (size, tile.depth // RUN) if along else (tile.depth, size // RUN)
            memory = Memory(name, U32, stages * size * tile.depth // 2, local=True)
            found.append(Shelf(side, memory, *shape, along, corner, own // SIDE))
        return found

    # --- operands ----------------------------------------------------------------------------

    @property
    def operands(self) -> tuple[tuple[Node, Sequence[int]], ...]:
        return (self.c.left, self.c.m), (self.c.right, self.c.n)

    def copies(self, operand: Node, axes: Sequence[int]) -> bool:
        """Whether runs of an operand, wherever they are, are copied."""
        along = self.lies_along_depth(operand, axes)
        extents = self.c.extent(tuple(axes)), self.depth
        paces = (1, RUN) if along else (RUN, 1)
        beside, depth = (
            index(Var(f"run{k}", ceil_div(extent, pace))) * pace
            for k, (extent, pace) in enumerate(zip(extents, paces, strict=True))
        )
        at = self.along(self.c.batch, index(Var("batch", self.batch)))
        _, words = self.run(operand, axes, at, beside, depth, along)
        return isinstance(fetch(("",) * WORDS, words), Fetch)

    def run(
        self, operand: Node, axes: Sequence[int], at: Positions, beside: Index, depth: Index,
        along: bool,
    ) -> tuple[tuple[Condition, ...], tuple[Expression, ...]]:  # fmt: skip
        """Eight numbers along the depth, or along the rows (or columns), as words, and under which
        conditions there are any."""
        sides, deep = (1, RUN) if along else (RUN, 1)
        known, cells = self.cells(operand, axes, at, beside, depth, sides, deep)
        numbers = [number for cell in cells for number in cell]
        pairs = zip(numbers[::2], numbers[1::2], strict=True)
        return known, tuple(self.word(*pair) or packed(*pair) for pair in pairs)

    def moves(self, shelves: Sequence[Shelf], tile: MatrixTile, place: Place, stages: int) -> Moves:
        """An item's, of any step."""
        step = index(place.step)
        copies: list[Statement] = []
        loads: list[Statement] = []
        stores: list[Statement] = []
        held: list[str] = []
        firsts = place.row, place.column
        for shelf, operand, begin in zip(shelves, self.operands, firsts, strict=True):
            count = shelf.lines * shelf.runs
            for turn in range(ceil_div(count, tile.items)):
                number = index(place.item) + turn * tile.items
                there = Condition(number, 0, count)
                line, run = unravel(number, (shelf.lines, shelf.runs))
                one, two = (line, run * RUN) if shelf.along_depth else (run * RUN, line)
                beside, depth = begin + one, step * tile.depth + two
                inside, words = self.run(*operand, place.at, beside, depth, shelf.along_depth)
                to = shelf.stage(step % stages) + shelf.place(line, run)
                names = tuple(f"{shelf.memory.name}{turn}_{k}" for k in range(WORDS))
                match fetch(names, words):
                    case Fetch(memory=source, index=origin):
                        copy = Copy(shelf.memory, to, source, origin, inside)
                        copies += guarded((copy,), there)
                    case _:
                        held += names
                        loads += guarded(Staged(names, words, inside, (), ()).loads(), there)
                        kept = tuple(
                            Store(shelf.memory, to + k, Read(name, U32))
                            for k, name in enumerate(names)
                        )
                        stores += guarded(kept, there)
        return Moves(tuple(copies), tuple(held), tuple(loads), tuple(stores))


def held(shelves: Sequence[Shelf], part: int) -> dict[str, list[Read]]:
    """The words of each fragment, of a part of a step."""
    found: dict[str, list[Read]] = {}
    for shelf in shelves:
        each = 1 if shelf.side == "a" else 2  # fragments of a load
        for number in range(shelf.count):
            words = [Read(name, U32) for name in shelf.names(number, part)]
            size = len(words) // each
            for k in range(each):
                found[f"{shelf.side}{number * each + k}"] = words[k * size : (k + 1) * size]
    return found
