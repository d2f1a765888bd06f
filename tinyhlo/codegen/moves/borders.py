"""A move for loops over padded memory: the borders get loops of their own.

    for j in 56 vector 32:                              for j in 1: ...
      add0 = 0.0                                        for j in 54 vector 32:
      for n in 3 reduce:                                  add0 = 0.0
        add0 += (0 <= j + n + -1 < 56       ->            add0 += x[j] * w[0]
                   ? x[j + n + -1] : 0.0) * w[n]          add0 += x[j + 1] * w[1]
      y[j] = add0                                         add0 += x[j + 2] * w[2]
                                                          y[j + 1] = add0
                                                        for j in 1: ...

Inside, where most of the work is, all lanes lie within bounds: loads need no mask, and loads at a
stride become whole vectors and shuffles (`llvm/interleave.py`). The few places of a window are
written out, so that their loads and weights are known before the loop.
"""

from __future__ import annotations

from dataclasses import replace

from tinyhlo.codegen.bodies import must_run_once
from tinyhlo.codegen.expressions import Expression, Guard
from tinyhlo.codegen.loops import Accumulate, Axis, Body, Declare, If, Loop, Statement, Store
from tinyhlo.codegen.moves.write_out import extent_of, specialised
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.index import Var, index
from tinyhlo.numbers import ceil_div, round_up

MOST_NODES = 256  # expressions of a body, and of a window once it is written out
LONG_ROW = 32  # vectors: to such rows a vector in place of a single element at the border is little
MANY = 1 << 14  # iterations in all runs: below, there is little to win

Bounds = tuple[int, int]


def without_borders(body: Body, runs: float, moves: list[str]) -> Body:
    """Loops in lanes that ask whether a lane is within bounds, cut where the answer changes; the
    body runs so often in one call of the program."""
    result: list[Statement] = []
    for statement in body:
        match statement:
            case Loop(var=var, axis=Axis.VECTOR, count=None) if var.extent * runs >= MANY:
                result += pieces(statement, moves)
            case Loop(var=var, body=inner):
                inner = without_borders(inner, runs * var.extent, moves)
                result.append(replace(statement, body=inner))
            case If(body=inner):
                result.append(replace(statement, body=without_borders(inner, runs, moves)))
            case _:
                result.append(statement)
    return tuple(result)


def pieces(loop: Loop, moves: list[str]) -> list[Loop]:
    """The loop before, inside and behind the range where all lanes are within bounds. A border
    takes a whole vector; one of a single iteration only in rows that vectors fill."""
    lanes, extent = loop.width // loop.chains, loop.var.extent
    start, stop = range_inside(loop)
    if extent >= LONG_ROW * lanes:  # results of the inside start where a vector of memory does
        start, stop = round_up(start, lanes), extent - round_up(extent - stop, lanes)
    narrow = stop - start < max(lanes, extent // 2)
    if (start, stop) == (0, extent) or narrow or not is_simple(loop.body) or must_run_once(loop):
        return [loop]
    alone = extent % lanes != 0  # else, one iteration by itself would leave a part of a vector
    if start > alone:
        start = max(start, lanes)
    if extent - stop > alone:
        stop = min(stop, extent - lanes)
    if stop - start < lanes:
        return [loop]
    moves.append(f"borders {loop.var.name} {start} {extent - stop}")
    cuts = [(0, start), (start, stop), (stop, extent)]
    return [piece(loop, *cut) for cut in cuts if cut[0] < cut[1]]


def piece(loop: Loop, start: int, stop: int) -> Loop:
    """The iterations from `start` to `stop`, choices made as far as their bounds decide them."""
    var = Var(loop.var.name, stop - start)
    lanes, width = loop.width // loop.chains, loop.width
    while width > max(lanes, var.extent):
        width //= 2
    body = [
        each
        for statement in loop.body
        for each in specialised(statement, {loop.var: index(var) + start}, {}, {}, MOST_NODES)
    ]
    if var.extent < lanes:
        return Loop(var, Axis.SERIAL, tuple(body))
    return replace(loop, var=var, body=tuple(body), width=width, chains=width // lanes)


def is_simple(body: Body) -> bool:
    """Whether there is nothing but sums, and windows of sums, without memory of their own."""
    return all(
        isinstance(s, (Declare, Accumulate, Store))
        or (isinstance(s, Loop) and s.axis is Axis.REDUCE and s.width == 1 and is_simple(s.body))
        for s in body
    )


def range_inside(loop: Loop) -> Bounds:
    """The range of the loop's variable in which every condition on it holds; all of it where the
    body is too long to be copied."""
    nodes: set[Expression] = set()
    for statement in loop.body:
        extent_of(statement, nodes)
    low, high = 0, loop.var.extent
    if len(nodes) > MOST_NODES:
        return low, high
    guards = [node for node in nodes if isinstance(node, Guard)]
    for condition in (c for guard in guards for c in guard.conditions):
        first, last = holds(condition, loop.var)
        low, high = max(low, first), min(high, last)
    return low, high


def holds(condition: Condition, var: Var) -> Bounds:
    """Values of `var` for which a condition holds, whatever the variables of loops inside are;
    all where it does not only ask for these."""
    step = condition.index.coefficient(var)
    if not step:
        return 0, var.extent
    rest = condition.index - index(var) * step
    first, last = rest.bounds
    low, high = condition.low - first, condition.high - 1 - last  # low <= step * var <= high
    if step < 0:
        low, high, step = -high, -low, -step
    return ceil_div(low, step), high // step + 1
