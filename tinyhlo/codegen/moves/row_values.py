"""Dear values of which each row has one, computed for all rows in vectors before them.

    for i in 64:                                     local each0: f32[64]
      for j in 16 vector 16:                         for i in 64 vector 16:
        y[i*16 + j] = (x[i*16 + j] * exp(d[i]))  ->    each0[i] = exp(d[i])
                                                     for i in 64:
                                                       for j in 16 vector 16:
                                                         y[i*16 + j] = (x[i*16 + j] * each0[i])

In: loops, one of each nest in lanes. Where that is an inner one, what depends on the outer alone is
computed one by one, though sixteen logarithms side by side take as long as one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tinyhlo.codegen.bodies import below, names_set, rewritten, values_in
from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.expressions import Apply, Expression, Load, Memory, exchanged
from tinyhlo.codegen.loops import Allocate, Axis, Body, Loop, Statement, Store
from tinyhlo.codegen.moves.vectors import has_lanes, vectorised
from tinyhlo.codegen.walks import arguments, loads_of, walk
from tinyhlo.ir.index import index
from tinyhlo.ir.ops import TRANSCENDENTAL
from tinyhlo.target import Target


def before_rows(body: Body, target: Target, moves: Moves) -> Body:
    """Take such values out of every loop over rows below a body."""
    result: list[Statement] = []
    for statement in body:
        if isinstance(statement, Loop) and statement.width == 1:
            inner = replace(statement, body=before_rows(statement.body, target, moves))
            result.extend(taken_out(inner, target, moves))
        else:
            result.append(statement)
    return tuple(result)


def taken_out(loop: Loop, target: Target, moves: Moves) -> Body:
    """A loop over rows behind one that computes the dear values that each row has one of."""
    over_rows = loop.axis is Axis.SERIAL and loop.count is None and has_lanes(loop.body)
    values = list(dear_values(loop)) if over_rows else []
    if not values:
        return (loop,)
    count = sum(move.startswith("before ") for move in moves)
    memories = [
        Memory(f"each{count + k}", value.dtype, loop.var.extent, local=True)
        for k, value in enumerate(values)
    ]
    at = index(loop.var)
    stores = tuple(Store(m, at, value) for m, value in zip(memories, values, strict=True))
    tried = Moves(moves.asked)
    first = vectorised(Loop(loop.var, Axis.SERIAL, stores), target, tried)
    size = sum(memory.nbytes for memory in memories)
    if not has_lanes((first,)) or size > target.l2_bytes // 2:
        return (loop,)
    moves.adopt(tried)
    moves.extend(f"before {memory.name}" for memory in memories)
    loads: dict[Expression, Expression] = {s.value: Load(s.memory, at) for s in stores}
    rows = tuple(rewritten(s, lambda e: exchanged(e, loads)) for s in loop.body)
    return (*map(Allocate, memories), first, replace(loop, body=rows))


def dear_values(loop: Loop) -> Iterator[Expression]:
    """The largest values with a transcendental that depend on a row's number alone, computed for
    every row, from memory that the loop does not change."""
    inside = {s.var for s in below(loop.body) if isinstance(s, Loop)} | names_set(loop.body)
    changed = {s.memory for s in below(loop.body) if isinstance(s, (Store, Allocate))}

    def is_of_row(e: Expression) -> bool:
        fixed = loop.var in e.free and e.free.isdisjoint(inside)
        return fixed and changed.isdisjoint(load.memory for load in loads_of(e))

    def is_wanted(e: Expression) -> bool:
        return is_of_row(e) and any(
            isinstance(part, Apply) and part.op in TRANSCENDENTAL and loop.var in part.free
            for part in walk([e])
        )

    roots = [value for s in always(loop.body) for value in values_in(s)]
    found = walk(roots, below=lambda e: () if is_of_row(e) else arguments(e))
    return filter(is_wanted, found)


def always(body: Body) -> Iterator[Statement]:
    """Statements of a body and of its loops, but none under an `if`."""
    for statement in body:
        yield statement
        if isinstance(statement, Loop) and statement.var.extent:
            yield from always(statement.body)
