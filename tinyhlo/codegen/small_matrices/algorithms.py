"""Loops over small matrices that lie in scratch, one in each lane.

    lu(a, rows, failed)        rows change places so that the largest element of a column divides
    cholesky(a, failed)        the lower triangle
    solve(t, x)                T X = B for a lower triangle T, B in place
    identity(m)                1 on the diagonal, 0 elsewhere
    scaling(largest)           what numbers are multiplied by, lest their squares overflow or vanish

Element (i, j) of all lanes lies side by side. A step of an elimination is the same for every
number of its column but the last, after which no rows are left (and loops run at least once).
"""

from __future__ import annotations

from collections.abc import Callable

from tinyhlo.codegen.expressions import (
    Expression,
    IndexValue,
    Load,
    Memory,
    Read,
    apply,
    literal,
    where,
)
from tinyhlo.codegen.loops import Assign, Axis, Body, Declare, Loop, Statement, Store, nested
from tinyhlo.ir.dtypes import I32
from tinyhlo.ir.index import Index, Var, constant, index
from tinyhlo.ir.ops import Op
from tinyhlo.records import dataclass

COLUMN = constant(0)  # of what has one


@dataclass(frozen=True, slots=True)
class Matrices:
    """A matrix of `rows` x `columns` elements in each lane."""

    memory: Memory
    rows: int
    columns: int
    lane: Var

    def at(self, i: Index, j: Index) -> Index:
        return (i * self.columns + j) * self.lane.extent + index(self.lane)

    def load(self, i: Index, j: Index) -> Expression:
        return Load(self.memory, self.at(i, j))

    def store(self, i: Index, j: Index, value: Expression) -> Store:
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


def lu(a: Matrices, pivots: Matrices, failed: Matrices) -> Body:
    """`pivots` become the rows that each row changed its place with, as numbers of the matrix's
    type; `failed` the first column without anything to divide by, counted from 1, or 0."""
    i, j, zero = Var("i", a.rows), Var("j", a.columns), constant(0)
    dtype = a.memory.dtype
    best, row, top = Read("best", dtype), Read("row", dtype), Read("top", dtype)

    def step(k: Index, last: bool) -> Body:
        number = IndexValue(k, I32).cast(dtype)
        size = absolute(a.load(index(i), k))
        larger = best < size
        found = (
            where(larger, size, best),
            where(larger, IndexValue(index(i), I32).cast(dtype), row),
        )
        search = below(k, i, Assign(("best", "row"), found))
        singular = best.equals(0.0) & failed.load(zero, zero).equals(0.0)
        choose = a.each(
            Declare("best", absolute(a.load(k, k))),
            Declare("row", number),
            *(() if last else (search,)),
            pivots.store(k, zero, row),
            failed.store(zero, zero, where(singular, number + 1.0, failed.load(zero, zero))),
        )
        return (choose,) if last else (choose, *eliminate(k))

    def eliminate(k: Index) -> Body:
        here = pivots.load(k, zero).equals(IndexValue(index(i), I32).cast(dtype))
        other, upper = a.load(index(i), index(j)), a.load(k, index(j))
        exchange = a.each(
            Declare("top", upper),
            below(
                k,
                i,
                Declare("other", other),
                a.store(index(i), index(j), where(here, upper, Read("other", dtype))),
                Assign(("top",), (where(here, Read("other", dtype), top),)),
            ),
            a.store(k, index(j), top),
        )
        pivot, factor = a.load(k, k), a.load(index(i), k)
        quotient = where(pivot.equals(0.0), factor, factor / pivot)
        return (
            Loop(j, Axis.ORDERED, (exchange,)),
            below(k, i, a.each(a.store(index(i), k, quotient))),
            below(k, i, below(k, j, a.each(minus(a, index(i), index(j), factor * upper)))),
        )

    clear = failed.each(failed.store(zero, zero, literal(0.0, dtype)))
    return (clear, *steps(a.rows, step))


def cholesky(a: Matrices, failed: Matrices) -> Body:
    """`failed` becomes the first column whose diagonal was not positive, counted from 1, or 0."""
    i, j, zero = Var("i", a.rows), Var("j", a.rows), constant(0)
    dtype = a.memory.dtype

    def step(k: Index, last: bool) -> Body:
        number = IndexValue(k, I32).cast(dtype) + 1.0
        bad = ~(literal(0.0, dtype) < a.load(k, k)) & failed.load(zero, zero).equals(0.0)
        divisor = a.each(
            failed.store(zero, zero, where(bad, number, failed.load(zero, zero))),
            a.store(k, k, root(a.load(k, k))),
        )
        if last:
            return (divisor,)
        product = a.load(index(i), k) * a.load(index(j), k)
        lower = Loop(i, Axis.ORDERED, (a.each(minus(a, index(i), index(j), product)),), 1, index(j))
        scaled = a.load(index(i), k) / a.load(k, k)
        return (divisor, below(k, i, a.each(a.store(index(i), k, scaled))), below(k, j, lower))

    clear = failed.each(failed.store(zero, zero, literal(0.0, dtype)))
    return (clear, *steps(a.rows, step))


def solve(t: Matrices, x: Matrices, unit: bool) -> Body:
    """`unit`: the diagonal is 1, whatever is stored."""
    i, c = Var("i", t.rows), Var("c", x.columns)

    def step(k: Index, last: bool) -> Body:
        result = x.load(k, index(c))
        divide = () if unit else (x.each(x.store(k, index(c), result / t.load(k, k))),)
        known = x.load(k, index(c)) * t.load(index(i), k)
        rest = () if last else (below(k, i, x.each(minus(x, index(i), index(c), known))),)
        return (Loop(c, Axis.ORDERED, (*divide, *rest)),) if divide or rest else ()

    return steps(t.rows, step)


def identity(m: Matrices) -> Body:
    i, j, dtype = Var("i", m.rows), Var("j", m.columns), m.memory.dtype
    diagonal = IndexValue(index(i), I32).equals(IndexValue(index(j), I32))
    one = where(diagonal, literal(1.0, dtype), literal(0.0, dtype))
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


def minus(a: Matrices, i: Index, j: Index, value: Expression) -> Store:
    return a.store(i, j, a.load(i, j) - value)


def absolute(value: Expression) -> Expression:
    return apply(Op.ABS, (value,), value.dtype)
