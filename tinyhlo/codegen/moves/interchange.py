"""Two moves for loops that are not nested as their operands lie in memory.

Of reduces directly inside each other the one of the longest strides becomes the outermost one, so
that the innermost walks along memory:

    for i in 100 reduce:                     for j in 200 reduce:
      for j in 200 reduce:             ->      for i in 100 reduce:
        add0 += x[i + j*100]                     add0 += x[i + j*100]

`collapse` can then make one loop of both. Sums are added in another order, the same on every run.

Of the loops around reduces the one along which most of what they read is neighbours becomes the
innermost one, which can run in vectors; results are few against what they are made of:

    for i in 128:                            for j in 128:
      for j in 128:                            for i in 128:
        add0 = 0.0                               add0 = 0.0
        for k in 256 reduce:          ->         for k in 256 reduce:
          add0 += x[k*16384 + j*128 + i]           add0 += x[k*16384 + j*128 + i]
        y[i*128 + j] = add0                      y[i*128 + j] = add0
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from tinyhlo.codegen.bodies import nest_of
from tinyhlo.codegen.expressions import Expression
from tinyhlo.codegen.loops import Accumulate, Axis, Body, If, Loop, Statement, around
from tinyhlo.codegen.walks import loads_of

OUTWEIGHS = 8  # times what lies along the innermost loop as it is
MOST_TAPS, MIN_ALONG = 9, 16  # of a window that is written out; of what it is written out for
MIN_ROWS = 16  # elements of a sum that outweigh a result which is stored across memory


def interchange(body: Body, moves: list[str]) -> Body:
    """The body with every nest of reduces in the order of its strides."""
    return tuple(interchanged(statement, moves) for statement in body)


def interchanged(statement: Statement, moves: list[str]) -> Statement:
    if not isinstance(statement, (Loop, If)):
        return statement
    nest = reduces(statement)
    if len(nest) < 2:
        inner = replace(statement, body=interchange(statement.body, moves))
        return columns_inside(inner, moves) if isinstance(inner, Loop) else inner
    body = nest[-1].body
    steps = {loop.var: stride(loop, body) for loop in nest}
    if None in steps.values():
        return statement
    order = sorted(nest, key=lambda loop: -(steps[loop.var] or 0))
    if order == nest or has_taps_inside(nest, order, body):
        return statement
    moves.append(f"interchange {' '.join(loop.var.name for loop in order)}")
    return around(order, body)[0]


def has_taps_inside(nest: Sequence[Loop], order: Sequence[Loop], body: Body) -> bool:
    """Whether only a few taps of a window lie inside the loop along memory, which is long: they are
    written out, and it runs in lanes."""
    at = nest.index(order[-1])
    along, taps = nest[at], nest[at + 1 :]
    others = [loop for loop in order if loop not in taps]
    values = [statement.value for statement in body if isinstance(statement, Accumulate)]
    steps = {load.index.coefficient(along.var) for value in values for load in loads_of(value)}
    few = 1 < prod(loop.var.extent for loop in taps) <= MOST_TAPS
    long = along.var.extent >= MIN_ALONG and steps <= {0, 1}
    return few and long and others == list(nest[: at + 1])


def columns_inside(statement: Loop, moves: list[str]) -> Statement:
    """A nest of independent loops around reduces, the one along memory innermost."""
    nest = nest_of(statement, Axis.SERIAL)
    if len(nest) < 2:
        return statement
    body = nest[-1].body
    sums = [each for each in body if isinstance(each, Loop) and each.axis is Axis.REDUCE]
    if not sums or reduced(sums) < MIN_ROWS:
        return statement
    loads = [load for value in accumulated(sums) for load in loads_of(value)]

    def along(loop: Loop) -> int:
        """Elements of what lies along a loop."""
        return sum(load.memory.size for load in loads if load.index.coefficient(loop.var) == 1)

    *lengths, innermost = map(along, nest)
    if max(lengths) <= OUTWEIGHS * innermost:
        return statement
    column = nest.pop(lengths.index(max(lengths)))
    moves.append(f"interchange {' '.join(loop.var.name for loop in (*nest, column))}")
    return around((*nest, column), body)[0]


def reduced(sums: Sequence[Loop]) -> int:
    """Elements that the shortest of some nests of reduces adds up; 0 where one is no such nest."""
    nests = map(reduces, sums)
    return min(prod(loop.var.extent for loop in nest) if nest else 0 for nest in nests)


def accumulated(sums: Sequence[Loop]) -> Iterator[Expression]:
    """The values that nests of reduces accumulate."""
    for each in sums:
        yield from (s.value for s in reduces(each)[-1].body if isinstance(s, Accumulate))


def reduces(statement: Statement) -> list[Loop]:
    """Reduces directly inside each other, of which the innermost does nothing but accumulate."""
    nest = nest_of(statement, Axis.REDUCE)
    sums = nest and all(isinstance(inner, Accumulate) for inner in nest[-1].body)
    return nest if sums else []


def stride(loop: Loop, body: Body) -> int | None:
    """How far the loads of the sums go from one iteration of `loop` to the next, added up; None
    where that is not the same for all."""
    values = [statement.value for statement in body if isinstance(statement, Accumulate)]
    places = {(load.memory, load.index) for value in values for load in loads_of(value)}
    steps = [index.coefficient(loop.var) for _, index in places]
    if None in steps:
        return None
    return sum(abs(step or 0) for step in steps)
