"""Radix sort of one row, least significant digit first: for comparators that order by numbers.

    data: two halves of n elements each; `origin` is where the current half starts
    for every digit of the key, the least significant first:
      count the elements of each digit value, block by block
      running sums: where the first element of each digit value and block goes
      move every element to its place in the other half, unless all have the same digit

Sorting is stable, and a stable order is unique: blocks run in parallel, and their number changes
nothing. All columns (operands) move together; the key is computed from them when it is needed.
LSD radix sort: Knuth, The Art of Computer Programming 3, section 5.2.5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tinyhlo.codegen.expressions import (
    Expression,
    IndexValue,
    Load,
    Memory,
    Read,
    as_index,
    literal,
)
from tinyhlo.codegen.loops import (
    Accumulate,
    Allocate,
    Assign,
    Axis,
    Declare,
    If,
    Loop,
    Statement,
    Store,
)
from tinyhlo.codegen.regions import inline
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import I32, I64
from tinyhlo.ir.index import Index, Var, index
from tinyhlo.ir.ops import Op
from tinyhlo.ir.order import Key
from tinyhlo.numbers import ceil_div
from tinyhlo.records import dataclass

WIDEST = (8, 11)  # bits of a digit: 256 counters are cleared quickly, 2048 fit the first cache
STRIP = 512  # elements whose digits are computed at once: they stay in the first cache

ORIGIN = Read("origin", I64)
DIGIT = "digit"
PLACE = Read("place", I32)
RUNNING = Read("running", I32)
BEFORE = Read("before", I32)
MOST = Read("most", I32)


@dataclass(frozen=True, slots=True)
class Row:
    """`columns` hold 2n elements each, the unsorted row in the first half; `threads` share it."""

    columns: tuple[Memory, ...]
    length: int
    threads: int

    @property
    def share(self) -> int:
        """Strips of a block."""
        return ceil_div(self.strip.extent, self.threads)

    @property
    def blocks(self) -> int:
        """None of them is empty: of 5 strips, 4 threads sort 2, 2 and 1."""
        return ceil_div(self.strip.extent, self.share)

    @property
    def origin(self) -> Index:
        """Where the current half starts."""
        return as_index(ORIGIN, (0, self.length))

    @property
    def element(self) -> Var:
        return Var("element", self.length)

    @property
    def strip(self) -> Var:
        return Var("strip", ceil_div(self.length, STRIP))

    @property
    def digits(self) -> Memory:
        """The digits of one strip."""
        return Memory("digits", I32, min(STRIP, self.length), local=True)

    def elements(self, at: Index) -> list[Expression]:
        return [Load(column, at) for column in self.columns]


@dataclass(frozen=True, slots=True)
class Digits:
    """A key taken apart: digit `number` (a loop variable) has weight `values` ** `number`."""

    key: Key
    bits: int

    @property
    def values(self) -> int:
        return 1 << self.bits

    @property
    def number(self) -> Var:
        return Var("number", ceil_div(self.key.bits, self.bits))

    def of(self, elements: Sequence[Expression]) -> Expression:
        """The current digit of an element."""
        (key,) = inline(self.key.graph, elements)
        if self.number.extent == 1:
            return key
        shift = IndexValue(index(self.number) * self.bits, key.dtype)
        return (key >> shift) & (self.values - 1)


def digits_of(key: Key, length: int) -> Digits:
    """Few wide digits or more narrow ones, of about the same width."""
    passes = {ceil_div(key.bits, widest) for widest in WIDEST}
    ways = [Digits(key, ceil_div(key.bits, count)) for count in passes]
    return min(ways, key=lambda digits: cost(digits, length))


def cost(digits: Digits, length: int) -> float:
    """Nanoseconds, measured (docs/decisions/0014-sort.md): each pass counts, sums and moves."""
    return digits.number.extent * (60.0 + 3.6 * length + 0.65 * digits.values)


def radix_sort(keys: Sequence[Key], row: Row, lanes: int) -> list[Statement]:
    """Statements that leave the sorted row at `ORIGIN` of the columns."""
    digits = [digits_of(key, row.length) for key in reversed(keys)]
    most = max(each.values for each in digits)
    counts = Memory("counts", I32, row.blocks * most, local=True)
    statements: list[Statement] = [Allocate(counts), Declare(ORIGIN.name, literal(0, I64))]
    statements += [Declare(r.name, literal(0, I32)) for r in (RUNNING, MOST)]
    statements += [
        Loop(each.number, Axis.ORDERED, one_pass(each, row, counts, lanes)) for each in digits
    ]
    return statements


def one_pass(digit: Digits, row: Row, counts: Memory, lanes: int) -> tuple[Statement, ...]:
    """Sort by one digit."""
    zero = literal(0, I32)
    varied = Condition(as_index(MOST, (0, row.length)), 0, row.length)
    moving = in_blocks(row, lambda block: move(digit, row, counts, block, lanes))
    return (
        in_blocks(row, lambda block: count(digit, row, counts, block, lanes)),
        Assign((RUNNING.name, MOST.name), (zero, zero)),
        sums(digit, row, counts, lanes),
        If((varied,), (moving, Assign((ORIGIN.name,), (row.length - ORIGIN,)))),
    )


def in_blocks(row: Row, body: Callable[[Index], Sequence[Statement]]) -> Loop:
    """Run `body(block)` for every block of the row."""
    block = Var("block", row.blocks)
    return Loop(block, Axis.PARALLEL if row.blocks > 1 else Axis.ORDERED, tuple(body(index(block))))


def by_digit(
    digit: Digits, row: Row, block: Index, lanes: int, body: Sequence[Statement]
) -> list[Statement]:
    """Run `body` for the elements of one block in order. Their digits are computed in vectors, a
    strip at a time."""
    strip, element = row.strip, index(row.element)
    key = digit.of(row.elements(row.origin + element))
    start, each = index(strip) * STRIP, min(STRIP, row.length)
    fill = Store(row.digits, element - start, key.cast(I32))
    inner = (
        Loop(row.element, Axis.VECTOR, (fill,), min(lanes, each), start, STRIP),
        Loop(row.element, Axis.ORDERED, tuple(body), 1, start, STRIP),
    )
    strips = Loop(strip, Axis.ORDERED, inner, 1, block * row.share, row.share)
    return [Allocate(row.digits), strips]


def count(digit: Digits, row: Row, counts: Memory, block: Index, lanes: int) -> list[Statement]:
    """How often each digit value occurs in a block."""
    value = Var(DIGIT, digit.values)
    clear = Store(counts, block * digit.values + index(value), literal(0, I32))
    at = counter(digit, row, block)
    clearing = Loop(value, Axis.VECTOR, (clear,), min(lanes, digit.values))
    return [
        clearing,
        *by_digit(digit, row, block, lanes, [Store(counts, at, Load(counts, at) + 1)]),
    ]


def counter(digit: Digits, row: Row, block: Index) -> Index:
    """The counter of the current element's digit."""
    here = index(row.element) - index(row.strip) * STRIP
    value = as_index(Load(row.digits, here), (0, digit.values - 1))
    return block * digit.values + value


