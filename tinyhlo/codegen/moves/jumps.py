"""A move for choices that all lanes make alike, of which one side takes long: a jump.

    y[i] = where(s[0], sin(x[i]), x[i])    ->    y[i] = (1 <= [i32(s[0])] < 2 ? sin(x[i]) : x[i])

A step that is taken if all is finite, one of two activations. Where each lane chooses for itself,
both sides are computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tinyhlo.codegen.bodies import all_values, below, inside, rewritten
from tinyhlo.codegen.expressions import (
    Apply,
    Expression,
    Guard,
    Renamed,
    apply,
    exchanged,
    has_registers,
)
from tinyhlo.codegen.loops import Body, Loop, Statement
from tinyhlo.codegen.walks import parts, walk
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import I32
from tinyhlo.ir.index import Data, index
from tinyhlo.ir.ops import FUNCTIONS, Op


def with_jumps(body: Body, moves: list[str]) -> Body:
    """The same, with such choices in loops that run in lanes."""

    def changed(statement: Statement) -> Statement:
        if isinstance(statement, Loop) and statement.width > 1:
            return chosen_once(statement, moves)
        return inside(statement, lambda inner: with_jumps(inner, moves))

    return tuple(map(changed, body))


def chosen_once(loop: Loop, moves: list[str]) -> Loop:
    values = all_values(below(loop.body))
    known: Renamed = {}
    for choice in choices(values, loop):
        if takes_long(choice, values, loop):
            known[choice] = jump(choice)
    if not known:
        return loop
    moves.append(f"jump {loop.var.name}")
    body = (rewritten(s, lambda value: exchanged(value, dict(known))) for s in loop.body)
    return replace(loop, body=tuple(body))


def choices(values: Iterable[Expression], loop: Loop) -> Iterator[Apply]:
    """The outermost choices whose condition is the same for all lanes, but whose value is not."""
    inside: set[Expression] = set()
    for e in walk(values, lambda e: loop.var in e.free and e not in inside):
        if isinstance(e, Apply) and e.op is Op.WHERE:
            free = e.arguments[0].free
            if loop.var not in free and not has_registers(free):
                inside.update(walk(e.arguments))
                yield e


def takes_long(choice: Apply, values: Iterable[Expression], loop: Loop) -> bool:
    """Whether a side of a choice takes long, for values that nothing else needs."""
    others = walk(values, below=lambda e: () if e is choice else parts(e))
    needed = {*others, *walk(choice.arguments[:1], below=parts)}
    return any(
        isinstance(e, Apply) and e.op in FUNCTIONS and loop.var in e.free
        for e in walk(choice.arguments[1:], lambda e: e not in needed)
    )


def jump(choice: Apply) -> Guard:
    test, value, other = choice.arguments
    held = index(Data(apply(Op.CAST, (test,), I32), (0, 1)))
    return Guard((Condition(held, 1, 2),), value, other)
