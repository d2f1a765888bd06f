"""Keys sorted by the items of a group, and the runs of those of one place.

A key is a place times `size`, plus a number of its own: what has one place stays in the order of
the numbers.

    keys    3|0 1|1 3|2 1|3    ->    1|1 1|3 3|0 3|2
    firsts                           0 2 4              # of the runs; the last one: their end
"""

from __future__ import annotations

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
from tinyhlo.codegen.grid.sort import steps_of
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
    Synchronize,
    guarded,
)
from tinyhlo.codegen.numbers import ceil_div
from tinyhlo.ir.dtypes import I32, DType
from tinyhlo.ir.index import Condition, Index, Var, constant, index
from tinyhlo.ir.ops import Op

COUNT = Read("runs", I32)  # of the runs


class Runs:
    """`size` keys, a power of two, of places below `places`; others are no part of any run. With
    `apart` each key is a run of its own."""

    def __init__(self, dtype: DType, size: int, places: int, item: Var, apart: bool) -> None:
        self.size, self.places, self.item, self.apart = size, places, item, apart
        self.keys = Memory("keys", dtype, size, local=True)
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

    def place(self, at: Index) -> Expression:
        """Of the key there."""
        return (Load(self.keys, at) >> (self.size.bit_length() - 1)).cast(I32)

    def number(self, at: Index) -> Index:
        """Of the key there."""
        number = (Load(self.keys, at) & (self.size - 1)).cast(I32)
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
            self.sorted(),
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

    def sorted(self) -> Statement:
        levels = self.size.bit_length() - 1
        turn = Var("pair", ceil_div(self.size // 2, self.item.extent))
        number = index(turn) * self.item.extent + index(self.item)
        one, other = (Read(name, self.keys.dtype) for name in ("one", "other"))

        def step(first: Expression, second: Expression) -> Body:
            low, high = (as_index(e, (0, self.size - 1)) for e in (first, second))
            exchanged = (Store(self.keys, low, other), Store(self.keys, high, one))
            pair = (
                Declare(one.name, Load(self.keys, low)),
                Declare(other.name, Load(self.keys, high)),
                If(holding(other < one), exchanged),
            )
            held = guarded(pair, Condition(number, 0, self.size // 2))
            return (Loop(turn, Axis.SERIAL, held), Synchronize())

        return steps_of(levels, IndexValue(number, I32), step)


def holding(value: Expression) -> tuple[Condition, ...]:
    """That a boolean is true."""
    return (Condition(as_index(value.cast(I32), (0, 1)), 1, 2),)


def summed(counts: Memory, item: Var, mine: Read, total: Read) -> Body:
    """The count of each item in the register `mine` becomes the sum of those of the items before;
    `total` is the sum of all (Hillis and Steele)."""
    at, items = index(item), item.extent
    body: list[Statement] = [Store(counts, at, mine), Synchronize()]
    step = 1
    while step < items:
        left = Guard((Condition(at, step, items),), Load(counts, at - step), literal(0, I32))
        body += [
            Declare("left", left),
            Synchronize(),
            Store(counts, at, Read("left", I32) + Load(counts, at)),
            Synchronize(),
        ]
        step *= 2
    before = Guard((Condition(at, 1, items),), Load(counts, at - 1), literal(0, I32))
    return (
        *body,
        Declare(mine.name, before),
        Declare(total.name, Load(counts, constant(items - 1))),
    )
