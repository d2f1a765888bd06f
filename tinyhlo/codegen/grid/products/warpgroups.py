"""A product of floats of 16 bits by instructions that read both operands from memory which a group
shares, four warps together (Hopper's wgmma).

In: a product whose operands are copied, as for `ahead.py`. Out:

    for tile in 512 grid:
      local staged: u32[4*(128 + 256)*32]                  # stages, each of a step
      for item in 256 item:
        sum0 = 0 .. sum127 = 0
        copy staged[..] of two steps
        for step in 64 ordered:
          synchronize, 1 behind, shown                     # this step is there
          copy staged[..]                                  # two steps ahead
          sum0, .. += wgmma_bf16_10(staged[..], staged[..]) ..
          await products, 1 behind                         # those of the step before are done
        await products, 0 behind; synchronize
        staged[..] = sum0 ..; synchronize
        for turn in 32 serial:
          given0, .. = load_4(staged[..])                  # neighbours in a row
          y[..] = epilogue(given0) ..

While a step is multiplied, the one before it is over in all warps only at the next step's
synchronization: its stage is copied to a step later than in `ahead.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyhlo.codegen.bodies import substituted
from tinyhlo.codegen.expressions import Memory, Read, apply, literal
from tinyhlo.codegen.grid.products.ahead import WORDS, AheadProduct, Shelf
from tinyhlo.codegen.grid.products.contraction import Keeps, Place
from tinyhlo.codegen.grid.products.tiles import Tile
from tinyhlo.codegen.grid.products.warps import FOUR, RUN, WarpgroupTile
from tinyhlo.codegen.grid.products.wide import by_fours
from tinyhlo.codegen.grid.statements import EndCopies, Fetch, Synchronize, WarpgroupProducts
from tinyhlo.codegen.loops import Axis, Body, Declare, Loop, Statement, Store, guarded
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import F32, U32
from tinyhlo.ir.index import ZERO, Index, Var, index, unravel
from tinyhlo.ir.ops import Op
from tinyhlo.numbers import ceil_div
from tinyhlo.records import dataclass

SIDE = 64  # numbers of a line, and rows of four warps
LINE = SIDE // 2  # words
PAD = 8  # words between rows of sums: a half warp stores its pairs in 32 banks
BESIDE = 8  # tiles side by side before those of the next rows


@dataclass(frozen=True, eq=False, slots=True)
class Lines(Shelf):
    """An operand in lines of 64 numbers, whose runs are dealt to the banks as the instruction asks:
    `codegen/c/fragments.py` has the layout."""

    def place(self, line: Index, run: Index) -> Index:
        block, run = (ZERO, run) if self.along_depth else (run // RUN, run % RUN)
        return block * (self.lines * LINE) + line * LINE + exclusive_or(run, line % RUN) * WORDS

    def part(self, number: int) -> Index:
        """Where the operand of an instruction begins, number `number` of a step."""
        if self.along_depth:
            return self.corner * LINE + number * RUN
        return self.corner // SIDE * (self.lines * LINE) + number * (2 * RUN * LINE)


class WarpgroupProduct(AheadProduct):
    """The same product."""

    def multiplied(self, tile: Tile, place: Place) -> tuple[list[Memory], Body, Body]:
        assert isinstance(tile, WarpgroupTile)
        stages = tile.stages(self.target)
        ahead = stages - 2
        shelves = self.shelves(tile, place, stages)
        copies = self.moves(shelves, tile, place, stages).copies
        step, steps = index(place.step), place.step.extent
        groups = tile.parts(self.extents, self.target)

        def copied(at: Index) -> Body:
            """Of a step, if there is one to this group."""
            own = Condition(at - place.start, 0, ceil_div(steps, groups))
            inside = Condition(at, 0, steps), *([own] * (groups > 1))
            return (*guarded(substituted(copies, {place.step: at}), *inside), EndCopies())

        before: list[Statement] = []
        for k in range(ahead):
            before += copied(place.start + k)
        left, right = shelves
        stage = step % stages
        places = tuple(
            (left.stage(stage) + left.part(k), right.stage(stage) + right.part(k))
            for k in range(tile.depth // self.fragment.depth)
        )
        products = self.warpgroup_products(tile, left, right, places, 1)
        body = (Synchronize(ahead - 1, shown=True), *copied(step + ahead), products)
        return [left.memory], tuple(before), body

    def warpgroup_products(
        self, tile: WarpgroupTile, left: Shelf, right: Shelf,
        places: tuple[tuple[Index, Index], ...], behind: int,
    ) -> WarpgroupProducts:  # fmt: skip
        along = "".join(str(int(shelf.along_depth)) for shelf in (left, right))
        name = f"{self.fragment.name}_{self.dtype.name}_{along}"
        sums = tuple(f"sum{k}" for k in range(tile.sums))
        return WarpgroupProducts(name, sums, left.memory, right.memory, places, behind)

    def finished(self, tile: Tile, place: Place, memories: Sequence[Memory], keep: Keeps) -> Body:
        """Sums change hands in the memory of the operands: an item stores neighbours in a row, and
        its group whole lines."""
        assert isinstance(tile, WarpgroupTile)
        (memory,) = memories
        left, right = self.shelves(tile, place, tile.stages(self.target))
        over = self.warpgroup_products(tile, left, right, (), 0)
        item, pitch = index(place.item), tile.columns + PAD
        given = [
            Store(memory, y * pitch + x, apply(Op.BITCAST, (Read(f"sum{k}", F32),), U32))
            for k, (y, x) in enumerate(tile.places(item))
        ]
        turn = Var("turn", tile.rows * tile.columns // FOUR // tile.items)
        number = index(turn) * tile.items + item
        y, run = unravel(number, (tile.rows, tile.columns // FOUR))
        row, column = place.row + y, place.column + run * FOUR
        names = [f"given{k}" for k in range(FOUR)]
        stores = [
            keep(row, column + k, apply(Op.BITCAST, (Read(name, U32),), F32))
            for k, name in enumerate(names)
        ]
        taken: list[Statement] = [Declare(name, literal(0, U32)) for name in names]
        taken.append(Fetch(tuple(names), memory, y * pitch + run * FOUR))
        if self.columns % FOUR == 0:
            taken += guarded(by_fours(stores), *self.bounds(row, column))
        else:
            for k, store in enumerate(stores):
                taken += guarded((store,), *self.bounds(row, column + k))
        loop = Loop(turn, Axis.SERIAL, tuple(taken))
        return (over, Synchronize(), *given, Synchronize(), loop)

    def order(self, group: Index, extents: tuple[int, ...]) -> tuple[Index, ...]:
        """Groups that run at once have a square of tiles: they read few rows and columns."""
        *others, down, across = extents
        beside = max(width for width in range(1, BESIDE + 1) if across % width == 0)
        *at, block, row, column = unravel(group, (*others, across // beside, down, beside))
        return (*at, row, block * beside + column)

    def shelves(self, tile: Tile, place: Place, stages: int) -> tuple[Lines, Lines]:
        """In one memory, which sums lie in behind the last step."""
        assert isinstance(tile, WarpgroupTile)
        words = stages * (tile.rows + tile.columns) * tile.depth // 2
        memory = Memory("staged", U32, words, local=True)
        rows = index(place.item) // (4 * self.fragment.lanes) * SIDE
        found: list[Lines] = []
        for operand, side, size, corner, start in (
            (self.operands[0], "a", tile.rows, rows, 0),
            (self.operands[1], "b", tile.columns, ZERO, stages * tile.rows * tile.depth // 2),
        ):
            along = self.lies_along_depth(*operand)
            shape = (size, tile.depth // RUN) if along else (tile.depth, size // RUN)
            found.append(Lines(side, memory, *shape, along, corner, 0, self.fragment, start=start))
        return found[0], found[1]


def exclusive_or(one: Index, other: Index) -> Index:
    """The exclusive or of two numbers of three bits."""
    total = ZERO
    for bit in (1, 2, 4):
        total = total + (one // bit + other // bit) % 2 * bit
    return total
