"""Small matrices that lie in scratch, one in each lane, and loops over them.

    m.load(i, j), m.store(i, j, value)   element (i, j) of all lanes, which lie side by side
    m.literal(1.0)                       a number of their type
    m.each(...)                          for all matrices
    steps(size, step), below(k, i, ...)  what eliminations are made of
    identity(m)                          1 on the diagonal, 0 elsewhere
    scaling(largest)                     what numbers are multiplied by, lest their squares overflow
                                         or vanish

A step of an elimination is the same for every number of its column but the last, after which no
rows are left (and loops run at least once).
"""

from __future__ import annotations

from collections.abc import Callable

from tinyhlo.codegen.expressions import (
    Expression,
    IndexValue,
    Load,
    Memory,
    apply,
    literal,
    where,
)
from tinyhlo.codegen.loops import Axis, Body, Loop, Statement, Store, nested
from tinyhlo.codegen.lowering.fused import Position
from tinyhlo.ir.dtypes import I32, DType
from tinyhlo.ir.index import Index, Var, constant, index, linear
from tinyhlo.ir.ops import Op
from tinyhlo.records import dataclass

COLUMN = constant(0)  # of what has one
Place = Callable[[Index, Index], Position]  # the last axes of a buffer, for element (i, j)


def by_columns(i: Index, j: Index) -> Position:
    """Where a buffer in LAPACK's order has element (i, j)."""
    return (j, i)


def by_rows(i: Index, j: Index) -> Position:
    return (i, j)


@dataclass(frozen=True, slots=True)
class Matrices:
    """A matrix of `rows` x `columns` elements in each lane, that lie as in a buffer."""

    memory: Memory
    rows: int
    columns: int
    lane: Var
    place: Place

    @property
    def dtype(self) -> DType:
        return self.memory.dtype

    def literal(self, value: float) -> Expression:
        return literal(value, self.dtype)

    @property
    def extents(self) -> tuple[int, int]:
        """Of the buffer's last axes."""
        first, second = self.place(index(Var("i", self.rows)), index(Var("j", self.columns)))
        return first.bounds[1] + 1, second.bounds[1] + 1

    def at(self, i: Index, j: Index) -> Index:
        place = linear(self.place(i, j), self.extents)
        return place * self.lane.extent + index(self.lane)

    def load(self, i: Index, j: Index) -> Expression:
        return Load(self.memory, self.at(i, j))

    def store(self, i: Index, j: Index, value: Expression | float) -> Store:
        value = value if isinstance(value, Expression) else self.literal(value)
        return Store(self.memory, self.at(i, j), value)

    def each(self, *body: Statement) -> Loop:
        """For all matrices."""
        width = self.lane.extent
        return Loop(self.lane, Axis.VECTOR if width > 1 else Axis.SERIAL, body, width)


def steps(size: int, step: Callable[[Index, bool], Body]) -> Body:
    """`step` for every number below `size`; the last knows that it is."""
    k = Var("k", size - 1)
    loop = (Loop(k, Axis.ORDERED, step(index(k), False)),) if size > 1 else ()
    return (*loop, *step(constant(size - 1), True))


def below(k: Index, var: Var, *body: Statement) -> Loop:
    """For `var` from k + 1 on."""
    return Loop(var, Axis.ORDERED, body, 1, k + 1)


def identity(m: Matrices) -> Body:
    i, j = Var("i", m.rows), Var("j", m.columns)
    diagonal = IndexValue(index(i), I32).equals(IndexValue(index(j), I32))
    one = where(diagonal, m.literal(1.0), m.literal(0.0))
    return nested([i, j], (m.each(m.store(index(i), index(j), one)),))


def scaling(largest: Expression) -> Expression:
    """A power of two; 1, unless the largest number is very large or small."""
    fifth = largest.dtype.exponent_bias // 5

    def power(fifths: int) -> Expression:
        return literal(2.0 ** (fifths * fifth), largest.dtype)

    small = where(largest < power(-2), power(4), literal(1.0, largest.dtype))
    return where(power(2) < largest, power(-3), small)


def root(value: Expression) -> Expression:
    return apply(Op.SQRT, (value,), value.dtype)


def absolute(value: Expression) -> Expression:
    return apply(Op.ABS, (value,), value.dtype)


def number(place: Index, dtype: DType) -> Expression:
    """Of a row or column, in a matrix's type."""
    return IndexValue(place, I32).cast(dtype)
