"""A move for padded values: loops are cut where padding begins and ends.

    for i in 1006:                                            for i in 3: y[i] = 0.0
      y[i] = (0 <= i + -3 < 1000 ? x[i + -3] : 0.0)    ->     for i in 1000: y[i + 3] = x[i]
                                                              for i in 3: y[i + 1003] = 0.0

Between the cuts a condition holds or does not: no lane is masked, and what is left is often a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import prod

from tinyhlo.codegen.expressions import Guard
from tinyhlo.codegen.loops import Body, Loop, Statement, Store, nested
from tinyhlo.codegen.moves.basic import over_nests
from tinyhlo.codegen.moves.write_out import Done, decided
from tinyhlo.codegen.walks import walk
from tinyhlo.ir.index import Condition, Var, index, substitute

FEWEST = 1 << 12  # elements: below, more loops cost more time than they save
MOST_PARTS = 4  # of one loop
MOST_NODES = 64  # of the expressions, which every part repeats


def cut_at_padding(body: Body, moves: list[str]) -> Body:
    """Cut the loops of every nest that only stores."""
    return over_nests(body, lambda nest: segments(nest, moves))


def segments(nest: Sequence[Loop], moves: list[str]) -> Body:
    """The parts of a nest; nothing where it has one."""
    variables = [loop.var for loop in nest]
    stores = [s for s in nest[-1].body if isinstance(s, Store)]
    if prod(v.extent for v in variables) < FEWEST:
        return ()
    conditions, nodes = conditions_of(stores)
    cut = [v for v in variables if len(ends_of(conditions, v)) > 2]
    if not cut or nodes > MOST_NODES:
        return ()
    moves.append("cut " + " ".join(v.name for v in cut))
    return parts(variables, stores)


def parts(variables: Sequence[Var], stores: Sequence[Store]) -> Body:
    """Loops over `variables` around the stores, cut from the outermost on."""
    if not variables:
        return tuple(stores)
    var, *rest = variables
    ends = ends_of(conditions_of(stores)[0], var)
    result: list[Statement] = []
    for start, stop in pairwise(ends):
        part = Var(var.name, stop - start)
        place = {var: index(part) + start}
        done: Done = {}
        here = [
            Store(s.memory, substitute(s.index, place), decided(s.value, place, {}, done))
            for s in stores
        ]
        result += nested([part], parts(rest, here))
    return tuple(result)


def ends_of(conditions: Iterable[Condition], var: Var) -> list[int]:
    """Where parts of a loop begin and end, in order: conditions on its variable alone count."""
    ends = {0, var.extent}
    for condition in conditions:
        if condition.index.terms == ((var, 1),):
            ends |= {
                condition.low - condition.index.offset,
                condition.high - condition.index.offset,
            }
    inside = sorted(end for end in ends if 0 <= end <= var.extent)
    return inside if len(inside) <= MOST_PARTS + 1 else [0, var.extent]


def conditions_of(stores: Iterable[Store]) -> tuple[list[Condition], int]:
    """(conditions of all guards, how many expressions there are)"""
    nodes = list(walk(store.value for store in stores))
    return [c for e in nodes if isinstance(e, Guard) for c in e.conditions], len(nodes)
