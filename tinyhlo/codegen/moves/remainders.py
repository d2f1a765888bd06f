"""A move for loops that ask for a remainder: as many elements a turn as there are remainders.

    for i in 1399:                                            for i in 699:
      y[i] = (0 <= i%2 < 1 ? x[i//2] : 0.0)           ->        y[i*2] = x[i]
                                                                y[i*2 + 1] = 0.0
                                                              y[1398] = x[699]

Padding between elements and interleaved arrays (`lax.associative_scan`, gradients of strided
slices) are such loops. Then turns run in lanes: quotients become strides, remainders are known.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyhlo.codegen.bodies import all_indices
from tinyhlo.codegen.loops import Body, Loop, Store, nested
from tinyhlo.codegen.moves.basic import over_nests
from tinyhlo.codegen.moves.write_out import Done, decided
from tinyhlo.codegen.walks import walk
from tinyhlo.ir.index import Index, Quotient, Remainder, Var, constant, index, substitute
from tinyhlo.target import NEAR, Target

MOST_NODES = 128  # of the expressions of all remainders


def by_remainders(body: Body, target: Target, moves: list[str]) -> Body:
    """The innermost loops of all nests that only store."""
    return over_nests(body, lambda nest: in_turns(nest, target, moves))


def in_turns(nest: Sequence[Loop], target: Target, moves: list[str]) -> Body:
    """The nest with `modulus` elements a turn; nothing where there is no such number, or too few
    turns for a vector."""
    *outer, var = (loop.var for loop in nest)
    stores = [s for s in nest[-1].body if isinstance(s, Store)]
    moduli = set[int]().union(*(moduli_of(where, var) for where in all_indices(stores)))
    modulus = moduli.pop() if len(moduli) == 1 else 0
    nodes = sum(1 for _ in walk(store.value for store in stores))
    if not 2 <= modulus <= NEAR or modulus * nodes > MOST_NODES:
        return ()
    count, rest = divmod(var.extent, modulus)
    if count < target.short_lanes(32):
        return ()
    moves.append(f"turns of {modulus} {var.name}")
    turn = Var(var.name, count)
    each = at(stores, var, [index(turn) * modulus + k for k in range(modulus)])
    last = at(stores, var, [constant(count * modulus + k) for k in range(rest)])
    return nested(outer, (*nested([turn], each), *last))


def at(stores: Sequence[Store], var: Var, places: Sequence[Index]) -> Body:
    """The stores with each of the places for a variable."""
    result: list[Store] = []
    for place in places:
        values = {var: place}
        done: Done = {}
        for s in stores:
            value = decided(s.value, values, {}, done)
            result.append(Store(s.memory, substitute(s.index, values), value))
    return tuple(result)


def moduli_of(where: Index, var: Var) -> set[int]:
    """What `var` is divided by in an index."""
    found: set[int] = set()
    for atom, _ in where.terms:
        match atom:
            case (
                Quotient(dividend=inner, divisor=number) | Remainder(dividend=inner, modulus=number)
            ):
                found |= moduli_of(inner, var)
                if (inner.coefficient(var) or 0) % number:
                    found.add(number)
            case _:
                pass
    return found
