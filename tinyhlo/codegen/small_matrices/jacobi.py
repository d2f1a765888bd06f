"""Eigenvalues and vectors of small symmetric matrices that lie in scratch, by Jacobi's method.

    Jacobi(a, values, vectors, turn).body()      A V = V diagonal(values), values ascending

Rotations make one element that is not on the diagonal zero after the other, in sweeps over all of
them. What was zero does not stay so, but the elements shrink, at last by squares. How many sweeps a
matrix needs depends on its numbers; all lanes make as many as any was seen to need.

Source: Golub and Van Loan, "Matrix Computations", section 8.5.
"""

from __future__ import annotations

from collections.abc import Callable

from tinyhlo.codegen.expressions import Expression, IndexValue, Read, literal, where
from tinyhlo.codegen.loops import Axis, Body, Declare, Loop, nested
from tinyhlo.codegen.small_matrices.algorithms import Matrices, absolute, below, root
from tinyhlo.ir.dtypes import BOOL, I32, DType
from tinyhlo.ir.index import Index, Var, constant, index
from tinyhlo.records import dataclass

SWEEPS = 2  # and one a row: float64 matrices of 8 rows, their numbers from 1 to 1e16, took 8
NOTHING = 128.0  # an element is none that, times this, adds nothing to the two on the diagonal

COLUMN = constant(0)  # of what has one
COSINE, SINE, FIRST, SECOND = range(4)  # rows of `turn`


@dataclass(frozen=True, slots=True)
class Jacobi:
    """`a` is given by its lower triangle and becomes diagonal; `values` are a column. `turn` has 4
    rows: a rotation, and what it makes of two elements of the diagonal."""

    a: Matrices
    values: Matrices
    vectors: Matrices | None
    turn: Matrices

    def body(self) -> Body:
        a, i, j = self.a, Var("i", self.a.rows), Var("j", self.a.rows)
        sweeps = Loop(Var("sweep", a.rows + SWEEPS), Axis.ORDERED, (self.pairs(self.rotation),))
        steps = (self.pairs(self.mirror), sweeps, self.pairs(self.order)) if a.rows > 1 else ()
        diagonal = self.values.store(index(i), COLUMN, a.load(index(i), index(i)))
        identity: Body = ()
        if (v := self.vectors) is not None:
            unit = IndexValue(index(i), I32).equals(IndexValue(index(j), I32))
            one = where(unit, self.number(1.0), self.number(0.0))
            identity = nested([i, j], (v.each(v.store(index(i), index(j), one)),))
        return (*identity, *steps, *nested([i], (self.values.each(diagonal),)))

    @property
    def dtype(self) -> DType:
        return self.a.memory.dtype

    def number(self, value: float) -> Expression:
        return literal(value, self.dtype)

    def pairs(self, step: Callable[[Index, Index], Body]) -> Loop:
        """`step` for every p and every q > p."""
        p, q = Var("p", self.a.rows - 1), Var("q", self.a.rows)
        return Loop(p, Axis.ORDERED, (below(index(p), q, *step(index(p), index(q))),))

    def mirror(self, p: Index, q: Index) -> Body:
        return (self.a.each(self.a.store(p, q, self.a.load(q, p))),)

    def rotation(self, p: Index, q: Index) -> Body:
        """That makes element (q, p) zero, on both sides of `a`."""
        a, turn, zero, k = self.a, self.turn, self.number(0.0), Var("k", self.a.rows)
        crossing = a.each(
            a.store(p, p, turn.load(constant(FIRST), COLUMN)),
            a.store(q, q, turn.load(constant(SECOND), COLUMN)),
            a.store(p, q, zero),
            a.store(q, p, zero),
        )
        turned = (self.turned(m, index(k), p, q) for m in (a, self.vectors) if m is not None)
        return (self.angle(p, q), Loop(k, Axis.ORDERED, tuple(turned)), crossing)

    def angle(self, p: Index, q: Index) -> Loop:
        a, one = self.a, self.number(1.0)
        ratio, tangent, cosine = (Read(name, self.dtype) for name in ("ratio", "tangent", "cosine"))
        corner, ends = a.load(q, p), (a.load(p, p), a.load(q, q))
        size = one / (absolute(ratio) + root(ratio * ratio + one))
        least = absolute(corner) * NOTHING
        first, second = ((absolute(end) + least).equals(absolute(end)) for end in ends)
        signed = where(ratio < 0.0, self.number(0.0) - size, size)
        found = {
            COSINE: cosine,
            SINE: tangent * cosine,
            FIRST: ends[0] - tangent * corner,
            SECOND: ends[1] + tangent * corner,
        }
        return a.each(
            Declare("ratio", (ends[1] * 0.5 - ends[0] * 0.5) / corner),
            Declare("tangent", where(first & second, self.number(0.0), signed)),
            Declare("cosine", one / root(tangent * tangent + one)),
            *(self.turn.store(constant(row), COLUMN, value) for row, value in found.items()),
        )

    def turned(self, m: Matrices, k: Index, p: Index, q: Index) -> Loop:
        """Row k of columns p and q; of `a`, too, what lies across the diagonal."""
        x, y = Read("x", self.dtype), Read("y", self.dtype)
        cosine, sine = (self.turn.load(constant(row), COLUMN) for row in (COSINE, SINE))
        new = {p: cosine * x - sine * y, q: sine * x + cosine * y}
        stores = [m.store(k, at, value) for at, value in new.items()]
        stores += [m.store(at, k, value) for at, value in new.items() if m is self.a]
        return m.each(Declare("x", m.load(k, p)), Declare("y", m.load(k, q)), *stores)

    def order(self, p: Index, q: Index) -> Body:
        """Two eigenvalues, and their vectors before."""
        k, diagonal = Var("k", self.a.rows), self.exchanged(self.a, (p, p), (q, q))
        if self.vectors is None:
            return (diagonal,)
        vectors = self.exchanged(self.vectors, (index(k), p), (index(k), q))
        return (Loop(k, Axis.ORDERED, (vectors,)), diagonal)

    def exchanged(self, m: Matrices, here: tuple[Index, Index], there: tuple[Index, Index]) -> Loop:
        """Two elements, where the eigenvalues of the two places descend."""
        (_, p), (_, q) = here, there
        x, y, descend = Read("x", self.dtype), Read("y", self.dtype), Read("descend", BOOL)
        return m.each(
            Declare("descend", self.a.load(q, q) < self.a.load(p, p)),
            Declare("x", m.load(*here)),
            Declare("y", m.load(*there)),
            m.store(*here, where(descend, y, x)),
            m.store(*there, where(descend, x, y)),
        )