def sums(digit: Digits, row: Row, counts: Memory, lanes: int) -> Loop:
    """Counts of one digit value become places: after all smaller values, and after the same value
    in earlier blocks."""
    value, block = Var(DIGIT, digit.values), Var("block", row.blocks)
    at = index(block) * digit.values + index(value)
    if row.blocks == 1:
        own = Load(counts, index(value))
        in_vectors = (
            Accumulate(RUNNING.name, Op.ADD, own),
            Accumulate(MOST.name, Op.MAX, own),
            Store(counts, index(value), RUNNING - own),
        )
        return Loop(value, Axis.ORDERED, in_vectors, min(lanes, digit.values))
    one_block = (
        Declare(PLACE.name, Load(counts, at)),
        Store(counts, at, RUNNING),
        Accumulate(RUNNING.name, Op.ADD, PLACE),
    )
    body = (
        Declare(BEFORE.name, RUNNING),
        Loop(block, Axis.ORDERED, one_block),
        Accumulate(MOST.name, Op.MAX, RUNNING - BEFORE),
    )
    return Loop(value, Axis.ORDERED, body)


def move(digit: Digits, row: Row, counts: Memory, block: Index, lanes: int) -> list[Statement]:
    """Every element of a block goes to its place in the other half."""
    at = counter(digit, row, block)
    place = as_index(PLACE, (0, row.length - 1))
    target = place + row.length - row.origin
    source = row.origin + index(row.element)
    body = [
        Declare(PLACE.name, Load(counts, at)),
        Store(counts, at, PLACE + 1),
        *(Store(column, target, Load(column, source)) for column in row.columns),
    ]
    return by_digit(digit, row, block, lanes, body)
