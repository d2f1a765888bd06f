"""Sums along rows for as many rows at a time as a vector has lanes.

    for i in 240:                          for i in 240 vector 16:
      add0 = 0.0                             add0 = 0.0
      for k in 60 reduce 64:            ->   for k in 60 reduce 16:
        add0 += (a[i*60 + k] * x[k])           add0 += (a[i*60 + k] * x[k])
      y[i] = add0                            y[i] = add0

Lanes along the rows and across them: every row has its own vector (`llvm/row_sums.py`), what all
rows read is read once for all, and their lanes are put together in one go, which takes longer than
to add up a short row.
"""

from __future__ import annotations

from dataclasses import replace

from tinyhlo.codegen.bodies import only_sums
from tinyhlo.codegen.expressions import Expression, identity
from tinyhlo.codegen.loops import Axis, Body, Declare, Loop, Statement, Store
from tinyhlo.codegen.walks import loads_of, walk
from tinyhlo.ir.dtypes import BOOL
from tinyhlo.ir.index import ZERO
from tinyhlo.target import Target

MOST_NODES = 16  # of a term: there is one for every row


def rows_together(body: Body, target: Target, moves: list[str]) -> Body:
    """Every such loop below a body."""
    result: list[Statement] = []
    for statement in body:
        if isinstance(statement, Loop):
            lanes = lanes_of(statement, target)
            if lanes:
                moves.append(f"rows {statement.var.name} {lanes}")
                statement = together(statement, lanes)
            else:
                inner = rows_together(statement.body, target, moves)
                statement = replace(statement, body=inner)
        result.append(statement)
    return tuple(result)


def together(loop: Loop, lanes: int) -> Loop:
    """The loop over rows in lanes, that along them in one vector."""
    body = (replace(s, width=lanes, chains=1) if isinstance(s, Loop) else s for s in loop.body)
    return replace(loop, axis=Axis.VECTOR, width=lanes, body=tuple(body))


def lanes_of(loop: Loop, target: Target) -> int:
    """How many rows to take at a time, 0 if that is not possible or wins nothing."""
    match [s for s in loop.body if isinstance(s, Loop)]:
        case [Loop(axis=Axis.REDUCE, start=start, count=None) as along] if start == ZERO:
            lanes = along.width // along.chains
        case _:
            return 0
    terms = only_sums(along.body)
    values = [s.value for s in terms]
    stores = [s for s in loop.body if isinstance(s, Store)]
    declares = [s for s in loop.body if isinstance(s, Declare)]
    ops = {s.name: s.op for s in terms}
    plain = (
        loop.axis is Axis.SERIAL
        and loop.count is None
        and 1 < lanes <= min(loop.var.extent, along.var.extent)
        and len(loop.body) == len(declares) + 1 + len(stores)
        and set() != ops.keys() == {d.name for d in declares}
        and all(d.value is identity(ops[d.name], d.value.dtype) for d in declares)
        and all(is_simple(value) for value in values)
        and all(s.index.coefficient(loop.var) == 1 for s in stores)
        and all(
            load.index.coefficient(loop.var) in (0, 1) for s in stores for load in loads_of(s.value)
        )
    )
    if not plain or len(terms) * lanes > target.vector_registers // 2:
        return 0
    block = sum(load.memory.dtype.itemsize for value in values for load in loads_of(value))
    return lanes if block * lanes * along.var.extent <= target.l1_bytes // 2 else 0


def is_simple(value: Expression) -> bool:
    """Whether a term is short, of plain loads, and fills whole lanes of 32 bits and more."""
    nodes = list(walk([value]))
    wide = all(e.dtype.bits >= 32 and e.dtype is not BOOL for e in nodes)
    return wide and len(nodes) <= MOST_NODES
