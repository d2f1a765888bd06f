"""A product of f32 whose items read and write four numbers at once.

In: a Product on a Target with loads of 16 bytes. Out: a LoopProgram, or None:

    for tile in 64 grid:
      local stages: f32[2*(1056+1056)]                    # two of them, of both operands
      for item in 256 item:
        sum0 = 0 .. sum63 = 0                             # of the item: 2x2 squares of 4x4
        left0_0 .. = x0[..]; right0_0 .. = x1[..]         # of the first step, into registers
        for step in 512 ordered:
          stages[..] = left0_0, ..; stages[..] = right0_0, ..
          synchronize
          left0_0 .. = x0[..]; right0_0 .. = x1[..]       # of the next step, during this one
          for k in 8 ordered:
            a0, a1, a2, a3 = stages[..]; ..
            sum0 += a0 * b0 ..
        y[..] = epilogue(sum0), ..

What lies side by side in memory at such a place is loaded by fours, anything else (windows,
borders, work before the product) number by number. Slices of a group share the depth of each step;
behind the last one each of them adds up a share of the sums, in the order of the slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple, TypeVar

from tinyhlo.codegen.expressions import Apply, Expression, Guard, Load, Memory, Read, literal
from tinyhlo.codegen.grid.products.contraction import Keeps, Place, Product
from tinyhlo.codegen.grid.products.operands import are_side_by_side
from tinyhlo.codegen.grid.products.tiles import RUN, WIDE, Tile, WideTile, soonest
from tinyhlo.codegen.grid.statements import Fetch, Put, Synchronize
from tinyhlo.codegen.loops import (
    Assign,
    Axis,
    Bind,
    Body,
    Declare,
    If,
    Loop,
    LoopProgram,
    Statement,
    Store,
    guarded,
    needed,
)
from tinyhlo.codegen.moves.work import cost
from tinyhlo.codegen.walks import computed_in, parts, places, walk
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import BF16, F16, F32
from tinyhlo.ir.graph import Node
from tinyhlo.ir.index import ZERO, Index, Var, constant, index, is_multiple, sums_of, unravel
from tinyhlo.ir.ops import Op
from tinyhlo.numbers import ceil_div
from tinyhlo.target import WIDE_LOADS

LEAST = 8  # rows and columns that are worth a square of items
MOST_WRITTEN = 4096  # operations of all epilogues of an item
BY_FOURS, BY_ITSELF = 2, 6  # instructions an element that is staged, but those of its indices
NEAR = 8  # of a depth, from which neighbouring items load


def in_fours(product: Product) -> LoopProgram | None:
    """None where the device loads no 16 bytes at once, or for narrow products and other types."""
    operands = (product.c.left, product.c.right)
    if not product.target.has(WIDE_LOADS) or product.node.dtype is not F32:
        return None
    if any(each.dtype is not F32 for each in operands):
        return None
    if min(product.rows, product.columns) < LEAST:
        return None
    wide = WideProduct(product.kernel, product.node, product.layout, product.target)
    staged = wide.staged_work()
    tiles = [replace(t, staged=staged) for t in WIDE if t.fits(product.target)]
    tile = soonest(tiles, product.extents, product.written(), MOST_WRITTEN, product.target)
    return tile and replace(wide.program(tile), together=tile.together)


class Side(NamedTuple):
    """An operand: its rows (or columns) from `first` on, so many `lines` of them in a stage from
    `begin` on. `along`: neighbours in memory are neighbours along the depth; `run` of them are one
    load."""

    name: str
    operand: Node
    axes: tuple[int, ...]
    first: Index
    lines: int
    begin: int
    along: bool
    run: int


class Taken(NamedTuple):
    """What an item takes in one turn, if it has one in it, to places of a stage: `names` are the
    registers on the way, `values` what they are where there is such an element, 0 elsewhere."""

    names: tuple[str, ...]
    values: tuple[Expression, ...]
    inside: tuple[Condition, ...]
    places: tuple[Index, ...]
    turn: tuple[Condition, ...]

    def loads(self) -> Body:
        held, load = fetched(self.names, self.values)
        conditions = (*self.turn, *self.inside, *held)
        if not conditions:
            return (load,)
        zeros = tuple(literal(0, F32) for _ in self.names)
        place: Body = ()
        match load:
            case Assign(names=(name,), values=(Load(memory=memory, index=at),)) if is_known(at):
                # Where the address is known before, the load alone is conditional.
                var = Var(f"{name}_at", memory.size)
                place = (Bind(var, at),)
                load = Assign((name,), (Load(memory, index(var)),))
            case _:
                pass
        return (Assign(self.names, zeros), *place, If(conditions, (load,)))

    def puts(self, stages: Memory, stage: Index) -> Body:
        """From the registers on."""
        pairs = zip(self.places, self.names, strict=True)
        stores = [Store(stages, stage + place, Read(name, F32)) for place, name in pairs]
        return guarded(by_fours(stores), *self.turn)


class WideProduct(Product):
    """The same product by fours."""

    def multiplied(self, tile: Tile, place: Place) -> tuple[list[Memory], Body, Body]:
        assert isinstance(tile, WideTile)
        stages = Memory("stages", F32, tile.words, local=True)
        next_ = Var("next", place.step.extent)
        sides = self.sides(tile, place)
        first = [taken for side in sides for taken in self.turns(side, tile, place, place.start)]
        after = [taken for side in sides for taken in self.turns(side, tile, place, index(next_))]
        zero = literal(0, F32)
        registers = [name for taken in first for name in taken.names]
        registers += [f"a{n}" for n in range(tile.item_rows)]
        registers += [f"b{n}" for n in range(tile.item_columns)]
        before: list[Statement] = [Declare(name, zero) for name in registers]
        before += [s for taken in first for s in taken.loads()]
        stage = index(place.step) % 2 * tile.stage
        body = [s for taken in first for s in taken.puts(stages, stage)]
        body.append(Synchronize())
        ahead = (s for taken in after for s in taken.loads())
        more = Condition(index(place.step) + 1, 0, place.step.extent)
        body += guarded((Bind(next_, more.index), *ahead), more)
        body.append(self.products(tile, place, stages, stage))
        return [stages], tuple(before), tuple(body)

    # --- operands ----------------------------------------------------------------------------

    def staged_work(self) -> tuple[int, int]:
        """Instructions, roughly, for an element of each operand on its way to a stage."""
        tile = WIDE[0]
        _, _, place = self.place(tile, 1)
        found: list[int] = []
        for side in self.sides(tile, place):
            (value, *_), *_ = [t.values for t in self.turns(side, tile, place, index(place.step))]
            found.append(
                BY_FOURS if side.run == RUN else BY_ITSELF + int(cost(value)) + atoms(value)
            )
        return found[0], found[1]

    def sides(self, tile: WideTile, place: Place) -> list[Side]:
        found: list[Side] = []
        begin = 0
        for name, operand, axes, first, lines in (
            ("left", self.c.left, tuple(self.c.m), place.row, tile.rows),
            ("right", self.c.right, tuple(self.c.n), place.column, tile.columns),
        ):
            along = self.lies_along_depth(operand, axes)
            side = Side(name, operand, axes, first, lines, begin, along, RUN)
            length = self.depth if along else self.c.extent(axes)
            whole = length % RUN == 0 and all(
                isinstance(fetched(taken.names, taken.values)[1], Fetch)
                for taken in self.turns(side, tile, place, index(place.step))
            )
            found.append(side if whole else side._replace(run=1))
            begin += tile.depth * tile.pitch(lines)
        return found

    def turns(self, side: Side, tile: WideTile, place: Place, step: Index) -> list[Taken]:
        """What an item takes of an operand for a step. Items take neighbours of 32 bytes along the
        depth, or of a whole row of a stage."""
        found: list[Taken] = []
        near = NEAR // side.run
        for turn in range(ceil_div(side.lines * tile.depth, side.run * tile.items)):
            number = index(place.item) + turn * tile.items
            if side.along:
                shape = (tile.depth // NEAR, side.lines, near)
                far, row, part = unravel(number, shape)
                k = far * NEAR + part * side.run
            else:
                shape = (tile.depth, side.lines // side.run)
                k, part = unravel(number, shape)
                row = part * side.run
            cells = [(row, k + n) if side.along else (row + n, k) for n in range(side.run)]
            depth, pitch = step * tile.depth, tile.pitch(side.lines)
            found.append(
                Taken(
                    tuple(f"{side.name}{turn}_{n}" for n in range(side.run)),
                    tuple(self.element(side, place, depth, *cell) for cell in cells),
                    self.inside(side, depth, *cells[0]),
                    tuple(k * pitch + row + side.begin for row, k in cells),
                    needed(Condition(number, 0, prod(shape))),
                )
            )
        return found

    def inside(self, side: Side, depth: Index, row: Index, k: Index) -> tuple[Condition, ...]:
        """Whether there is such an element; of a run the first one says it for all."""
        extent = self.c.extent(side.axes)
        return needed(Condition(side.first + row, 0, extent), Condition(depth + k, 0, self.depth))

    def element(self, side: Side, place: Place, depth: Index, row: Index, k: Index) -> Expression:
        spot = place.at | self.along(side.axes, side.first + row) | self.along(self.c.k, depth + k)
        where = [spot.get(axis, ZERO) for axis in range(len(self.c.left.shape))]
        return self.lowering.value(side.operand, where, self.inside(side, depth, row, k))

    # --- sums --------------------------------------------------------------------------------

    def products(self, tile: WideTile, place: Place, stages: Memory, stage: Index) -> Statement:
        """A step's products of an item's slice, added to its sums."""
        k = Var("k", tile.depth // tile.slices)
        slice_, number = tile.slice_of(index(place.item))
        own = tile.square(number)
        depth = slice_ * k.extent + index(k)
        begin = 0
        body: list[Statement] = []
        for name, count, length, items, number in (
            ("a", tile.item_rows, tile.rows, tile.shape[0], own[0]),
            ("b", tile.item_columns, tile.columns, tile.shape[1], own[1]),
        ):
            start = stage + begin + depth * tile.pitch(length) + number * RUN
            for n in range(0, count, RUN):
                names = tuple(f"{name}{n + part}" for part in range(RUN))
                body.append(Fetch(names, stages, start + n * items))
            begin += tile.depth * tile.pitch(length)
        for number in range(tile.sums):
            r, c = divmod(number, tile.item_columns)
            total = Read(f"sum{number}", F32)
            factors = Read(f"a{r}", F32), Read(f"b{c}", F32)
            body.append(Assign((total.name,), (self.multiply_add(factors, total),)))
        return Loop(k, Axis.ORDERED, tuple(body))

    # --- results -----------------------------------------------------------------------------

    def finished(self, tile: Tile, place: Place, memories: Sequence[Memory], keep: Keeps) -> Body:
        assert isinstance(tile, WideTile)
        places = tile.places(index(place.item))
        sums = [f"sum{k}" for k in range(tile.sums)]
        share = tile.sums // tile.slices
        found: list[Statement] = []
        for number in range(tile.slices):
            own = slice(number * share, (number + 1) * share)
            fours = zip(in_runs(places[own]), in_runs(sums[own]), strict=True)
            kept = tuple(s for four in fours for s in self.kept(place, *four, keep))
            if tile.slices > 1:
                given, added = self.together(tile, place, memories[0], sums[own])
                found += (Synchronize(), *given, Synchronize())
                slice_, _ = tile.slice_of(index(place.item))
                kept = (If((Condition(slice_, number, number + 1),), (*added, *kept)),)
            found += kept
        return tuple(found)

    def together(
        self, tile: WideTile, place: Place, stages: Memory, sums: Sequence[str]
    ) -> tuple[Body, Body]:
        """How all slices give away sums, and how one of them adds them up."""
        slice_, number = tile.slice_of(index(place.item))
        size = tile.items // tile.slices * RUN  # of four sums of a slice
        fours = in_runs(sums)

        def spot(which: int, of: Index) -> Index:
            return (of * len(fours) + which) * size + number * RUN

        given: list[Statement] = []
        added: list[Statement] = []
        for which, names in enumerate(fours):
            values = tuple(Read(name, F32) for name in names)
            given.append(Put(stages, spot(which, slice_), values))
            added.append(Fetch(names, stages, spot(which, ZERO)))
            given_by = tuple(f"a{n}" for n in range(RUN))
            for other in range(1, tile.slices):
                added.append(Fetch(given_by, stages, spot(which, constant(other))))
                more = (Read(name, F32) for name in given_by)
                totals = (Apply(Op.ADD, pair, F32) for pair in zip(values, more, strict=True))
                added.append(Assign(names, tuple(totals)))
        return tuple(given), tuple(added)

    def kept(
        self, place: Place, places: Sequence[tuple[Index, Index]], sums: Sequence[str], keep: Keeps
    ) -> Body:
        """Four sums of a row, by one store where it can be."""
        spots = [(place.row + y, place.column + x) for y, x in places]
        pairs = zip(spots, sums, strict=True)
        stores = [keep(*spot, Read(name, F32)) for spot, name in pairs]
        if self.columns % RUN == 0:
            return guarded(by_fours(stores), *self.bounds(*spots[0]))
        return tuple(
            s
            for spot, store in zip(spots, stores, strict=True)
            for s in guarded((store,), *self.bounds(*spot))
        )


T = TypeVar("T")


def in_runs(items: Sequence[T]) -> list[tuple[T, ...]]:
    return [tuple(items[k : k + RUN]) for k in range(0, len(items), RUN)]


def by_fours(stores: Sequence[Store]) -> Body:
    """Stores as one, where they are four neighbours in memory, the first at a multiple of four."""
    first = stores[0]
    beside = all(
        s.memory == first.memory and s.index - first.index == constant(k)
        for k, s in enumerate(stores)
    )
    if len(stores) < RUN or not beside or not is_multiple(first.index, RUN):
        return tuple(stores)
    if first.memory.dtype not in (F32, BF16, F16):
        return tuple(stores)
    return (Put(first.memory, first.index, tuple(s.value for s in stores)),)


def fetched(
    names: tuple[str, ...], values: Sequence[Expression]
) -> tuple[tuple[Condition, ...], Statement]:
    """Under which conditions registers are loaded, and how: by one load where it can be."""
    first = values[0]
    conditions: tuple[Condition, ...] = ()
    while isinstance(first, Guard) and all(isinstance(v, Guard) and like(v, first) for v in values):
        zero, known = literal(0, F32), all(is_known(c.index) for c in first.conditions)
        if first.otherwise != zero or not known:
            break
        conditions += first.conditions
        values = [v.value for v in values if isinstance(v, Guard)]
        first = values[0]
    if (
        isinstance(first, Load)
        and first.memory.dtype is F32
        and len(values) == RUN
        and is_multiple(first.index, RUN)
        and are_side_by_side(values)
    ):
        return conditions, Fetch(names, first.memory, first.index)
    return conditions, Assign(names, tuple(values))


def atoms(value: Expression) -> int:
    """Of all indices in a value, those inside others too."""
    wheres = (where for e in walk([value], lambda _: True, parts) for where in places(e))
    return sum(len(each.terms) for where in wheres for each in sums_of(where))


def is_known(where: Index) -> bool:
    """Whether no data is read for it, which there may be none of."""
    return next(computed_in(where), None) is None


def like(one: Guard, other: Guard) -> bool:
    return one.conditions == other.conditions and one.otherwise == other.otherwise
