"""Which loops run on all threads, and in how many pieces.

    for i in 100000 vector 16: ...      ->  for i_strip in 28 parallel: for i in i_strip*3584 ..
    sum = 0; for j in ... reduce: ...   ->  a sum of each strip, in parallel; then the sum of these

Those of a sum depend on extents alone, so results are the same bits on any number of threads. More
threads have more pieces of the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tinyhlo.codegen.bodies import accumulates, below, changed, names_in, names_set
from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.expressions import Load, Memory, Read, identity
from tinyhlo.codegen.loops import (
    Accumulate,
    Allocate,
    Axis,
    Bind,
    Body,
    Declare,
    If,
    Loop,
    Statement,
    Store,
)
from tinyhlo.codegen.moves.long_sums import blocked
from tinyhlo.codegen.moves.work import misses, words, work_once
from tinyhlo.ir.index import ZERO, Index, Var, index, unravel
from tinyhlo.numbers import ceil_div, round_up
from tinyhlo.target import Target

PARALLEL_WORK = 1 << 17  # operations below which a fork costs more than it saves
MISS = 8.0  # operations that a line from beyond the second cache takes the time of
UNSURE = 16  # times as much or as little work: a search may find out what is better
STRIPS = 32  # pieces of a long loop: enough to balance, few enough to keep vectors long
FEWEST_A_THREAD = 2  # of such pieces
SMALL_STRIP = 512


def parallelised(body: Body, least: float, target: Target, moves: Moves) -> Body:
    """Run top-level loops with at least so much work on all threads. One thread takes the same
    strips, so that results are the same bits on any number of threads."""
    result: list[Statement] = []
    for statement in body:
        if isinstance(statement, Loop) and statement.axis is Axis.PARALLEL:  # it came so
            moves.append(f"parallel {statement.var.name}")
            result.append(statement)
        elif not isinstance(statement, Loop) or not is_shared(statement, least, target, moves):
            result.append(statement)
        elif statement.axis in (Axis.SERIAL, Axis.VECTOR):
            result.append(parallel(statement, strips_for(target), moves))
        elif statement.axis is Axis.REDUCE and can_split(statement, result):
            result = with_strips(result, statement, moves)
        else:
            result.append(statement)
    return tuple(result)


def with_strips(before: list[Statement], reduce: Loop, moves: list[str]) -> list[Statement]:
    """A reduce in strips, after the statements `before` it. Those that start its accumulators move
    behind the strips, which are then joined into them."""
    loop = blocked(reduce, moves, STRIPS)
    names = changed((loop,))
    starts = [s for s in before if names & names_set((s,))]
    declares = [s for s in starts if isinstance(s, Declare)]
    sums = [s for s in starts if not isinstance(s, Declare)]
    length = strip_length(loop)
    moves.append(f"parallel {loop.var.name}/{length}")
    parts, strips, join = split_reduce(declares, loop, length)
    return [*(s for s in before if s not in starts), *parts, strips, *declares, *sums, join]


def is_shared(loop: Loop, least: float, target: Target, moves: Moves) -> bool:
    """Whether the threads share a loop; either way where there is about as much work as that
    takes."""
    amount = work_once((loop,)) * words(loop) + MISS * misses(loop, target.l2_bytes)
    worth = amount >= least
    if not least / UNSURE <= amount <= least * UNSURE:
        return worth
    answers = {"all": True, "one": False} if worth else {"one": False, "all": True}
    return moves.choose(f"threads {loop.var.name}", answers)


def strips_for(target: Target) -> int:
    """Pieces of a loop whose turns do not depend on each other: a multiple of the threads."""
    threads = target.threads
    return round_up(max(STRIPS, FEWEST_A_THREAD * threads), threads)


def parallel(loop: Loop, strips: int, moves: list[str]) -> Loop:
    """The loop itself when it has no lanes and enough turns, else its strips or pieces. A loop in
    lanes of few turns goes inside of the one that it repeats."""
    inner = only_loop(loop) if loop.axis is Axis.VECTOR else None
    few = loop.var.extent < strips * loop.width
    if inner and inner.axis is Axis.SERIAL and few:
        loop = replace(inner, body=(replace(loop, body=inner.body),))
    if loop.axis is Axis.SERIAL and loop.var.extent >= 2:
        if loop.var.extent < strips and (pieces := in_pieces(loop, strips, moves)):
            return pieces
        moves.append(f"parallel {loop.var.name}")
        return replace(loop, axis=Axis.PARALLEL)
    length = strip_length(loop, strips)
    if length >= loop.var.extent:
        return loop
    moves.append(f"parallel {loop.var.name}/{length}")
    return in_strips(loop, length)


def in_pieces(loop: Loop, strips: int, moves: list[str]) -> Loop | None:
    """A loop of few turns around nothing but another, whose strips are shared as well.

    for i in 8:               for ij_piece in 32 parallel:
      for j in 100: ...   ->    i = ij_piece//4
                                for j in ij_piece%4*25 .. +25 of 100: ...
    """
    outer, inner, turns = [loop], only_loop(loop), loop.var.extent
    while inner and turns * inner.var.extent < strips and (next_ := only_loop(inner)):
        outer.append(inner)
        turns, inner = turns * inner.var.extent, next_
    if inner is None:
        return None
    length = strip_length(inner, ceil_div(strips, turns))
    count = ceil_div(inner.var.extent, length)
    if count < 2:
        return None
    piece = Var("".join(each.var.name for each in (*outer, inner)) + "_piece", turns * count)
    *places, strip = unravel(index(piece), (*(each.var.extent for each in outer), count))
    binds = [Bind(each.var, place) for each, place in zip(outer, places, strict=True)]
    moves.append(f"parallel {piece.name}/{length}")
    part = replace(inner, start=strip * length, count=length)
    return Loop(piece, Axis.PARALLEL, (*binds, part))


def only_loop(loop: Loop) -> Loop | None:
    """The loop inside of one, where that is all that it repeats, and runs over all of its range."""
    match loop.body:
        case (Loop(axis=Axis.SERIAL | Axis.VECTOR, count=None) as inner,):
            return inner
        case _:
            return None


def strip_length(loop: Loop, strips: int = STRIPS) -> int:
    """A multiple of the vector width that gives about so many strips."""
    unit = max(loop.width, 1)
    if loop.axis is Axis.VECTOR and not any(isinstance(s, Loop) for s in loop.body):
        unit = round_up(SMALL_STRIP, unit)
    return round_up(ceil_div(loop.var.extent, strips), unit)


def can_split(loop: Loop, before: list[Statement]) -> bool:
    """Whether a reduce may run in strips: there is nothing below it but accumulations and rows kept
    in scratch, and what was done before with its accumulators may move behind it."""
    if not all(is_accumulation(s) or is_kept(s) for s in below(loop.body)):
        return False
    names = changed((loop,))
    declared = {s.name: s for s in before if isinstance(s, Declare)}
    if not names <= declared.keys():
        return False
    others = [s for s in before if not isinstance(s, Declare)]
    started = tuple(s for s in others if names & names_set((s,)))
    plain = all(map(is_accumulation, below(started))) and changed(started) <= names
    return plain and names.isdisjoint(names_in(others))


def is_accumulation(statement: Statement) -> bool:
    return isinstance(statement, (Accumulate, Declare, Loop, If))


def is_kept(statement: Statement) -> bool:
    """A store to scratch that a later pass reads again (`staging.py`); each strip has its own."""
    return isinstance(statement, Store) and statement.memory.local


def in_strips(loop: Loop, length: int) -> Loop:
    """Split a loop into strips that run in parallel; the loop itself keeps its meaning."""
    count = ceil_div(loop.var.extent, length)
    strip = Var(f"{loop.var.name}_strip", count)
    inner = replace(loop, start=index(strip) * length, count=length)
    return Loop(strip, Axis.PARALLEL, (inner,))


def split_reduce(
    declares: Sequence[Declare], loop: Loop, length: int, column: Var | None = None
) -> tuple[Body, Loop, Loop]:
    """A reduce, or that of a column, in parallel: scratch, the strips, each with accumulators of
    its own, and how these are joined in order. The number of strips does not depend on the number
    of threads, so the result does not either."""
    count = ceil_div(loop.var.extent, length)
    strip = Var(f"{loop.var.name}_strip", count)
    size = 1 if column is None else column.extent
    place = index(strip) * size + (ZERO if column is None else index(column))
    inner = replace(loop, start=index(strip) * length, count=length)
    parts, kept, joined = kept_apart(declares, inner, count * size, place, place)
    return parts, Loop(strip, Axis.PARALLEL, kept), Loop(strip, Axis.REDUCE, joined)


def kept_apart(
    declares: Sequence[Declare], part: Loop, size: int, place: Index, again: Index
) -> tuple[Body, Body, Body]:
    """Scratch of so many accumulators; a part of a reduce with its own, which it keeps at `place`;
    and how those that lie at `again` are joined into `declares`."""
    ops = {s.name: s.op for s in accumulates((part,))}
    reads = {d.name: Read(d.name, d.value.dtype) for d in declares}
    parts = {n: Memory(f"{n}_parts", own.dtype, size, local=True) for n, own in reads.items()}
    starts = (Declare(name, identity(ops[name], own.dtype)) for name, own in reads.items())
    stores = (Store(parts[name], place, own) for name, own in reads.items())
    joined = tuple(Accumulate(name, ops[name], Load(parts[name], again)) for name in reads)
    return tuple(map(Allocate, parts.values())), (*starts, part, *stores), joined
