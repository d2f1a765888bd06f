"""A move for loops that ask for a remainder: as many elements a turn as there are remainders.

    for i in 1399:                                            for i in 699:
      y[i] = (0 <= i%2 < 1 ? x[i//2] : 0.0)           ->        y[i*2] = x[i]
                                                                y[i*2 + 1] = 0.0
                                                              y[1398] = x[699]

Padding between elements and interleaved arrays (`lax.associative_scan`, gradients of strided
slices) are such loops. Then turns run in lanes: quotients become strides, remainders are known.
Sums take as many terms a turn (codes of 4 bits in a product). Those of a few terms are written out,
and terms left out that are zero then: where windows of a gradient of pooling do not overlap, that
is all but one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from math import gcd, lcm

from tinyhlo.codegen.bodies import all_indices, inside, only_sums, values_in
from tinyhlo.codegen.expressions import Guard, apply, exchanged
from tinyhlo.codegen.loops import (
    Accumulate,
    Axis,
    Body,
    Declare,
    Loop,
    Statement,
    Store,
    nested,
)
from tinyhlo.codegen.moves.basic import over_nests
from tinyhlo.codegen.moves.borders import holds
from tinyhlo.codegen.moves.write_out import MOST_NODES as WRITTEN_OUT
from tinyhlo.codegen.moves.write_out import (
    is_tiny,
    uses_registers,
    without_registers,
    written_out,
)
from tinyhlo.codegen.walks import walk
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.index import Index, Quotient, Remainder, Var, atoms_of, constant, index
from tinyhlo.target import NEAR, Target

MOST_UNDECIDED = 768  # expressions of all remainders, before those are left out that are zero
MOST_NODES = 256  # and after
END_TURNS = 2  # that are written out, at either end


def by_remainders(body: Body, target: Target, moves: list[str]) -> Body:
    """The innermost loops of all nests that only store, or sums of a few terms."""

    def takes(body: Body) -> bool:
        sums = [s for s in body if isinstance(s, Loop)]
        return all(s.axis is Axis.REDUCE and is_tiny(s, target, WRITTEN_OUT) for s in sums)

    return over_nests(
        sums_in_turns(body, target, moves), lambda n: in_turns(n, target, moves), takes
    )


def sums_in_turns(body: Body, target: Target, moves: list[str]) -> Body:
    """The innermost sums below a body."""
    result: list[Statement] = []
    for statement in body:
        statement = inside(statement, lambda inner: sums_in_turns(inner, target, moves))
        if isinstance(statement, Loop) and statement.axis is Axis.REDUCE:
            statement = sum_in_turns(statement, target, moves)
        result.append(statement)
    return tuple(result)


def sum_in_turns(loop: Loop, target: Target, moves: list[str]) -> Loop:
    """The sum with `modulus` terms a turn."""
    var, terms = loop.var, only_sums(loop.body)
    modulus = lcm(*(remainders_of(where, var) for where in all_indices(loop.body)))
    count, rest = divmod(var.extent, modulus)
    if len(terms) < len(loop.body) or not 2 <= modulus <= NEAR or rest or loop.count is not None:
        return loop
    if count < target.short_lanes(32) or modulus * count_nodes(terms) > MOST_NODES:
        return loop
    turn = Var(var.name, count)
    places = [{var: index(turn) * modulus + k} for k in range(modulus)]
    body: list[Statement] = []
    for s in terms:
        first, *others = (exchanged(s.value, {}, values) for values in places)
        value = reduce(lambda a, b, s=s: apply(s.op, (a, b), s.value.dtype), others, first)
        body.append(replace(s, value=value))
    moves.append(f"turns of {modulus} {var.name}")
    return replace(loop, var=turn, body=tuple(body))


def in_turns(nest: Sequence[Loop], target: Target, moves: list[str]) -> Body:
    """The nest with `modulus` elements a turn of its last loop, or of one further out that bounds
    depend on; nothing where there is no such number, or too few turns for a vector."""
    if not divides(nest[-1].body) or uses_registers(nest[-1]):
        return ()
    body = written_out(nest[-1].body)
    if not all(isinstance(statement, (Declare, Accumulate, Store)) for statement in body):
        return ()
    variables = [loop.var for loop in nest]
    bounds = [condition.index for condition in conditions_in(body)]
    asked = (k for k, var in enumerate(variables) if turn_of(bounds, var) > 1)
    divided = (k for k, var in enumerate(variables) if turn_of(all_indices(body), var) > 1)
    place = max(asked, default=max(divided, default=len(variables) - 1))
    outer, var, inner = variables[:place], variables[place], variables[place + 1 :]
    modulus = turn_of(all_indices(body), var)
    row = row_of(body, var) if modulus > NEAR else 0
    if row:
        outer.append(Var(f"{var.name}_row", var.extent // row))
        column = Var(var.name, row)
        body = list(at(body, var, [index(outer[-1]) * row + index(column)]))
        var, modulus = column, turn_of(all_indices(body), column)
    if not 2 <= modulus <= NEAR or modulus * count_nodes(body) > MOST_UNDECIDED:
        return ()
    count = var.extent // modulus
    if not inner and count < target.short_lanes(32):
        row = at(body, var, [constant(k) for k in range(var.extent)])
        if count_nodes(row) > WRITTEN_OUT:
            return ()
        moves.append(f"write out {var.name} {var.extent}")
        return nested(outer, row)
    turn = Var(var.name, count)
    each = at(body, var, [index(turn) * modulus + k for k in range(modulus)])
    if count_nodes(each) > MOST_NODES:
        return ()
    moves.append(f"turns of {modulus} {var.name}")
    start, stop = (0, count) if inner else alike(each, turn, target)
    first = at(body, var, [constant(k) for k in range(start * modulus)])
    last = at(body, var, [constant(k) for k in range(stop * modulus, var.extent)])
    if (start, stop) != (0, count):
        turn = Var(var.name, stop - start)
        each = at(body, var, [(index(turn) + start) * modulus + k for k in range(modulus)])
    turns = nested([turn, *inner], each) if count else ()
    ends = (nested(inner, part) if part else () for part in (first, last))
    return nested(outer, (*next(ends), *turns, *next(ends)))


def alike(body: Sequence[Statement], turn: Var, target: Target) -> tuple[int, int]:
    """The turns between the first and the last ones, where these are few, and what bounds decide is
    the same for all in between: they need no masks."""
    count = turn.extent
    ends = {end for condition in conditions_in(body) for end in holds(condition, turn)}
    start = max((end for end in ends if 0 < end <= END_TURNS), default=0)
    stop = min((end for end in ends if count - END_TURNS <= end < count), default=count)
    within = any(start < end < stop for end in ends)
    return (0, count) if within or stop - start < target.short_lanes(32) else (start, stop)


def divides(body: Body) -> bool:
    """Whether an index has a quotient or a remainder in it."""
    atoms = (atom for where in all_indices(body) for atom, _ in where.terms)
    return any(isinstance(atom, (Quotient, Remainder)) for atom in atoms)


def turn_of(indices: Iterable[Index], var: Var) -> int:
    return lcm(*(modulus_of(where, var) for where in indices))


def conditions_in(body: Sequence[Statement]) -> Iterator[Condition]:
    """What guards ask."""
    for e in walk(value for s in body for value in values_in(s)):
        if isinstance(e, Guard):
            yield from e.conditions


def row_of(body: Sequence[Statement], var: Var) -> int:
    """The length of the rows that a loop walks one after the other as if they were one, whose
    columns are told apart again in an index: `k%64`. 0 where there are none."""
    found = {
        atom.modulus
        for where in all_indices(body)
        for atom in atoms_of(where)
        if isinstance(atom, Remainder) and atom.dividend == index(var)
    }
    row = min((modulus for modulus in found if modulus > NEAR), default=0)
    return row if row and var.extent % row == 0 else 0


def count_nodes(body: Sequence[Statement]) -> int:
    return sum(1 for _ in walk(value for s in body for value in values_in(s)))


def at(body: Sequence[Statement], var: Var, places: Sequence[Index]) -> Body:
    """The stores of a body for each of the places of a variable."""
    return tuple(s for place in places for s in without_registers(body, {var: place}))


def remainders_of(where: Index, var: Var) -> int:
    """How many values of `var` there are between two with the same small remainders."""
    found = [1]
    for atom, _ in where.terms:
        if isinstance(atom, Remainder) and atom.modulus <= NEAR:
            step = atom.dividend.coefficient(var) or 0
            found.append(atom.modulus // gcd(step, atom.modulus))
    return lcm(*found)


@lru_cache(maxsize=4096)
def modulus_of(where: Index, var: Var) -> int:
    """How many values of `var` in a row it takes until every quotient and remainder in an index
    goes up by as much as it did before: `(i//2 + 1)//2` needs four."""
    found = [1]
    for atom, _ in where.terms:
        match atom:
            case (
                Quotient(dividend=inner, divisor=number) | Remainder(dividend=inner, modulus=number)
            ):
                if var not in atom.free:
                    continue
                period = modulus_of(inner, var)
                if not (period == 1 and (inner.coefficient(var) or 0) % number == 0):
                    period *= number
                found.append(period)
            case _:
                pass
    return lcm(*found)
