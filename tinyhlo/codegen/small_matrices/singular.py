"""Singular values and vectors of small matrices that lie in scratch, by Jacobi's method.

    SingularValues(a, values, v, turn, scale, failed).body()     A V = B of orthogonal columns

Rotations of columns make one pair after the other orthogonal, in sweeps over all pairs; how long
the columns are then are the singular values, descending. Their directions are the left vectors:
`householder.py` finds them, since a column that is zero has one too.

Source: Golub and Van Loan, "Matrix Computations", section 8.6.3 (one-sided Jacobi).
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import numpy as np

from tinyhlo.codegen.expressions import Read, where
from tinyhlo.codegen.loops import Accumulate, Axis, Body, Declare, Loop, nested
from tinyhlo.codegen.small_matrices.matrices import (
    COLUMN,
    Matrices,
    absolute,
    identity,
    root,
    scaling,
)
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
from tinyhlo.ir.ops import Op
from tinyhlo.records import dataclass

SWEEPS = 3  # and one a column
ORTHOGONAL = 2.0  # columns are, whose product is below so many units of that of their lengths


@dataclass(frozen=True, slots=True)
class SingularValues:
    """`a` has no fewer rows than columns, and becomes B, scaled; `values` are a column,
    `turn` 3 numbers. `scale` and `failed` (1: a number is not finite) are one."""

    a: Matrices
    values: Matrices
    vectors: Matrices | None
    turn: Matrices
    scale: Matrices
    failed: Matrices

    def body(self) -> Body:
        columns, j = self.a.columns, Var("j", self.a.columns)
        sweeps = settled(self.turn, pairs(columns, self.rotation), columns + SWEEPS)
        value = self.values.load(index(j), COLUMN) / self.scale.load(COLUMN, COLUMN)
        restore = self.values.each(self.values.store(index(j), COLUMN, value))
        return (
            *self.scaled(),
            *(() if self.vectors is None else identity(self.vectors)),
            *sweeps,
            *nested([j], (self.length(index(j)),)),
            *pairs(columns, self.order),
            *nested([j], (restore,)),
        )

    def scaled(self) -> Body:
        """The numbers, by `scaling` of the largest; and whether that is one."""
        a, i, j = self.a, Var("i", self.a.rows), Var("j", self.a.columns)
        largest, element = Read("largest", a.dtype), a.load(index(i), index(j))
        wrong = where(largest < inf, a.literal(0.0), a.literal(1.0))
        search = a.each(
            Declare("largest", a.literal(0.0)),
            *nested([i, j], (Accumulate("largest", Op.MAX, absolute(element)),)),
            self.scale.store(COLUMN, COLUMN, scaling(largest)),
            self.failed.store(COLUMN, COLUMN, wrong),
        )
        product = element * self.scale.load(COLUMN, COLUMN)
        return (search, *nested([i, j], (a.each(a.store(index(i), index(j), product)),)))

    def of_rows(self, step: Callable[[Matrices, Index], Loop]) -> Body:
        """For each row of `a` and of the vectors."""
        body: Body = ()
        for m in (self.a, self.vectors):
            if m is not None:
                k = Var("k", m.rows)
                body += (Loop(k, Axis.ORDERED, (step(m, index(k)),)),)
        return body

    def rotation(self, p: Index, q: Index) -> Body:
        """That makes columns p and q orthogonal."""
        return (self.angle(p, q), *self.of_rows(lambda m, k: turned(m, self.turn, k, p, q)))

    def angle(self, p: Index, q: Index) -> Loop:
        a, k = self.a, Var("k", self.a.rows)
        names = ("first", "second", "both", "ratio", "tangent", "cosine")
        first, second, both, ratio, slope, along = (Read(name, a.dtype) for name in names)
        x, y = a.load(index(k), p), a.load(index(k), q)
        terms = {"first": x * x, "second": y * y, "both": x * y}
        sums = tuple(Accumulate(name, Op.ADD, term) for name, term in terms.items())
        enough = second * (ORTHOGONAL * np.finfo(a.dtype.numpy).eps) ** 2
        done = (both * (both / first) <= enough) | both.equals(0.0)
        return a.each(
            *(Declare(name, a.literal(0.0)) for name in terms),
            Loop(k, Axis.ORDERED, sums),
            Declare("ratio", (second * 0.5 - first * 0.5) / both),
            Declare("tangent", where(done, a.literal(0.0), tangent(ratio))),
            Declare("cosine", cosine(slope)),
            moved(self.turn, done),
            self.turn.store(constant(COSINE), COLUMN, along),
            self.turn.store(constant(SINE), COLUMN, slope * along),
        )

    def length(self, j: Index) -> Loop:
        k = Var("k", self.a.rows)
        element = self.a.load(index(k), j)
        return self.a.each(
            Declare("squares", self.a.literal(0.0)),
            Loop(k, Axis.ORDERED, (Accumulate("squares", Op.ADD, element * element),)),
            self.values.store(j, COLUMN, root(Read("squares", self.a.dtype))),
        )

    def order(self, p: Index, q: Index) -> Body:
        """Two values, and their columns before."""
        here, there = (self.values.load(k, COLUMN) for k in (p, q))
        ascend = here < there
        columns = self.of_rows(lambda m, k: exchanged(m, (k, p), (k, q), ascend))
        return (*columns, exchanged(self.values, (p, COLUMN), (q, COLUMN), ascend))
