"""A move for loops that ask for a remainder: as many elements a turn as there are remainders.

    for i in 1399:                                            for i in 699:
      y[i] = (0 <= i%2 < 1 ? x[i//2] : 0.0)           ->        y[i*2] = x[i]
                                                                y[i*2 + 1] = 0.0
                                                              y[1398] = x[699]

Padding between elements and interleaved arrays (`lax.associative_scan`, gradients of strided
slices) are such loops. Then turns run in lanes: quotients become strides, remainders are known.
Sums of a few terms are written out, and those terms left out that are zero then: where windows of
a gradient of pooling do not overlap, that is all but one.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyhlo.codegen.bodies import all_indices, values_in
from tinyhlo.codegen.expressions import Expression, Literal, Read, apply, identity
from tinyhlo.codegen.loops import Accumulate, Axis, Body, Declare, Loop, Statement, Store, nested
from tinyhlo.codegen.moves.basic import over_nests
from tinyhlo.codegen.moves.write_out import MOST_NODES as WRITTEN_OUT
from tinyhlo.codegen.moves.write_out import Done, decided, is_tiny, iterations
from tinyhlo.codegen.walks import walk
from tinyhlo.ir.index import Index, Quotient, Remainder, Var, constant, index, substitute
from tinyhlo.target import NEAR, Target

MOST_NODES = 128  # of the expressions of all remainders
MOST_SUMMED = 768  # of those of sums, most of whose terms are left out


def by_remainders(body: Body, target: Target, moves: list[str]) -> Body:
    """The innermost loops of all nests that only store, or sums of a few terms."""

    def takes(body: Body) -> bool:
        sums = [s for s in body if isinstance(s, Loop)]
        return all(s.axis is Axis.REDUCE and is_tiny(s, target, WRITTEN_OUT) for s in sums)

    return over_nests(body, lambda nest: in_turns(nest, target, moves), takes)


def in_turns(nest: Sequence[Loop], target: Target, moves: list[str]) -> Body:
    """The nest with `modulus` elements a turn; nothing where there is no such number, or too few
    turns for a vector."""
    *outer, var = (loop.var for loop in nest)
    moduli = set[int]().union(*(moduli_of(where, var) for where in all_indices(nest[-1].body)))
    modulus = moduli.pop() if len(moduli) == 1 else 0
    if not 2 <= modulus <= NEAR:
        return ()
    body: list[Statement] = []
    for statement in nest[-1].body:
        body += iterations(statement, {}, {}) if isinstance(statement, Loop) else [statement]
    if not all(isinstance(statement, (Declare, Accumulate, Store)) for statement in body):
        return ()
    nodes = sum(1 for _ in walk(value for s in body for value in values_in(s)))
    if modulus * nodes > (MOST_NODES if len(body) == len(nest[-1].body) else MOST_SUMMED):
        return ()
    count, rest = divmod(var.extent, modulus)
    if count < target.short_lanes(32):
        return ()
    moves.append(f"turns of {modulus} {var.name}")
    turn = Var(var.name, count)
    each = at(body, var, [index(turn) * modulus + k for k in range(modulus)])
    last = at(body, var, [constant(count * modulus + k) for k in range(rest)])
    return nested(outer, (*nested([turn], each), *last))


def at(body: Sequence[Statement], var: Var, places: Sequence[Index]) -> Body:
    """What is stored, with each of the places for a variable."""
    result: list[Store] = []
    for place in places:
        values = {var: place}
        registers: Done = {}
        neutral: set[Expression] = set()  # sums that a zero changes nothing of: they are never -0.0
        for statement in body:
            done = dict(registers)
            match statement:
                case Declare(name=name, value=value):
                    registers[Read(name, value.dtype)] = decided(value, values, {}, done)
                    neutral |= {Read(name, value.dtype)} if isinstance(value, Literal) else set()
                case Accumulate(name=name, op=op, value=value):
                    term, read = decided(value, values, {}, done), Read(name, value.dtype)
                    if term is not identity(op, value.dtype) or read not in neutral:
                        registers[read] = apply(op, (registers[read], term), value.dtype)
                case Store(memory=memory, index=where, value=value):
                    value = decided(value, values, {}, done)
                    result.append(Store(memory, substitute(where, values), value))
                case _:
                    raise TypeError(statement)
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
