"""Small matrices that lie in scratch as products of an orthogonal and an upper triangular one.

    qr(a, factors)               A = Q R; R in the upper triangle, below it what makes up Q
    product(a, factors, q)       Q, or as many of its columns as `q` has
    left_vectors(a, factors, u)  directions of the columns of `a`, which are orthogonal or zero

Q is a product of reflections I - factor v v', one for each column of `a` that has something below
the diagonal to be made zero: v is 1 on the diagonal, and below it what `a` has there.

Source: Golub and Van Loan, "Matrix Computations", sections 5.1 and 5.2; LAPACK's signs.
"""

from __future__ import annotations

from tinyhlo.codegen.expressions import Expression, Read, where
from tinyhlo.codegen.loops import Accumulate, Assign, Axis, Body, Declare, Loop, nested
from tinyhlo.codegen.small_matrices.matrices import (
    COLUMN,
    Matrices,
    absolute,
    below,
    identity,
    root,
    scaling,
    steps,
)
from tinyhlo.ir.index import Index, Var, constant, index
from tinyhlo.ir.ops import Op


def qr(a: Matrices, factors: Matrices) -> Body:
    """`factors` become a column, one for each reflection."""
    j = Var("j", a.columns)

    def step(k: Index, last: bool) -> Body:
        if last and a.rows <= a.columns:  # nothing is below
            return (factors.each(factors.store(k, COLUMN, 0.0)),)
        others = below(k, j, reflected(a, factors, k, a, index(j)))
        return (reflection(a, factors, k), *(() if last else (others,)))

    return steps(min(a.rows, a.columns), step)


def reflection(a: Matrices, factors: Matrices, k: Index) -> Loop:
    """That makes column k zero below the diagonal."""
    i, zero, one = Var("i", a.rows), a.literal(0.0), a.literal(1.0)
    names = ("largest", "scale", "first", "squares", "norm", "end", "divisor")
    largest, scale, first, squares, norm, end, divisor = (Read(name, a.dtype) for name in names)
    element, diagonal = a.load(index(i), k), a.load(k, k)
    scaled, nothing = element * scale, squares.equals(zero)
    return a.each(
        Declare("largest", absolute(diagonal)),
        below(k, i, Accumulate("largest", Op.MAX, absolute(element))),
        Declare("scale", scaling(largest)),
        Declare("first", diagonal * scale),
        Declare("squares", zero),
        below(k, i, Accumulate("squares", Op.ADD, scaled * scaled)),
        Declare("norm", root(squares + first * first)),
        Declare("end", where(nothing, first, where(first < zero, norm, zero - norm))),
        Declare("divisor", where(nothing, one, first - end)),
        factors.store(k, COLUMN, where(nothing, zero, (end - first) / end)),
        below(k, i, a.store(index(i), k, scaled / divisor)),
        a.store(k, k, end / scale),
    )


def reflected(v: Matrices, factors: Matrices, k: Index, m: Matrices, j: Index) -> Loop:
    """Column j of `m` by reflection k, which has something below the diagonal."""
    i, along = Var("i", v.rows), Read("along", m.dtype)
    common = v.load(index(i), k) * m.load(index(i), j)
    return m.each(
        Declare("along", m.load(k, j)),
        below(k, i, Accumulate("along", Op.ADD, common)),
        Assign(("along",), (along * factors.load(k, COLUMN),)),
        m.store(k, j, m.load(k, j) - along),
        below(k, i, m.store(index(i), j, m.load(index(i), j) - along * v.load(index(i), k))),
    )


def product(a: Matrices, factors: Matrices, q: Matrices) -> Body:
    """As many reflections as there are `factors`."""
    j, body = Var("j", q.columns), identity(q)
    count = factors.rows
    if count == q.rows:  # of the last one, nothing is below the diagonal
        k = constant(count - 1)
        shrunk: Expression = q.load(k, k) - factors.load(k, COLUMN)
        body += (q.each(q.store(k, k, shrunk)),)
        count -= 1
    if count:
        back = Var("k", count)
        k = constant(count - 1) - index(back)
        columns = Loop(j, Axis.ORDERED, (reflected(a, factors, k, q, index(j)),), 1, k)
        body += (Loop(back, Axis.ORDERED, (columns,)),)
    return body


def left_vectors(a: Matrices, factors: Matrices, u: Matrices) -> Body:
    """And, where `u` has more columns, what is orthogonal to all. `a` is R then, a diagonal whose
    signs are those of the reflections."""
    i, j = Var("i", u.rows), Var("j", a.columns)
    element = u.load(index(i), index(j))
    turned = a.load(index(j), index(j)) < 0.0
    direction = where(turned, a.literal(0.0) - element, element)
    signs = u.each(u.store(index(i), index(j), direction))
    return (*qr(a, factors), *product(a, factors, u), *nested([i, j], (signs,)))
