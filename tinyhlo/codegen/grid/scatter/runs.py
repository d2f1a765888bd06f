"""Keys sorted by the items of a group, and the runs of those of one place.

A key is a place times `size`, plus a number of its own: what has one place stays in the order of
the numbers.

    keys    3|0 1|1 3|2 1|3    ->    1|1 1|3 3|0 3|2
    firsts                           0 2 4              # of the runs; the last one: their end
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tinyhlo.codegen.expressions import (
    Expression,
    Guard,
    IndexValue,
    Load,
    Memory,
    Read,
    as_index,
    literal,
)
from tinyhlo.codegen.grid.scan import of_items
from tinyhlo.codegen.grid.statements import Synchronize
from tinyhlo.codegen.loops import (
    Accumulate,
    Allocate,
    Axis,
    Body,
    Declare,
    If,
    Keep,
    Loop,
    Statement,
    Store,
    guarded,
    holding,
)
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import I32, DType
from tinyhlo.ir.index import ZERO, Index, Var, constant, divide, index
from tinyhlo.ir.ops import Op
from tinyhlo.numbers import ceil_div

COUNT = Read("runs", I32)  # of the runs
BANKS, SKEW = 32, 5  # words of a row of shared memory, and what is left free behind each: keys at
# strides of 4, 8 and 16 then lie in different banks, but for two of a warp at most


class Runs:
    """`size` keys, a power of two, of places below `places`; others are no part of any run. With
    `apart` each key is a run of its own."""

    def __init__(self, dtype: DType, size: int, places: int, item: Var, apart: bool) -> None:
        self.size, self.places, self.item, self.apart = size, places, item, apart
        self.keys = Memory("keys", dtype, size + ceil_div(size, BANKS) * SKEW, local=True)
        self.firsts = Memory("firsts", I32, size + 1, local=True)
        self.counts = Memory("counts", I32, item.extent, local=True)

    @property
    def memories(self) -> Body:
        return (Allocate(self.keys), Allocate(self.firsts), Allocate(self.counts))

    @property
    def count(self) -> Index:
        return as_index(COUNT, (0, self.size))

    def key(self, place: Expression, number: Index) -> Expression:
        return place.cast(self.keys.dtype) * self.size + IndexValue(number, self.keys.dtype)

    def at(self, number: Index) -> Index:
        """Where a key lies."""
        return number + divide(number, BANKS)[0] * SKEW

    def place(self, at: Index) -> Expression:
        """Of the key there."""
        return (Load(self.keys, self.at(at)) >> (self.size.bit_length() - 1)).cast(I32)

    def number(self, at: Index) -> Index:
        """Of the key there."""
        number = (Load(self.keys, self.at(at)) & (self.size - 1)).cast(I32)
        return as_index(number, (0, self.size - 1))

    def first(self, run: Index) -> Index:
        """The key that a run begins with."""
        return as_index(Load(self.firsts, run), (0, self.size))

    def found(self) -> Body:
        """Sort the keys and find their runs. All items wait before, and wait at the end."""
        own = Var("own", ceil_div(self.size, self.item.extent))
        at = index(self.item) * own.extent + index(own)
        present = Condition(at, 0, self.size)
        begins, here = self.begins(at), Read("run", I32)
        behind = self.beside(at + 1, self.places)
        is_last = (self.place(at) < self.places) & (literal(self.places, I32) <= behind)
        kept: Body = (
            Keep((self.firsts,), (IndexValue(at, I32),), begins, here.name),
            If(holding(is_last), (Store(self.firsts, self.count, IndexValue(at + 1, I32)),)),
        )
        counted = Accumulate(here.name, Op.ADD, begins.cast(I32))
        return (
            *self.sorted(),
            Declare(here.name, literal(0, I32)),
            Loop(own, Axis.ORDERED, guarded((counted,), present)),
            *summed(self.counts, self.item, here, COUNT),
            Loop(own, Axis.ORDERED, guarded(kept, present)),
            Synchronize(),
        )

    def begins(self, at: Index) -> Expression:
        """Whether a run begins there."""
        here = self.place(at)
        present = here < self.places
        return present if self.apart else present & here.differs(self.beside(at - 1, -1))

    def beside(self, at: Index, outside: int) -> Expression:
        """The place of the key there, which may be none."""
        inside = Condition(at, 0, self.size)
        return Guard((inside,), self.place(at), literal(outside, I32))

    def sorted(self) -> Body:
        """A bitonic network (see `sort/network.py`), two steps at once: an item has four keys in
        registers. Level l merges runs of 2^l keys in l + 1 steps; of an odd number, the first is
        alone."""
        levels = self.size.bit_length() - 1
        half = levels // 2
        level, step = Var("level", half), Var("step", half)
        apart = power(index(step) * -2 + 2 * (half - 1))
        merge = self.step(4, lambda number: quad(number, apart, False), QUAD)

        def steps(start: Index) -> Statement:
            return Loop(step, Axis.ORDERED, merge, start=start)

        def alone(level: Index) -> Body:
            return self.step(2, lambda number: mirrored_pair(number, power(level)), ((0, 1),))

        own = power(index(level) * 2)
        both = self.step(4, lambda number: quad(number, own, True), MIRRORED)
        rest = steps(index(level) * -1 + half)
        result = Loop(level, Axis.ORDERED, (*alone(index(level) * 2), rest, *both, rest))
        if levels % 2 == 0:
            return (result,)
        return (result, *alone(constant(levels - 1)), steps(ZERO))

    def step(
        self,
        count: int,
        places: Callable[[Expression], Sequence[Expression]],
        compared: Sequence[tuple[int, int]],
    ) -> Body:
        """Put keys at `count` places in order, two after two; all items wait at the end."""
        turn = Var("turn", ceil_div(self.size // count, self.item.extent))
        number = index(turn) * self.item.extent + index(self.item)
        at = [self.at(as_index(e, (0, self.size - 1))) for e in places(IndexValue(number, I32))]
        values: list[Expression] = [Read(f"key{k}", self.keys.dtype) for k in range(count)]
        load = [Declare(f"key{k}", Load(self.keys, where)) for k, where in enumerate(at)]
        for one, other in compared:
            pair = values[one], values[other]
            values[one], values[other] = pair[0].at_most(pair[1]), pair[0].at_least(pair[1])
        save = (Store(self.keys, where, value) for where, value in zip(at, values, strict=True))
        body = guarded((*load, *save), Condition(number, 0, self.size // count))
        return (Loop(turn, Axis.SERIAL, body), Synchronize())


QUAD = (0, 2), (1, 3), (0, 1), (2, 3)
MIRRORED = (0, 3), (1, 2), (0, 1), (2, 3)


def power(exponent: Index) -> Expression:
    return literal(1, I32) << IndexValue(exponent, I32)


def mirrored_pair(number: Expression, distance: Expression) -> tuple[Expression, Expression]:
    """Of a number, the places of a pair, the mirror images of each other in a run."""
    low = number & (distance - 1)
    one = number + number - low
    return one, one + (distance + distance - 1 - low - low)


def quad(number: Expression, apart: Expression, mirrored: bool) -> tuple[Expression, ...]:
    """The places of four keys, `apart` from each other, or two and their mirror images."""
    low = number & (apart - 1)
    first = (number - low) * 4 + low
    second = first + apart
    third = second + (apart + apart - 1 - low - low) if mirrored else second + apart
    return first, second, third, third + apart


def summed(counts: Memory, item: Var, mine: Read, total: Read) -> Body:
    """The count of each item in the register `mine` becomes the sum of those of the items before;
    `total` is the sum of all."""
    prefixes, before = of_items(counts, item, Op.ADD, mine)
    last = Load(counts, constant(item.extent - 1))
    return (*prefixes, Declare(mine.name, before), Declare(total.name, last))
