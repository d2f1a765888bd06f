"""Scatter of long rows on all threads: each does its columns of every update, in order.

    for s in 2 parallel:
      for p in 965 ordered: if 0 <= where[p] < 3:
        for j in s*2080 .. +2080 of 4145: y[where[p], j] = y[where[p], j] + updates[p, j]

For few places (`ranges.py` has no range for each thread then): means of clusters, one row for each
class, rows that a table of few is written with. Rows of several axes are one range first.
"""

from __future__ import annotations

from dataclasses import replace

from tinyhlo.codegen.loops import Axis, Body, If, Loop
from tinyhlo.codegen.lowering.updates import FEWEST, Updates
from tinyhlo.codegen.moves.basic import collapse, stores_alone
from tinyhlo.ir.index import Index, Var, index
from tinyhlo.numbers import ceil_div, round_up
from tinyhlo.target import LINE_BYTES, Target

SHORTEST = 24 * LINE_BYTES  # of a row, for each thread: the places are found again by each


def by_strips(updates: Updates, body: Body, target: Target) -> Body:
    """The loops over all updates, `body`, in strips of columns; nothing where rows are short or
    their columns are no loop."""
    body = collapse(body)
    along = columns(body)
    if along is None or target.threads == 1 or updates.size < FEWEST:
        return ()
    size = min(type_.dtype.itemsize for type_ in updates.root.results)
    count = min(target.threads, along.var.extent * size // SHORTEST)
    if count < 2:
        return ()
    length = round_up(ceil_div(along.var.extent, count), LINE_BYTES // size)
    strip = Var("strip", ceil_div(along.var.extent, length))
    return (Loop(strip, Axis.PARALLEL, cut(body, index(strip) * length, length)),)


def columns(body: Body) -> Loop | None:
    """The innermost loop, where there is one alone in each loop and test, if all it does is to
    store, in any order of its iterations."""
    match body:
        case (If(body=inner),):
            return columns(inner)
        case (Loop(axis=Axis.ORDERED, body=inner),):
            return columns(inner)
        case (Loop(axis=Axis.SERIAL, count=None, body=inner) as loop,) if stores_alone(inner):
            return loop
        case _:
            return None


def cut(body: Body, start: Index, length: int) -> Body:
    """That loop, from `start` on."""
    (statement,) = body
    if isinstance(statement, Loop) and statement.axis is Axis.SERIAL:
        return (replace(statement, start=start, count=length),)
    assert isinstance(statement, (Loop, If))
    return (replace(statement, body=cut(statement.body, start, length)),)
