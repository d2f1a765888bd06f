"""Rows that vectors copy, a few times in a row: without a loop.

    for k in 16:                                   for k in 16:
      for l in 2:                                    for l in 2 unroll:
        for m in 9 vector 8:                ->         for m in 9 vector 8:
          y[k*18 + l*9 + m] = x[k*9 + m]                 y[k*18 + l*9 + m] = x[k*9 + m]

The counter, its bound and the jump take longer than the copy.
"""

from __future__ import annotations

from dataclasses import replace

from tinyhlo.codegen.bodies import inside, is_cheap_row
from tinyhlo.codegen.loops import Axis, Body, Loop, Statement

MOST_TIMES = 4


def unrolled(body: Body) -> Body:
    """Every such loop below `body`."""

    def change(statement: Statement) -> Statement:
        match statement:
            case Loop(axis=Axis.SERIAL, var=var, count=None, body=(Loop() as row,)) if (
                var.extent <= MOST_TIMES and is_without_loop(row)
            ):
                return replace(statement, axis=Axis.UNROLL)
            case _:
                return inside(statement, unrolled)

    return tuple(map(change, body))


def is_without_loop(row: Loop) -> bool:
    """Whether a loop is one vector of a row, or two that overlap."""
    few = row.width <= row.var.extent <= 2 * row.width
    return row.axis is Axis.VECTOR and few and row.count is None and is_cheap_row(row)
