"""A move for choices between new rows and what lies there: rows that stay are not touched.

    for j in 256: y[i*256 + j] = where(m[i], new, y[i*256 + j])

    ->  if m[i]: for j in 256: y[i*256 + j] = new

Environments that are set again when they are done, rows of a table that were hit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from tinyhlo.codegen.bodies import inside, nest_of
from tinyhlo.codegen.expressions import Apply, Expression, Load, Memory
from tinyhlo.codegen.loops import (
    Axis,
    Body,
    If,
    Loop,
    LoopProgram,
    Statement,
    Store,
    around,
    holding,
)
from tinyhlo.codegen.walks import loads_of
from tinyhlo.ir.ops import Op

LEAST_BYTES = 1 << 8  # of a row, which take about as long as a test that is foreseen wrongly


def with_kept_rows(program: LoopProgram, body: Body, moves: list[str]) -> Body:
    """`body`, the loops of which rows may stay behind a test."""
    old = {program.writes[write]: program.reads[read] for write, read in program.in_place}

    def changed(statement: Statement) -> Statement:
        if isinstance(statement, Loop) and (found := tested(statement, old)) is not None:
            moves.append(f"kept {statement.var.name}")
            return found
        return inside(statement, lambda body: tuple(map(changed, body)))

    return tuple(map(changed, body)) if old else body


def tested(loop: Loop, old: Mapping[Memory, Memory]) -> If | None:
    """A loop that stores under a test that is the same for all its iterations."""
    nest = nest_of(loop, Axis.SERIAL, Axis.VECTOR)
    if not nest:
        return None
    stores = [statement for statement in nest[-1].body if isinstance(statement, Store)]
    choices = [found for store in stores if (found := choice_of(store, old)) is not None]
    tests = {test for test, _ in choices}
    if len(choices) < len(nest[-1].body) or len(tests) != 1:
        return None
    (test,) = tests
    if any(row.var in test.free for row in nest) or any(
        load.memory in old.values() for load in loads_of(test)
    ):
        return None
    if prod(row.trip_count for row in nest) * stores[0].memory.dtype.itemsize < LEAST_BYTES:
        return None
    kept = (replace(s, value=new) for s, (_, new) in zip(stores, choices, strict=True))
    return If(holding(test), around(nest, tuple(kept)))


def choice_of(store: Store, old: Mapping[Memory, Memory]) -> tuple[Expression, Expression] | None:
    """(test, value): what is stored where the test holds; else the element stays."""
    match store.value:
        case Apply(op=Op.WHERE, arguments=(test, new, Load(memory=memory, index=index))):
            pass
        case Apply(op=Op.WHERE, arguments=(test, Load(memory=memory, index=index), new)):
            test = ~test
        case _:
            return None
    stays = old.get(store.memory) == memory and index == store.index
    return (test, new) if stays else None
