"""A product of floats of 16 bits by the device's instructions for matrices, summed in f32.

In: a Product whose operands are bf16 or f16, widened. Out: a LoopProgram, or None:

    for tile in 64 grid:
      local left: u32[128*20]; local right: u32[128*20]   # two numbers a word, along the depth
      for item in 256 item:
        sum0 = 0 .. sum63 = 0                             # as the instruction deals them to a warp
        left0 = .., right0 = ..                           # of the first step, into registers
        for step in 32 ordered:
          synchronize; left[..] = left0; right[..] = right0; synchronize
          left0 = .., right0 = ..                         # of the next step, during this one
          sum0, .. += mma_bf16(left[..], .., right[..], ..) ..
        y[..] = epilogue(sum0) ..

An item loads runs of 8 numbers, by one instruction of 16 bytes where they lie side by side from a
multiple of 16 bytes on. A row of shared memory is 16 bytes longer than its numbers, so that the
words that a warp reads at once lie in different banks.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tinyhlo.codegen.expressions import Expression, Load, Memory, Read, literal
from tinyhlo.codegen.grid.products.contraction import Place
from tinyhlo.codegen.grid.products.operands import NarrowProduct, Staged, packed
from tinyhlo.codegen.grid.products.tiles import Tile
from tinyhlo.codegen.grid.products.warps import DEPTH, RUN, MatrixTile
from tinyhlo.codegen.grid.statements import Synchronize
from tinyhlo.codegen.loops import Body, Declare, Statement, Store, guarded, needed
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import U32
from tinyhlo.ir.graph import Node
from tinyhlo.ir.index import Index, index, unravel
from tinyhlo.numbers import ceil_div

PITCH = (DEPTH + RUN) // 2  # words of a row of shared memory
GROUPS = 4  # on a multiprocessor at once, for whom two stages must fit


class MatrixProduct(NarrowProduct):
    """The same product; what a step needs passes through registers."""

    def multiplied(self, tile: Tile, place: Place) -> tuple[list[Memory], Body, Body]:
        assert isinstance(tile, MatrixTile)
        room = 2 * tile.stage_bytes
        stages = 2 if min(self.target.group_bytes, self.target.l1_bytes // GROUPS) >= room else 1
        left = Memory("left", U32, stages * tile.rows * PITCH, local=True)
        right = Memory("right", U32, stages * tile.columns * PITCH, local=True)
        step = index(place.step)
        stage = step % stages

        def staged(at: Index) -> list[tuple[Memory, Staged]]:
            sides = (
                (left, self.c.left, self.c.m, place.row, tile.rows),
                (right, self.c.right, self.c.n, place.column, tile.columns),
            )
            return [
                (memory, run)
                for memory, operand, axes, first, count in sides
                for run in self.runs(memory.name, operand, axes, first, count, at, tile, place)
            ]

        first, now, after = staged(place.start), staged(step), staged(step + 1)
        before: list[Statement] = []
        for _, run in first:
            before += [Declare(name, literal(0, U32)) for name in run.names]
            before += run.loads()
        stores = [
            Store(memory, stage * (memory.size // stages) + at, word)
            for memory, run in now
            for at, word in zip(run.places, run.words, strict=True)
        ]
        more = Condition(step + 1, 0, place.step.extent)
        ahead = tuple(statement for _, run in after for statement in run.loads())
        body: list[Statement] = [Synchronize()] * (stages == 1)
        body += [*stores, Synchronize()]
        body += guarded(ahead, more)
        for part in range(DEPTH // self.fragment.depth):
            body += self.fragments(tile, left, right, stage, part, index(place.item))
        return [left, right], tuple(before), tuple(body)

    # --- operands ----------------------------------------------------------------------------

    def runs(
        self, side: str, operand: Node, axes: Sequence[int], first: Index, count: int, step: Index,
        tile: Tile, place: Place,
    ) -> list[Staged]:  # fmt: skip
        """What an item loads of an operand for a step: `count` rows (or columns), all of the step's
        depth, in runs along the axis whose neighbours lie side by side in memory."""
        along = self.lies_along_depth(operand, axes)
        sides, deep = (1, RUN) if along else (RUN, 2)  # of a run
        shape = count // sides, DEPTH // deep
        found: list[Staged] = []
        for turn in range(ceil_div(prod(shape), tile.items)):
            number = index(place.item) + turn * tile.items
            row, chunk = unravel(number, shape)
            beside, depth = first + row * sides, step * DEPTH + chunk * deep
            known, cells = self.cells(operand, axes, place.at, beside, depth, sides, deep)
            start = row * (sides * PITCH) + chunk * (deep // 2)
            places = [start + r * PITCH + d for r in range(sides) for d in range(deep // 2)]
            values = self.rows_of_words(cells) if sides > 1 else None
            turned = values is not None
            if values is None:
                pairs = [pair for cell in cells for pair in zip(cell[::2], cell[1::2], strict=True)]
                values = [self.word(*pair) or packed(*pair) for pair in pairs]
            names = tuple(f"{side}{turn}_{k}" for k in range(len(values)))
            registers = [Read(name, U32) for name in names]
            words = transposed(registers) if turned else registers
            inside = (*known, *needed(Condition(number, 0, prod(shape))))
            found.append(Staged(names, tuple(values), inside, tuple(places), tuple(words)))
        return found

    def rows_of_words(self, cells: Sequence[Sequence[Expression]]) -> list[Expression] | None:
        """The words of all of a run at one depth, then at the next; None where they are none."""
        words = [self.word(cells[r][d], cells[r + 1][d]) for d in (0, 1) for r in range(0, RUN, 2)]
        return [word for word in words if word is not None] if all(words) else None

    # --- sums --------------------------------------------------------------------------------

    def fragments(
        self, tile: MatrixTile, left: Memory, right: Memory, stage: Index, part: int, item: Index
    ) -> Body:
        """All products of a warp over the depth of an instruction, number `part` of a step."""
        fragment, (down, across) = self.fragment, tile.counts
        row, column, lane = tile.corner(item)
        body: list[Statement] = []
        held: dict[str, list[Read]] = {}
        for side, memory, count, corner, pace, places in (
            ("a", left, down, row, fragment.rows, fragment.left(lane)),
            ("b", right, across, column, fragment.columns, fragment.right(lane)),
        ):
            begin = stage * (tile.rows if memory is left else tile.columns) * PITCH
            for n in range(count):
                names = [f"{side}{part}_{n}_{k}" for k in range(len(places))]
                for name, (own, word) in zip(names, places, strict=True):
                    line = corner + n * pace + own
                    place = begin + line * PITCH + (part * fragment.depth // 2) + word
                    body.append(Declare(name, Load(memory, place)))
                held[f"{side}{n}"] = [Read(name, U32) for name in names]
        return (*body, *self.products(tile, held))


def transposed(words: Sequence[Expression]) -> list[Expression]:
    """From words of neighbours at one depth, and at the next, to words of each at both."""
    half, low, high = literal(16, U32), literal(0xFFFF, U32), literal(0xFFFF0000, U32)
    found: list[Expression] = []
    for one, two in zip(words[: RUN // 2], words[RUN // 2 :], strict=True):
        found += [one & low | two << half, one >> half | two & high]
    return found
