"""LU factorisations of small matrices that lie in scratch.

    Factors(a, pivots, failed).body()      P A = L U; below the diagonal of `a` is L, the rest is U

The largest element of a column divides: its row, another one in each lane, changes places with
the one that it is to be. That is done by choosing, for all rows below, which takes as long as the
elimination and needs no gather.

Source: Golub and Van Loan, "Matrix Computations", section 3.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from tinyhlo.codegen.expressions import Expression, Read, where
from tinyhlo.codegen.loops import Assign, Body, Declare, Loop, Statement, guarded
from tinyhlo.codegen.small_matrices.blocks import Block, Blocks
from tinyhlo.codegen.small_matrices.matrices import (
    COLUMN,
    Matrices,
    absolute,
    below,
    number,
    scaling,
)
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.index import ZERO, Index, Var, index
from tinyhlo.records import dataclass

PANEL = 2  # columns of a block; of 3 or 4 large matrices take 0.9 of the time, and compile in 1.7
Place = tuple[int, int]  # row and column of a block


@dataclass(frozen=True, slots=True)
class Factors:
    """`pivots` become the rows that each row changed its place with, as numbers of the matrix's
    type; `failed` the first column without anything to divide by, counted from 1, or 0."""

    a: Matrices
    pivots: Matrices
    failed: Matrices

    def body(self) -> Body:
        blocks = Blocks(self.a.rows, PANEL)
        clear = self.failed.each(self.failed.store(ZERO, COLUMN, 0.0))

        def columns(j: Block) -> Body:
            return (
                *(s for q in range(j.size) for s in (self.choice(j[q]), self.inside(j, q))),
                *blocks.before(j, "c", lambda c: (self.other(j, c, eliminated=False),)),
                *blocks.after(j, "c", lambda c: (self.other(j, c, eliminated=True),)),
            )

        return (clear, *blocks.all("j", columns))

    def number(self, place: Index) -> Expression:
        return number(place, self.a.dtype)

    def register(self, name: str, *places: int) -> Read:
        return Read("_".join((name, *map(str, places))), self.a.dtype)

    def rows_below(self, k: Index, i: Var, *body: Statement) -> Body:
        return guarded((below(k, i, *body),), Condition(k, 0, self.a.rows - 1))

    def choice(self, k: Index) -> Loop:
        """Of the row that has the largest element of column k."""
        a, i = self.a, Var("i", self.a.rows)
        best, row, size = self.register("best"), self.register("row"), absolute(a.load(index(i), k))
        values = (best, size), (row, self.number(index(i)))
        larger = tuple(where(best < size, new, old) for old, new in values)
        before = self.failed.load(ZERO, COLUMN)
        fails = best.equals(0.0) & before.equals(0.0)
        return a.each(
            Declare("best", absolute(a.load(k, k))),
            Declare("row", self.number(k)),
            *self.rows_below(k, i, Assign(("best", "row"), larger)),
            self.pivots.store(k, COLUMN, row),
            self.failed.store(ZERO, COLUMN, where(fails, self.number(k) + 1.0, before)),
        )

    def inside(self, j: Block, q: int) -> Loop:
        """Column q of a block, in the block."""
        a, i, k = self.a, Var("i", self.a.rows), j[q]
        tops = [self.register("top", c) for c in range(j.size)]
        pivot, factor, scale = tops[q], self.register("factor"), self.register("scale")
        inverse, one, nothing = self.register("inverse"), a.literal(1.0), pivot.equals(0.0)
        rest = (
            a.store(index(i), j[c], a.load(index(i), j[c]) - factor * tops[c])
            for c in range(q + 1, j.size)
        )
        eliminate = (
            Declare("factor", a.load(index(i), k) * inverse * scale),
            a.store(index(i), k, factor),
            *rest,
        )
        return a.each(
            *(Declare(top.name, a.load(k, j[c])) for c, top in enumerate(tops)),
            *self.exchanged([k], j, {(0, c): top for c, top in enumerate(tops)}),
            *(a.store(k, j[c], top) for c, top in enumerate(tops)),
            Declare("scale", where(nothing, one, scaling(absolute(pivot)))),
            Declare("inverse", where(nothing, one, one / (pivot * scale))),
            *self.rows_below(k, i, *eliminate),
        )

    def other(self, j: Block, c: Block, eliminated: bool) -> Loop:
        """Columns c after block j: their rows change places as its own have."""
        a, i = self.a, Var("i", self.a.rows)
        places = list(product(range(j.size), range(c.size)))
        tops = {place: self.register("top", *place) for place in places}
        values = self.exchanged_inside(j, {(p, q): a.load(j[p], c[q]) for p, q in places})
        body: Body = (
            *(Declare(tops[place].name, value) for place, value in values.items()),
            *self.exchanged([j[p] for p in range(j.size)], c, tops),
        )
        if eliminated:
            new = {place: self.register("new", *place) for place in places}
            for p, q in places:
                value: Expression = tops[p, q]
                for m in range(p):
                    value = value - a.load(j[p], j[m]) * new[m, q]
                body += (Declare(new[p, q].name, value),)
            row = [a.load(index(i), c[q]) for q in range(c.size)]
            for p, q in places:
                row[q] = row[q] - a.load(index(i), j[p]) * new[p, q]
            update = (a.store(index(i), c[q], value) for q, value in enumerate(row))
            body += self.rows_below(j[j.size - 1], i, *update)
            tops = new
        return a.each(*body, *(a.store(j[p], c[q], top) for (p, q), top in tops.items()))

    def exchanged_inside(
        self, j: Block, values: dict[Place, Expression]
    ) -> dict[Place, Expression]:
        """Rows of a block in the order in which these change places with each other."""
        found = dict(values)
        for p, other in product(range(j.size), repeat=2):
            here = self.pivots.load(j[p], COLUMN).equals(self.number(j[other]))
            for q in {q for _, q in values} if p < other else ():
                mine, its = found[p, q], found[other, q]
                found[p, q], found[other, q] = where(here, its, mine), where(here, mine, its)
        return found

    def exchanged(self, rows: Sequence[Index], c: Block, tops: dict[Place, Read]) -> Body:
        """`tops`, of these rows in columns c, change places with rows below all of them."""
        a, i = self.a, Var("i", self.a.rows)
        others = [self.register("other", q) for q in range(c.size)]
        row: list[Expression] = [*others]
        taken: list[Expression] = []
        for (p, q), top in tops.items():
            here = self.pivots.load(rows[p], COLUMN).equals(self.number(index(i)))
            taken.append(where(here, row[q], top))
            row[q] = where(here, top, row[q])
        return self.rows_below(
            rows[-1],
            i,
            *(Declare(other.name, a.load(index(i), c[q])) for q, other in enumerate(others)),
            *(a.store(index(i), c[q], value) for q, value in enumerate(row)),
            Assign(tuple(top.name for top in tops.values()), tuple(taken)),
        )
