"""Long sums of floats in blocks, so that their error grows with the logarithm of their length.

    for i in 100000 reduce 64:          for i_block in 25 reduce:
      add0 += x[i]                        add0_i = 0.0
                                  ->      for i in i_block*4032 .. +4032 of 100000 reduce 64:
                                            add0_i += x[i]
                                          add0 += add0_i

Each addition rounds to the size of all that came before it; blocks, and blocks of blocks, keep the
chains short. They depend on extents and lanes alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tinyhlo.codegen.bodies import below, inside, rewritten
from tinyhlo.codegen.expressions import Read, identity
from tinyhlo.codegen.loops import Accumulate, Axis, Body, Declare, If, Loop, Statement
from tinyhlo.ir.index import Var, index
from tinyhlo.ir.ops import Op
from tinyhlo.numbers import ceil_div, round_up

CHAIN = 64  # additions one after another; the lanes of a block are added up in no time beside them


def in_blocks(body: Body, moves: list[str]) -> Body:
    """Every long sum below a body in blocks."""
    result: list[Statement] = []
    for statement in body:
        if isinstance(statement, Loop):
            statement = blocked(statement, moves)
        result.append(inside(statement, lambda inner: in_blocks(inner, moves)))
    return tuple(result)


def blocked(loop: Loop, moves: list[str], pieces: int = 1) -> Loop:
    """The loop in blocks where a sum is long, even in so many pieces, each of as many blocks."""
    whole = loop.axis is Axis.REDUCE and loop.count is None
    if whole and max(additions((loop,)).values(), default=0) > 2 * pieces * CHAIN:
        return blocked(cut(loop, moves, pieces), moves, pieces)
    return loop


def cut(loop: Loop, moves: list[str], pieces: int) -> Loop:
    """Blocks of a chain's length, each with sums of its own."""
    turns = ceil_div(loop.var.extent, loop.width)
    each = max(1, CHAIN * turns // max(additions((loop,)).values()))
    blocks = round_up(ceil_div(turns, each), pieces)
    each = ceil_div(turns, blocks) * loop.width
    moves.append(f"blocks {loop.var.name}/{each}")
    types = {s.name: s.value.dtype for s in below(loop.body) if isinstance(s, Accumulate)}
    own = {name: f"{name}_{loop.var.name}" for name in additions((loop,))}

    def renamed(name: str) -> str:
        return own.get(name, name)

    block = Var(f"{loop.var.name}_block", ceil_div(loop.var.extent, each))
    part = replace(
        loop,
        body=tuple(rewritten(s, lambda e: e, name_of=renamed) for s in loop.body),
        start=index(block) * each,
        count=each,
    )
    declares = (Declare(new, identity(Op.ADD, types[name])) for name, new in own.items())
    joins = (Accumulate(name, Op.ADD, Read(new, types[name])) for name, new in own.items())
    return Loop(block, Axis.REDUCE, (*declares, part, *joins))


def additions(body: Body) -> Counter[str]:
    """How many additions a body makes, one after another, to each sum of floats in it."""
    found: Counter[str] = Counter()
    for statement in body:
        match statement:
            case Accumulate(name=name, op=Op.ADD, value=value) if value.dtype.is_float:
                found[name] += 1
            case Loop(body=inner):
                turns = ceil_div(statement.trip_count, statement.width)
                found.update({name: count * turns for name, count in additions(inner).items()})
            case If(body=inner):
                found.update(additions(inner))
    for declare in body:
        if isinstance(declare, Declare):
            found.pop(declare.name, None)
    return found
