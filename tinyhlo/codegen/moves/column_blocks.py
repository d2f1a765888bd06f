"""Several passes over columns, a block of them at a time, each pass in the order of memory.

In: a loop over columns that runs in lanes, with passes over their elements inside. Out: a loop
over blocks; what the passes sum up, and dear values that several of them need, lie in scratch:

    for k in 1024 vector 32:               for block in 4:
      max0 = -inf                            local max0: f32[256], add1: f32[256], row0: f32[65536]
      for j in 256 reduce:                   for k in block*256 .. vector 32: max0[k] = -inf
        max0 = max(max0, x[j,k])             for j in 256 ordered: for k in ...: max0[k] = max(...)
      add1 = 0.0                       ->    for k in ...: add1[k] = 0.0
      for j in 256 reduce:                   for j in 256 ordered: for k in ...:
        add1 += exp(x[j,k] - max0)             row0[j,k] = exp(x[j,k] - max0[k]); add1[k] += ...
      for j in 256:                          for j in 256: for k in ...:
        y[j,k] = exp(...) / add1               y[j,k] = row0[j,k] / add1[k]

Memory is read once, by lines next to each other; later passes find the block in the cache.
"""

from __future__ import annotations

from dataclasses import replace

from tinyhlo.codegen.bodies import values_in
from tinyhlo.codegen.expressions import Read
from tinyhlo.codegen.loops import Allocate, Axis, Body, Declare, Loop, Statement, Store
from tinyhlo.codegen.moves.expansion import Expansion
from tinyhlo.codegen.moves.staging import Stager, is_pass, staged
from tinyhlo.codegen.walks import computed_in, parts, places, walk
from tinyhlo.ir.index import Var, index
from tinyhlo.numbers import ceil_div
from tinyhlo.target import Target

WIDEST, NARROW = 256, 128  # columns: a row of a block is then a few lines of memory in order


def block_columns(body: Body, target: Target, moves: list[str]) -> Body:
    """Turn every loop over columns in lanes with more than one pass."""
    return tuple(visit(statement, target, moves) for statement in body)


def visit(statement: Statement, target: Target, moves: list[str]) -> Statement:
    match statement:
        case Loop(axis=Axis.SERIAL, body=body):
            return replace(statement, body=block_columns(body, target, moves))
        case Loop(axis=Axis.VECTOR, count=None) if has_passes(statement):
            return in_blocks(statement, target.l2_bytes // 2, moves)
        case _:
            return statement


def has_passes(loop: Loop) -> bool:
    """Whether the body consists of registers, results, and passes, one of which follows another."""
    passes = [s for s in loop.body if is_pass(s)]
    flat = all(isinstance(s, (Declare, Store)) or is_pass(s) for s in loop.body)
    return flat and len(passes) > 1 and not places_are_summed_up(loop)


def places_are_summed_up(loop: Loop) -> bool:
    """Whether a place in memory is computed from what a pass sums up, as in x[argmin(y)]: a
    register there is one number a lane, not scratch."""
    inner = (s for each in loop.body for s in (each.body if isinstance(each, Loop) else (each,)))
    values = walk((value for s in inner for value in values_in(s)), below=parts)
    computed = [value for e in values for where in places(e) for value in computed_in(where)]
    return any(isinstance(e, Read) for e in walk(computed, below=parts))


def in_blocks(loop: Loop, budget: int, moves: list[str]) -> Statement:
    """The loop over blocks. Long columns leave room for one turn of lanes only: then what is summed
    up stays in registers."""
    width = columns_of_block(loop, budget)
    number = Var("block", ceil_div(loop.var.extent, width))
    start = index(number) * width

    def over_columns(body: Body) -> Loop:
        return replace(loop, start=start, count=width, body=body)

    lane = index(loop.var) - start
    stager = Stager(budget, moves, lanes=width, lane=lane)
    body = staged(loop.body, stager)
    scratch = [s for s in body if isinstance(s, Allocate)]
    rest = tuple(s for s in body if not isinstance(s, Allocate))
    if width > loop.width:
        moves.append(f"blocks {loop.var.name} {width}")
        expansion = Expansion(over_columns, lane, width)
        rest = expansion.expanded(rest)
        scratch += expansion.scratch
    elif stager.count:
        rest = (over_columns(rest),)
    else:
        return loop
    return Loop(number, Axis.SERIAL, (*scratch, *rest))


def columns_of_block(loop: Loop, budget: int) -> int:
    """As many columns as leave a staged value in the cache."""
    longest = max(s.var.extent for s in loop.body if isinstance(s, Loop))
    fitting = budget // (4 * longest)
    return WIDEST if fitting >= WIDEST else NARROW if fitting >= NARROW else loop.width
