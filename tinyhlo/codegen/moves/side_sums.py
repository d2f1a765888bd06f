"""Sums that would wait for their own additions, as several side by side.

    for i in 8 vector 8:                    for i in 8 vector 8:
      add0 = 0.0                              add0 = 0.0; add0_1 = 0.0; ...
      for j in 64 reduce:           ->        for j_turn in 8 reduce:
        add0 += (a[j] * b[i + j*8])             add0 += (a[j_turn*8] * b[i + j_turn*64])
                                                add0_1 += (a[j_turn*8 + 1] * b[i + j_turn*64 + 8])
                                                ...
                                              add0 += add0_4; ...; add0 += add0_2; add0 += add0_1

An addition takes four cycles and two may begin in each, so eight of them keep the adders busy:
fewer vectors side by side than that wait, and a row of few columns is one vector. How many sums
there are depends on extents and lanes alone.
"""

from __future__ import annotations

from functools import partial

from tinyhlo.codegen.bodies import changed, inside, only_sums, rewritten, substituted
from tinyhlo.codegen.expressions import Read, identity
from tinyhlo.codegen.loops import Accumulate, Axis, Body, Declare, Loop, Statement
from tinyhlo.codegen.moves.work import cost
from tinyhlo.ir.index import Index, Var, constant, index
from tinyhlo.target import Target

BUSY = 8  # additions under way at a time
LIGHT = 8.0  # operations of a term beyond which a turn hides the latency of its addition
SHORTEST = 16  # terms: the order of shorter sums is that of the program


def side_by_side(body: Body, target: Target, moves: list[str], vectors: int = 0) -> Body:
    """Sums inside of loops in lanes, which have `vectors` side by side."""
    result: list[Statement] = []
    made: set[str] = set()
    for statement in body:
        beside = vectors
        if isinstance(statement, Loop):
            count = sums_of(statement, target, vectors) if vectors else 1
            if count > 1 and made.isdisjoint(names := changed((statement,))):
                made |= names
                moves.append(f"sums {statement.var.name} {count}")
                result.extend(turns(statement, count))
                continue
            beside = statement.chains if statement.width > 1 else vectors
        deeper = partial(side_by_side, target=target, moves=moves, vectors=beside)
        result.append(inside(statement, deeper))
    return tuple(result)


def sums_of(loop: Loop, target: Target, vectors: int) -> int:
    """How many sums a loop shall make of each that it makes."""
    terms = only_sums(loop.body)
    plain = loop.axis is Axis.REDUCE and loop.width == 1 and loop.count is None
    if not (plain and terms) or loop.var.extent < SHORTEST:
        return 1
    if sum(cost(s.value) for s in terms) > LIGHT * len(terms):
        return 1
    count = BUSY // (vectors * len(terms))
    while count > 1 and (loop.var.extent < 2 * count or 2 * count > target.vector_registers):
        count //= 2
    return max(count, 1)


def turns(loop: Loop, count: int) -> Body:
    """A loop that takes `count` terms in a turn, what is left of them, and the sums' sum."""
    terms = [s for s in loop.body if isinstance(s, Accumulate)]
    types = {s.name: s.value.dtype for s in terms}
    whole, rest = divmod(loop.var.extent, count)
    turn = Var(f"{loop.var.name}_turn", whole)

    def own(name: str, k: int) -> str:
        return f"{name}_{k}" if k else name

    def at(k: int, place: Index) -> Body:
        taken = substituted(loop.body, {loop.var: place})
        return tuple(rewritten(s, lambda e: e, name_of=lambda n: own(n, k)) for s in taken)

    declares = [
        Declare(own(s.name, k), identity(s.op, types[s.name]))
        for k in range(1, count)
        for s in terms
    ]
    body = [s for k in range(count) for s in at(k, index(turn) * count + k)]
    last = [s for k in range(rest) for s in at(k, constant(whole * count + k))]
    joins: list[Statement] = []
    while count > 1:
        count //= 2
        joins += [
            Accumulate(own(s.name, k), s.op, Read(own(s.name, k + count), types[s.name]))
            for k in range(count)
            for s in terms
        ]
    return (*declares, Loop(turn, Axis.REDUCE, tuple(body)), *last, *joins)
