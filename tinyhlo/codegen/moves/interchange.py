"""A move for reduces over axes that are not nested as they lie in memory: the loop of the longest
strides becomes the outermost one, so that the innermost walks along memory.

    for i in 100 reduce:                     for j in 200 reduce:
      for j in 200 reduce:             ->      for i in 100 reduce:
        add0 += x[i + j*100]                     add0 += x[i + j*100]

`collapse` can then make one loop of both. Sums are added in another order, the same on every run.
"""

from __future__ import annotations

from dataclasses import replace

from tinyhlo.codegen.expressions import loads_of
from tinyhlo.codegen.loops import Accumulate, Axis, Body, If, Loop, Statement
from tinyhlo.ir.index import ZERO


def interchange(body: Body, moves: list[str]) -> Body:
    """The body with every nest of reduces in the order of its strides."""
    return tuple(interchanged(statement, moves) for statement in body)


def interchanged(statement: Statement, moves: list[str]) -> Statement:
    if not isinstance(statement, (Loop, If)):
        return statement
    nest = reduces(statement)
    if len(nest) < 2:
        return replace(statement, body=interchange(statement.body, moves))
    body = nest[-1].body
    steps = {loop.var: stride(loop, body) for loop in nest}
    if any(step is None for step in steps.values()):
        return statement
    order = sorted(nest, key=lambda loop: -(steps[loop.var] or 0))
    if order == nest:
        return statement
    moves.append(f"interchange {' '.join(loop.var.name for loop in order)}")
    for loop in reversed(order):
        body = (replace(loop, body=body),)
    return body[0]


def reduces(statement: Statement) -> list[Loop]:
    """Reduces directly inside each other, of which the innermost does nothing but accumulate."""
    nest: list[Loop] = []
    while isinstance(statement, Loop) and statement.axis is Axis.REDUCE and is_whole(statement):
        nest.append(statement)
        if all(isinstance(inner, Accumulate) for inner in statement.body):
            return nest
        statement = statement.body[0]
    return []


def is_whole(loop: Loop) -> bool:
    """Whether a loop runs over all of its range and consists of one loop or of sums."""
    sums = all(isinstance(inner, Accumulate) for inner in loop.body)
    return loop.start == ZERO and loop.count is None and (sums or len(loop.body) == 1)


def stride(loop: Loop, body: Body) -> int | None:
    """How far the loads of the sums go from one iteration of `loop` to the next, added up; None
    where that is not the same for all."""
    values = [statement.value for statement in body if isinstance(statement, Accumulate)]
    places = {(load.memory, load.index) for value in values for load in loads_of(value)}
    steps = [index.coefficient(loop.var) for _, index in places]
    if any(step is None for step in steps):
        return None
    return sum(abs(step or 0) for step in steps)
