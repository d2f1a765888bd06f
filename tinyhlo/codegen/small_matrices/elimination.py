"""Triangular factors of small matrices that lie in scratch, and solutions by them.

    cholesky(a, inverses, failed, width)   the lower triangle
    solve(t, x, inverses, width)           T X = B for a lower triangle T, B in place

Blocks of `width` rows and columns wait in registers while all that is known of their rows and
columns is multiplied; what is left, inside of the block, is written out. Divisions take as long as
ten multiplications: elements are multiplied by inverses.

Source: Golub and Van Loan, "Matrix Computations", sections 3.1 and 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product

from tinyhlo.codegen.expressions import Expression, Read, where
from tinyhlo.codegen.loops import Accumulate, Axis, Body, Declare, Loop, guarded
from tinyhlo.codegen.small_matrices.blocks import Block, Blocks
from tinyhlo.codegen.small_matrices.matrices import (
    COLUMN,
    Matrices,
    absolute,
    number,
    root,
    scaling,
)
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.index import ZERO, Index, Var, constant, index
from tinyhlo.ir.ops import Op

INVERSE, SCALE = map(constant, range(2))  # columns of what `solve` multiplies by


def cholesky(a: Matrices, inverses: Matrices, failed: Matrices, width: int) -> Body:
    """`failed` becomes the first column whose diagonal was not positive, counted from 1, or 0;
    `inverses` a column of what the elements of each column are multiplied by."""
    blocks, dtype = Blocks(a.rows, width), a.dtype

    def diagonal(j: Block) -> Loop:
        pairs = [(p, q) for q in range(j.size) for p in range(q, j.size)]
        body = sums(pairs, lambda p, k: a.load(j[p], k), lambda q, k: a.load(j[q], k), j.start, a)
        for p, q in pairs:
            left = rest(a.load(j[p], j[q]), p, q, ((new(p, m), new(q, m)) for m in range(q)))
            if p > q:
                body += (Declare(new(p, q).name, left * Read(f"inverse{q}", dtype)),)
                continue
            square, length = Read(f"square{q}", dtype), new(q, q)
            bad = ~(a.literal(0.0) < square) & failed.load(ZERO, COLUMN).equals(0.0)
            first = where(bad, number(j[q], dtype) + 1.0, failed.load(ZERO, COLUMN))
            inverse = a.literal(1.0) / length
            body += (
                Declare(square.name, left),
                failed.store(ZERO, COLUMN, first),
                Declare(length.name, root(square)),
                Declare(f"inverse{q}", inverse),
                inverses.store(j[q], COLUMN, Read(f"inverse{q}", dtype)),
            )
        return a.each(*body, *(a.store(j[p], j[q], new(p, q)) for p, q in pairs))

    def below_diagonal(i: Block, j: Block) -> Loop:
        pairs = [(p, q) for q in range(j.size) for p in range(i.size)]
        body = sums(pairs, lambda p, k: a.load(i[p], k), lambda q, k: a.load(j[q], k), j.start, a)
        for p, q in pairs:
            known = ((new(p, m), a.load(j[q], j[m])) for m in range(q))
            left = rest(a.load(i[p], j[q]), p, q, known)
            body += (Declare(new(p, q).name, left * inverses.load(j[q], COLUMN)),)
        return a.each(*body, *(a.store(i[p], j[q], new(p, q)) for p, q in pairs))

    def new(p: int, q: int) -> Read:
        return Read(f"new{p}_{q}", dtype)

    def columns(j: Block) -> Body:
        return (diagonal(j), *blocks.after(j, "i", lambda i: (below_diagonal(i, j),)))

    clear = failed.each(failed.store(ZERO, COLUMN, 0.0))
    return (clear, *blocks.all("j", columns))


def solve(t: Matrices, x: Matrices, inverses: Matrices | None, width: int) -> Body:
    """Without `inverses` the diagonal is 1, whatever is stored; they become two columns."""
    i, dtype = Var("i", t.rows), t.dtype
    body: Body = ()
    if inverses is not None:
        divisor, scale = t.load(index(i), index(i)), Read("scale", dtype)
        ready = (
            Declare("scale", scaling(absolute(divisor))),
            inverses.store(index(i), INVERSE, t.literal(1.0) / (divisor * scale)),
            inverses.store(index(i), SCALE, scale),
        )
        body = (Loop(i, Axis.ORDERED, (inverses.each(*ready),)),)

    def tile(i: Block, c: Block) -> Loop:
        pairs = list(product(range(i.size), range(c.size)))
        body = sums(pairs, lambda p, k: t.load(i[p], k), lambda q, k: x.load(k, c[q]), i.start, t)
        for p, q in pairs:
            known = ((t.load(i[p], i[m]), Read(f"new{m}_{q}", dtype)) for m in range(p))
            value = rest(x.load(i[p], c[q]), p, q, known)
            if inverses is not None:
                value = value * inverses.load(i[p], INVERSE) * inverses.load(i[p], SCALE)
            body += (Declare(f"new{p}_{q}", value),)
        stores = (x.store(i[p], c[q], Read(f"new{p}_{q}", dtype)) for p, q in pairs)
        return x.each(*body, *stores)

    rows, columns = Blocks(t.rows, width), Blocks(x.columns, width)
    return body + rows.all("r", lambda r: columns.all("c", lambda c: (tile(r, c),)))


def sums(
    pairs: Iterable[tuple[int, int]],
    left: Callable[[int, Index], Expression],
    right: Callable[[int, Index], Expression],
    count: Index,
    a: Matrices,
) -> Body:
    """Registers `sum{p}_{q}`: of products of the first `count` elements of a row p on the left and
    a column q on the right."""
    k, zero = Var("k", a.rows), a.literal(0.0)
    at = index(k) + count - a.rows
    names = {(p, q): f"sum{p}_{q}" for p, q in pairs}
    adds = (Accumulate(name, Op.ADD, left(p, at) * right(q, at)) for (p, q), name in names.items())
    loop = Loop(k, Axis.ORDERED, tuple(adds), 1, count * -1 + a.rows)
    zeros = (Declare(name, zero) for name in names.values())
    return (*zeros, *guarded((loop,), Condition(count, 1, a.rows)))


def rest(
    value: Expression, p: int, q: int, known: Iterable[tuple[Expression, Expression]]
) -> Expression:
    """Less the sum of the block, and products of what has become known in it."""
    value = value - Read(f"sum{p}_{q}", value.dtype)
    for x, y in known:
        value = value - x * y
    return value
