"""Rotations of two rows or columns of small matrices in scratch, as Jacobi's methods make them.

    pairs(n, step)                `step` for every p and every q > p
    tangent(ratio)                of the smaller angle t with t * t + 2 * ratio * t = 1
    turned(m, turn, k, p, q)      row k of columns p and q, by the cosine and the sine in `turn`
    exchanged(m, p, q, where)     two elements, in lanes where a condition holds
    settled(turn, sweep, most)    sweeps until one has turned nothing

Source: Golub and Van Loan, "Matrix Computations", section 8.5.
"""

from __future__ import annotations

from collections.abc import Callable

from tinyhlo.codegen.expressions import Expression, Read, literal, where
from tinyhlo.codegen.loops import Accumulate, Axis, Body, Declare, If, Loop, Store, holding
from tinyhlo.codegen.small_matrices.matrices import COLUMN, Matrices, absolute, below, root
from tinyhlo.ir.dtypes import BOOL
from tinyhlo.ir.index import Index, Var, constant, index
from tinyhlo.ir.ops import Op

COSINE, SINE, MOVED = range(3)  # rows of `turn`

Place = tuple[Index, Index]


def pairs(count: int, step: Callable[[Index, Index], Body]) -> Body:
    if count == 1:
        return ()
    p, q = Var("p", count - 1), Var("q", count)
    return (Loop(p, Axis.ORDERED, (below(index(p), q, *step(index(p), index(q))),)),)


def tangent(ratio: Expression) -> Expression:
    one = literal(1.0, ratio.dtype)
    size = one / (absolute(ratio) + root(ratio * ratio + one))
    return where(ratio < 0.0, literal(0.0, ratio.dtype) - size, size)


def cosine(tangent: Expression) -> Expression:
    one = literal(1.0, tangent.dtype)
    return one / root(tangent * tangent + one)


def turned(
    m: Matrices, turn: Matrices, k: Index, p: Index, q: Index, symmetric: bool = False
) -> Loop:
    """`symmetric`: and column k of rows p and q, which is the same."""
    x, y = Read("x", m.dtype), Read("y", m.dtype)
    cosine, sine = (turn.load(constant(row), COLUMN) for row in (COSINE, SINE))
    new = {p: cosine * x - sine * y, q: sine * x + cosine * y}
    stores = [m.store(k, at, value) for at, value in new.items()]
    stores += [m.store(at, k, value) for at, value in new.items() if symmetric]
    return m.each(Declare("x", m.load(k, p)), Declare("y", m.load(k, q)), *stores)


def exchanged(m: Matrices, here: Place, there: Place, condition: Expression) -> Loop:
    x, y = Read("x", m.dtype), Read("y", m.dtype)
    wrong = Read("wrong", BOOL)
    return m.each(
        Declare("wrong", condition),
        Declare("x", m.load(*here)),
        Declare("y", m.load(*there)),
        m.store(*here, where(wrong, y, x)),
        m.store(*there, where(wrong, x, y)),
    )


def moved(turn: Matrices, nothing: Expression) -> Store:
    """Keep in mind where there was something to turn."""
    before = turn.load(constant(MOVED), COLUMN)
    return turn.store(constant(MOVED), COLUMN, where(nothing, before, turn.literal(1.0)))


def settled(turn: Matrices, sweep: Body, most: int) -> Body:
    """Sweeps until one has turned nothing in any lane, or `most` of them. What is settled in a lane
    stays as it is, so it does not matter what else is in the group."""
    place = constant(MOVED)
    clear = turn.each(turn.store(place, COLUMN, 0.0))
    flag = Accumulate("moved", Op.MAX, turn.load(place, COLUMN))
    body = (
        Declare("moved", turn.literal(0.0)),
        Loop(turn.lane, Axis.REDUCE, (flag,), turn.lane.extent),
        If(holding(Read("moved", turn.dtype)), (clear, *sweep)),
    )
    first = turn.each(turn.store(place, COLUMN, 1.0))
    return (first, Loop(Var("sweep", most), Axis.ORDERED, body)) if sweep else ()
