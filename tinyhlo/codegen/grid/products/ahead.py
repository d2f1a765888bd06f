"""A product by instructions for matrices whose operands are copied some steps ahead.

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

An operand stays as it lies in memory: runs of 16 bytes along the depth, or along the rows (or
columns), which the loads of fragments turn. What is no such run in memory (borders, work before the
product) passes through registers, a step ahead, into the same places; words of 32 bits are copied
one by one, where no work is before the product.

Runs of a line are rotated, each line by one more: 8 that are neighbours in a line, or lie below
each other, are in different banks. Numbers of 32 bits are not turned: of lines that are along the
rows (or columns) a warp reads words, 8 of each of 4 lines, and lines are 8 words longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tinyhlo.codegen.bodies import substituted
from tinyhlo.codegen.expressions import Expression, Load, Memory, Read, literal
from tinyhlo.codegen.grid.products.contraction import Place, Positions
from tinyhlo.codegen.grid.products.fragments import Fragment
from tinyhlo.codegen.grid.products.operands import NarrowProduct, Staged, fetch, packed
from tinyhlo.codegen.grid.products.tiles import Tile
from tinyhlo.codegen.grid.products.warps import PADDING, MatrixTile
from tinyhlo.codegen.grid.products.wide import is_known
from tinyhlo.codegen.grid.statements import Copy, EndCopies, Fetch, Synchronize
from tinyhlo.codegen.loops import Assign, Body, Declare, Statement, Store, guarded
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import U32
from tinyhlo.ir.graph import Node
from tinyhlo.ir.index import Index, Var, index, unravel
from tinyhlo.numbers import ceil_div
from tinyhlo.records import dataclass

WORDS = 4  # of a run
ACROSS = 8  # runs that lie in all banks together
SIDE = 16  # rows, or columns, of a load of fragments


@dataclass(frozen=True, eq=False, slots=True)
class Shelf:
    """How an operand's numbers of a step lie in shared memory: `lines` of `runs`, which are along
    the depth, or else along the rows (or columns). The first stage begins at word `start`, the next
    ones follow. A warp's fragments begin at `corner`, and `count` loads get those of a part of a
    step; their words are called after the `side`. Lines are rotated, or have some words of
    `padding` and are read word by word."""

    side: str
    memory: Memory
    lines: int
    runs: int
    along_depth: bool
    corner: Index
    count: int
    fragment: Fragment
    padding: int = 0
    start: int = 0

    @property
    def words(self) -> int:
        """Of a stage."""
        return self.lines * self.pitch

    @property
    def pitch(self) -> int:
        """Words from a line to the next."""
        return self.runs * WORDS + self.padding

    def stage(self, number: Index) -> Index:
        """Its first word."""
        return number * self.words + self.start

    def place(self, line: Index, run: Index) -> Index:
        """The first word of a run in its stage."""
        if self.padding:
            return line * self.pitch + run * WORDS
        turn = line // max(1, ACROSS // self.runs) % min(ACROSS, self.runs)
        return (line * self.runs + (run + turn) % self.runs) * WORDS

    def load(self, number: int, part: int, stage: Index, lane: Index) -> Statement:
        """Fragments of a part of a step, 16 rows (or columns) of them. The four matrices of a left
        one follow each other along its rows first, those of two right ones along the depth."""
        names, deep = self.names(number, part), self.fragment.depth
        if self.padding:
            first = self.stage(stage) + self.corner + number * SIDE
            spots = (first + x + (y + part * deep) * self.pitch for x, y in self.own(lane))
            return Assign(names, tuple(Load(self.memory, spot) for spot in spots))
        if (self.side == "a") == self.along_depth:
            line, run = lane % 16, lane // 16
        else:
            line, run = lane % 8 + lane // 16 * 8, lane // 8 % 2
        begin = self.corner + number * SIDE
        if self.along_depth:
            line, run = line + begin, run + part * (deep // self.fragment.run)
        else:
            line, run = line + part * deep, run + begin // self.fragment.run
        way = "load_matrices" if self.along_depth else "load_matrices_turned"
        where = self.stage(stage) + self.place(line, run)
        return Fetch(names, self.memory, where, way)

    def own(self, lane: Index) -> list[tuple[Index, Index]]:
        """The row (or column) of each word of a load, and which along the depth it is."""
        if self.side == "a":
            return list(self.fragment.left(lane))
        pace, right = self.fragment.columns, self.fragment.right(lane)
        return [(column + first, word) for first in range(0, SIDE, pace) for column, word in right]

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
    """The same product; `widths`: of words that may be copied at once."""

    widths: tuple[int, ...] = (WORDS,)

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
        registers = (*moves.names, *words, *self.registers(tile))
        before += [Declare(name, literal(0, U32)) for name in registers]
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

    def registers(self, tile: MatrixTile) -> tuple[str, ...]:
        """Names of words that are made of those of fragments before they are multiplied."""
        return ()

    def shelves(self, tile: MatrixTile, place: Place, stages: int) -> Sequence[Shelf]:
        row, column, _ = tile.corner(index(place.item))
        down, across = tile.counts
        sides = (
            ("a", "left", tile.rows, row, down * self.fragment.rows),
            ("b", "right", tile.columns, column, across * self.fragment.columns),
        )
        found: list[Shelf] = []
        for operand, (side, name, size, corner, own) in zip(self.operands, sides, strict=True):
            along = self.lies_along_depth(*operand)
            run = self.fragment.run
            shape = (size, tile.depth // run) if along else (tile.depth, size // run)
            padding = 0 if along or self.fragment.turns else PADDING
            pitch = shape[1] * WORDS + padding
            memory = Memory(name, U32, stages * shape[0] * pitch, local=True)
            found.append(
                Shelf(side, memory, *shape, along, corner, own // SIDE, self.fragment, padding)
            )
        return found

    # --- operands ----------------------------------------------------------------------------

    @property
    def operands(self) -> tuple[tuple[Node, Sequence[int]], ...]:
        return (self.c.left, self.c.m), (self.c.right, self.c.n)

    def copies(self, operand: Node, axes: Sequence[int]) -> int:
        """How many words of an operand, wherever they are, are copied at once; 0: they are not."""
        along = self.lies_along_depth(operand, axes)
        extents = self.c.extent(tuple(axes)), self.depth
        at = self.along(self.c.batch, index(Var("batch", self.batch)))
        for width in self.widths:
            run = self.numbers(width)
            paces = (1, run) if along else (run, 1)
            beside, depth = (
                index(Var(f"run{k}", ceil_div(extent, pace))) * pace
                for k, (extent, pace) in enumerate(zip(extents, paces, strict=True))
            )
            _, words = self.run(operand, axes, at, beside, depth, along, width)
            if origin_of(words):
                return width
        return 0

    def numbers(self, words: int) -> int:
        return words * U32.itemsize // self.fragment.itemsize

    def run(
        self, operand: Node, axes: Sequence[int], at: Positions, beside: Index, depth: Index,
        along: bool, width: int,
    ) -> tuple[tuple[Condition, ...], tuple[Expression, ...]]:  # fmt: skip
        """Numbers along the depth, or along the rows (or columns), as so many words, and under
        which conditions there are any."""
        run = self.numbers(width)
        sides, deep = (1, run) if along else (run, 1)
        known, cells = self.cells(operand, axes, at, beside, depth, sides, deep)
        inside, words = self.words_of([number for cell in cells for number in cell])
        return (*known, *inside), words

    def words_of(
        self, numbers: Sequence[Expression]
    ) -> tuple[tuple[Condition, ...], tuple[Expression, ...]]:
        """Neighbouring numbers as words, and under which conditions they are not all zeros."""
        pairs = zip(numbers[::2], numbers[1::2], strict=True)
        return (), tuple(self.word(*pair) or packed(*pair) for pair in pairs)

    def moves(self, shelves: Sequence[Shelf], tile: MatrixTile, place: Place, stages: int) -> Moves:
        """An item's, of any step."""
        step = index(place.step)
        copies: list[Statement] = []
        loads: list[Statement] = []
        stores: list[Statement] = []
        held: list[str] = []
        firsts = place.row, place.column
        for shelf, operand, begin in zip(shelves, self.operands, firsts, strict=True):
            width = self.copies(*operand) or WORDS
            pieces = WORDS // width  # of a run
            count = shelf.lines * shelf.runs * pieces
            for turn in range(ceil_div(count, tile.items)):
                number = index(place.item) + turn * tile.items
                there = Condition(number, 0, count)
                line, piece = unravel(number, (shelf.lines, shelf.runs * pieces))
                first = piece * self.numbers(width)
                one, two = (line, first) if shelf.along_depth else (first, line)
                beside, depth = begin + one, step * tile.depth + two
                inside, words = self.run(
                    *operand, place.at, beside, depth, shelf.along_depth, width
                )
                to = shelf.stage(step % stages) + shelf.place(line, piece // pieces)
                to += piece % pieces
                origin = origin_of(words)
                if origin:
                    copy = Copy(shelf.memory, to, origin.memory, origin.index, inside, width)
                    copies += guarded((copy,), there)
                    continue
                names = tuple(f"{shelf.memory.name}{turn}_{k}" for k in range(WORDS))
                held += names
                loads += guarded(Staged(names, words, inside, (), ()).loads(), there)
                kept = tuple(
                    Store(shelf.memory, to + k, Read(name, U32)) for k, name in enumerate(names)
                )
                stores += guarded(kept, there)
        return Moves(tuple(copies), tuple(held), tuple(loads), tuple(stores))


def origin_of(words: Sequence[Expression]) -> Load | None:
    """The first of words that can be copied at once: of four side by side, or of one. Where data
    says where they are, there may be no such data: a copy asks for it even where it is not made."""
    (first, *others) = words
    if not isinstance(first, Load) or not is_known(first.index):
        return None
    if others and not isinstance(fetch(("",) * len(words), tuple(words)), Fetch):
        return None
    return first


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
