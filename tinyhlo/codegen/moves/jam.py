"""Results that each reduce many short rows, several of them at a time (unroll and jam).

    for i in 399:                              for i in 57:
      max0 = -inf                                max0_0 = -inf; max0_1 = -inf; ... max0_6 = -inf
      for j in 237 reduce:                       for j in 237 reduce:
        for k in 10 reduce 8:             ->       for k in 10 reduce 8:
          max0 = max(max0, x[i,j,k])                 max0_0 = max(max0_0, x[i*7,j,k])
      y[i] = max0                                    ...
                                                     max0_6 = max(max0_6, x[i*7 + 6,j,k])
                                                 y[i*7] = max0_0; ...; y[i*7 + 6] = max0_6

A row of one vector is one operation, and the next waits for it: four cycles of a sum, ten of an
extreme. Rows of other results do not wait, and where they lie side by side (`x.max((0, 2))`) the
lines and pages of memory that a turn opens are read to their end.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tinyhlo.codegen.bodies import inside, only_stores, only_sums, stores_last, substituted
from tinyhlo.codegen.loops import Accumulate, Axis, Body, Loop, Statement
from tinyhlo.codegen.moves.basic import join
from tinyhlo.codegen.moves.side_sums import BUSY, LIGHT
from tinyhlo.codegen.moves.work import cost
from tinyhlo.codegen.moves.write_out import iterations, uses_registers
from tinyhlo.codegen.walks import loads_of
from tinyhlo.ir.dtypes import BOOL
from tinyhlo.ir.index import Index, Var, constant, index
from tinyhlo.target import Target

SHORTEST = 16  # rows: fewer do not make up for what is written out
SHARES = 2  # of each thread, at least


def jam(body: Body, target: Target, moves: list[str]) -> Body:
    """Every such loop below a body."""
    result: list[Statement] = []
    for statement in body:
        count = results_of(statement, target) if isinstance(statement, Loop) else 1
        if isinstance(statement, Loop) and count > 1:
            moves.append(f"jam {statement.var.name} {count}")
            result += jammed(statement, count)
        else:
            result.append(inside(statement, partial(jam, target=target, moves=moves)))
    return tuple(result)


def results_of(loop: Loop, target: Target) -> int:
    """How many results to take at a time, 1 where that is impossible or wins nothing. The number
    changes no result: each adds up in its own order."""
    match [s for s in loop.body if isinstance(s, Loop)]:
        case [Loop(axis=Axis.REDUCE, width=1, count=None, body=(Loop() as row,)) as rows]:
            terms = only_sums(row.body)
        case _:
            return 1
    others = tuple(s for s in loop.body if s is not rows)
    whole = loop.axis is Axis.SERIAL and loop.count is None and only_stores(others)
    if not (whole and is_one_vector(row)) or rows.var.extent < SHORTEST:
        return 1
    if not terms or not are_light(terms) or uses_registers(loop):
        return 1
    loads = [load for s in terms for load in loads_of(s.value) if load.depends_on(loop.var)]
    if {load.index.coefficient(loop.var) for load in loads} != {row.var.extent}:
        return 1  # rows of the next result do not follow in memory
    extent = loop.var.extent
    most = min(BUSY // (row.chains * len(terms)), extent // (SHARES * target.threads))
    if most < 2:
        return 1
    return next((n for n in range(most, most // 2, -1) if extent % n == 0), most)


def is_one_vector(row: Loop) -> bool:
    """Whether a row is reduced by one turn of its lanes, and a second that overlaps the first."""
    whole = row.axis is Axis.REDUCE and row.count is None
    return whole and 1 < row.width <= row.var.extent < 2 * row.width


def are_light(terms: Sequence[Accumulate]) -> bool:
    """Whether terms are little work, so that each addition is waited for."""
    values = [s.value for s in terms]
    numbers = all(value.dtype is not BOOL for value in values)
    return numbers and sum(map(cost, values)) <= LIGHT * len(terms)


def jammed(loop: Loop, count: int) -> Body:
    """The loop with `count` results a turn, and what is left of them in one turn."""
    turns, rest = divmod(loop.var.extent, count)
    turn, last = Var(loop.var.name, turns), Var(f"{loop.var.name}_rest", 1)
    whole = together(loop, turn, index(turn) * count, count)
    return (whole, together(loop, last, constant(turns * count), rest)) if rest else (whole,)


def together(loop: Loop, turn: Var, first: Index, count: int) -> Loop:
    """A loop over turns of `count` results from `first` on, whose reduces are joined."""
    part = Var("part", count)
    body = substituted(loop.body, {loop.var: first + index(part)})
    return Loop(turn, Axis.SERIAL, all_at_once(Loop(part, Axis.SERIAL, body)))


def all_at_once(loop: Loop) -> Body:
    """The iterations of a loop, their reduces joined, their stores last."""
    return join(stores_last(iterations(loop, {}, {}, most_nodes=0)))
