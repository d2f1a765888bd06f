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

An item loads runs of 8 numbers, 16 bytes by one instruction where they lie side by side at such a
place. A row of shared memory is 16 bytes longer than its numbers:
the words that a warp reads at once lie in different banks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from tinyhlo.codegen.expressions import (
    Apply,
    Expression,
    Guard,
    Literal,
    Load,
    Memory,
    Read,
    apply,
    literal,
    where,
)
from tinyhlo.codegen.grid.contraction import Place, Positions, Product, points
from tinyhlo.codegen.grid.fragments import Fragment, fragment_of
from tinyhlo.codegen.grid.tiles import Tile, soonest
from tinyhlo.codegen.loops import (
    Assign,
    Body,
    Declare,
    Fetch,
    FragmentProduct,
    If,
    LoopProgram,
    Statement,
    Store,
    Synchronize,
    needed,
)
from tinyhlo.codegen.numbers import ceil_div
from tinyhlo.ir.dtypes import BF16, F16, F32, U16, U32, DType
from tinyhlo.ir.graph import Node
from tinyhlo.ir.index import ZERO, Condition, Index, constant, index, unravel
from tinyhlo.ir.ops import Op
from tinyhlo.records import dataclass

RUN = 8  # numbers that an item loads: 16 bytes
DEPTH = 32  # of a step
PITCH = (DEPTH + RUN) // 2  # words of a row of shared memory
LEAST = 16  # rows and columns that are worth a fragment
MOST_WRITTEN = 2048  # operations of all epilogues of an item
GROUPS = 4  # on a multiprocessor at once, for whom two stages must fit


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
        return (self.rows + self.columns) * PITCH * U32.itemsize

    def __str__(self) -> str:
        return f"tile {self.rows}x{self.columns}x{self.depth} by {self.fragment.name}"


