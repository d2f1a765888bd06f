"""Eigenvalues and vectors of small symmetric matrices that lie in scratch, by Jacobi's method.

    Eigenvalues(a, values, vectors, turn).body()      A V = V diagonal(values), values ascending

Rotations make one element that is not on the diagonal zero after the other, in sweeps over all of
them. What was zero does not stay so, but the elements shrink, at last by squares. How many sweeps a
matrix needs depends on its numbers; all lanes make as many as any was seen to need.

Source: Golub and Van Loan, "Matrix Computations", section 8.5.
"""

from __future__ import annotations

from tinyhlo.codegen.expressions import Expression, Read, where
from tinyhlo.codegen.loops import Axis, Body, Declare, Loop, nested
from tinyhlo.codegen.small_matrices.matrices import COLUMN, Matrices, absolute, identity
from tinyhlo.codegen.small_matrices.rotations import (
    COSINE,
    SINE,
    cosine,
    exchanged,
    moved,
    pairs,
    settled,
    tangent,
    turned,
)
from tinyhlo.ir.index import Index, Var, constant, index
from tinyhlo.records import dataclass

SWEEPS = 2  # and one a row: float64 matrices of 8 rows, their numbers from 1 to 1e16, took 8
NOTHING = 128.0  # an element is none that, times this, adds nothing to the two on the diagonal
FIRST, SECOND = 3, 4  # more rows of `turn`


@dataclass(frozen=True, slots=True)
class Eigenvalues:
    """`a` is given by its lower triangle and becomes diagonal; `values` are a column. `turn` has 5
    rows: a rotation, and what it makes of two elements of the diagonal."""

    a: Matrices
    values: Matrices
    vectors: Matrices | None
    turn: Matrices

    def body(self) -> Body:
        a, i = self.a, Var("i", self.a.rows)
        sweeps = settled(self.turn, pairs(a.rows, self.rotation), a.rows + SWEEPS)
        diagonal = self.values.store(index(i), COLUMN, a.load(index(i), index(i)))
        return (
            *(() if self.vectors is None else identity(self.vectors)),
            *pairs(a.rows, self.mirror),
            *sweeps,
            *pairs(a.rows, self.order),
            *nested([i], (self.values.each(diagonal),)),
        )

    def mirror(self, p: Index, q: Index) -> Body:
        return (self.a.each(self.a.store(p, q, self.a.load(q, p))),)

    def rotation(self, p: Index, q: Index) -> Body:
        """That makes element (q, p) zero, on both sides of `a`."""
        a, turn, k = self.a, self.turn, Var("k", self.a.rows)
        crossing = a.each(
            a.store(p, p, turn.load(constant(FIRST), COLUMN)),
            a.store(q, q, turn.load(constant(SECOND), COLUMN)),
            a.store(p, q, 0.0),
            a.store(q, p, 0.0),
        )
        both: Body = (turned(a, turn, index(k), p, q, symmetric=True),)
        if self.vectors is not None:
            both += (turned(self.vectors, turn, index(k), p, q),)
        return (self.angle(p, q), Loop(k, Axis.ORDERED, both), crossing)

    def angle(self, p: Index, q: Index) -> Loop:
        a = self.a
        ratio, slope, along = (Read(name, a.dtype) for name in ("ratio", "tangent", "cosine"))
        corner, ends = a.load(q, p), (a.load(p, p), a.load(q, q))
        nothing = adds_nothing(corner, ends)
        found = {
            COSINE: along,
            SINE: slope * along,
            FIRST: ends[0] - slope * corner,
            SECOND: ends[1] + slope * corner,
        }
        return a.each(
            Declare("ratio", (ends[1] * 0.5 - ends[0] * 0.5) / corner),
            Declare("tangent", where(nothing, a.literal(0.0), tangent(ratio))),
            Declare("cosine", cosine(slope)),
            moved(self.turn, nothing),
            *(self.turn.store(constant(row), COLUMN, value) for row, value in found.items()),
        )

    def order(self, p: Index, q: Index) -> Body:
        """Two eigenvalues, and their vectors before."""
        k, a = Var("k", self.a.rows), self.a
        descend = a.load(q, q) < a.load(p, p)
        values = exchanged(a, (p, p), (q, q), descend)
        if (v := self.vectors) is None:
            return (values,)
        vectors = exchanged(v, (index(k), p), (index(k), q), descend)
        return (Loop(k, Axis.ORDERED, (vectors,)), values)


def adds_nothing(value: Expression, ends: tuple[Expression, Expression]) -> Expression:
    """A rotation by what is as small would end in denormal numbers, which are slow."""
    least = absolute(value) * NOTHING
    first, second = ((absolute(number) + least).equals(absolute(number)) for number in ends)
    return first & second