def tiles_of(fragment: Fragment) -> list[MatrixTile]:
    """The tiles to choose from; more warps lie side by side than one above the other."""
    shapes = ((128, 128, 8, 8), (64, 64, 8, 4), (32, 32, 4, 4))
    found: list[MatrixTile] = []
    for rows, columns, item_rows, item_columns in shapes:
        warps = (rows // item_rows) * (columns // item_columns) // fragment.lanes
        down = {8: 2, 4: 2, 2: 1, 1: 1}[warps]
        layout = (down, warps // down)
        found.append(MatrixTile(rows, columns, DEPTH, item_rows, item_columns, fragment, layout))
    return found


def in_fragments(product: Product) -> LoopProgram | None:
    """None where the device has no such instruction, or not for this product."""
    fragment = fragment_of(product.target)
    if fragment is None or product.node.dtype is not F32:
        return None
    if min(product.rows, product.columns) < LEAST or product.depth < LEAST:
        return None
    for dtype in (BF16, F16):
        if all(holds(product, operand, dtype) for operand in (product.c.left, product.c.right)):
            break
    else:
        return None
    written = product.written()
    tiles = [t for t in tiles_of(fragment) if t.stage_bytes <= product.target.group_bytes]
    tile = soonest(tiles, product.extents, written, MOST_WRITTEN, product.target)
    if tile is None:
        return None
    return MatrixProduct(product, dtype, fragment).program(tile)


@dataclass(frozen=True, eq=False, slots=True)
class Staged:
    """A run that an item takes from memory to shared memory: `names` are the registers it passes
    through, `values` what they are where `conditions` hold, `words` what is stored at `places`."""

    names: tuple[str, ...]
    values: tuple[Expression, ...]
    conditions: tuple[Condition, ...]
    places: tuple[Index, ...]
    words: tuple[Expression, ...]

    def loads(self) -> Body:
        load = tuple(
            fetch(self.names[k : k + 4], self.values[k : k + 4])
            for k in range(0, len(self.names), 4)
        )
        if not self.conditions:
            return load
        zeros = tuple(literal(0, U32) for _ in self.names)
        return (Assign(self.names, zeros), If(self.conditions, load))


def fetch(names: tuple[str, ...], values: tuple[Expression, ...]) -> Statement:
    """Set registers, by one load where it can be."""
    match values[0]:
        case Load(memory=memory, index=index) if is_multiple(index, 4) and all(
            isinstance(v, Load) and v.memory == memory and v.index - index == constant(k)
            for k, v in enumerate(values)
        ):
            return Fetch(names, memory, index)
    return Assign(names, values)


class MatrixProduct(Product):
    """The same product by fragments of `dtype`."""

    def __init__(self, product: Product, dtype: DType, fragment: Fragment) -> None:
        super().__init__(product.kernel, product.node, product.layout, product.target)
        self.dtype, self.fragment = dtype, fragment
        self.views: dict[Memory, Memory] = {}

    def program(self, tile: Tile) -> LoopProgram:
        return replace(super().program(tile), views=tuple(self.views.items()))

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
        if not more.never:
            body.append(If((more,), ahead))
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
        extent = self.c.extent(tuple(axes))
        along = self.lies_along_depth(operand, axes)
        sides, deep = (1, RUN) if along else (RUN, 2)  # of a run
        shape = count // sides, DEPTH // deep
        found: list[Staged] = []
        for turn in range(ceil_div(prod(shape), tile.items)):
            number = index(place.item) + turn * tile.items
            row, chunk = unravel(number, shape)
            beside, depth = first + row * sides, step * DEPTH + chunk * deep
            # Where extents are multiples of a run's, all of it is inside or nothing.
            whole = (extent % sides == 0, self.depth % deep == 0)
            known = needed(
                *([Condition(beside, 0, extent)] * whole[0]),
                *([Condition(depth, 0, self.depth)] * whole[1]),
            )
            cells = [
                [
                    self.number(operand, axes, place.at, beside + r, depth + d, whole, known)
                    for d in range(deep)
                ]
                for r in range(sides)
            ]
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

    def number(
        self, operand: Node, axes: Sequence[int], at: Positions, beside: Index, depth: Index,
        whole: tuple[bool, bool], known: tuple[Condition, ...],
    ) -> Expression:  # fmt: skip
        """An element of an operand in 16 bits; 0 where there is none. The `known` conditions hold:
        those along the sides that are `whole`."""
        spot = at | self.along(axes, beside) | self.along(self.c.k, depth)
        place = [spot.get(axis, ZERO) for axis in range(len(self.c.left.shape))]
        own = needed(
            *([Condition(beside, 0, self.c.extent(tuple(axes)))] * (not whole[0])),
            *([Condition(depth, 0, self.depth)] * (not whole[1])),
        )
        value = narrowed(self.lowering.value(operand, place, (*known, *own)), self.dtype)
        assert value is not None
        return Guard(own, value, literal(0, self.dtype)) if own else value

    def word(self, low: Expression, high: Expression) -> Expression | None:
        """Two numbers by one load, where they are neighbours at an even place."""
        match low, high:
            case Load(memory=memory, index=one), Load(memory=other, index=two):
                beside = memory == other and two - one == constant(1)
                if memory.local or not beside or not is_multiple(one, 2):
                    return None
                view = Memory(f"{memory.name}_words", U32, memory.size // 2)
                self.views[view] = memory
                terms = tuple((atom, factor // 2) for atom, factor in one.terms)
                return Load(view, Index(one.offset // 2, terms))
        return None

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
        size = len(fragment.sums(lane))
        for number in range(down * across):
            r, c = divmod(number, across)
            sums = tuple(f"sum{number * size + k}" for k in range(size))
            words = (*held[f"a{r}"], *held[f"b{c}"])
            body.append(FragmentProduct(f"{fragment.name}_{self.dtype.name}", sums, words))
        return tuple(body)


def is_multiple(where: Index, of: int) -> bool:
    """Whether an index is known to be one."""
    return all(factor % of == 0 for factor in (where.offset, *(f for _, f in where.terms)))


def holds(product: Product, operand: Node, dtype: DType) -> bool:
    """Whether all values of an operand are computed in 16 bits and widened then."""
    value = product.lowering.value(operand, list(points(operand.shape)), ())
    return narrowed(value, dtype) is not None


def narrowed(value: Expression, dtype: DType) -> Expression | None:
    """The same value as it was before it was widened; None where it never was `dtype`."""
    match value:
        case Apply(op=Op.CAST, arguments=(inner,)) if inner.dtype is dtype:
            return inner
        case Apply(op=Op.WHERE, arguments=(condition, then, other)):
            one, two = narrowed(then, dtype), narrowed(other, dtype)
            return where(condition, one, two) if one and two else None
        case Guard(conditions=conditions, value=inner, otherwise=otherwise):
            one, two = narrowed(inner, dtype), narrowed(otherwise, dtype)
            return Guard(conditions, one, two) if one and two else None
        case Literal(bits=0):
            return literal(0, dtype)
        case _:
            return None


def bits_of(value: Expression) -> Expression:
    return apply(Op.CAST, (apply(Op.BITCAST, (value,), U16),), U32)


def packed(low: Expression, high: Expression) -> Expression:
    """Two numbers of 16 bits as a word."""
    return bits_of(low) | bits_of(high) << literal(16, U32)


def transposed(words: Sequence[Expression]) -> list[Expression]:
    """From words of neighbours at one depth, and at the next, to words of each at both."""
    half, low, high = literal(16, U32), literal(0xFFFF, U32), literal(0xFFFF0000, U32)
    found: list[Expression] = []
    for one, two in zip(words[: RUN // 2], words[RUN // 2 :], strict=True):
        found += [one & low | two << half, one >> half | two & high]
    return found
