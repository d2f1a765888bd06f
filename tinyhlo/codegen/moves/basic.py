"""Moves: small rewrites of a loop nest, each legal or refused.

In: a Body. Out: the rewritten Body. A move changes how iterations run, never what they compute;
loops that must run in order are `Axis.ORDERED` and no move touches them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import prod

from tinyhlo.codegen.bodies import (
    all_indices,
    inside,
    names_in,
    names_set,
    nest_of,
    stores_in,
    substituted,
)
from tinyhlo.codegen.loops import (
    Axis,
    Body,
    Declare,
    Loop,
    Statement,
    Store,
    around,
)
from tinyhlo.ir.index import ZERO, Atom, Index, Var, atoms_of, index, substitute


def join(body: Body) -> Body:
    """Sibling reduces over one range become one loop, where neither needs the other:

       a = 0; for j: a += x[j]; b = 0; for j: b += x[j]*x[j]
    -> a = 0; b = 0; for j: a += x[j]; b += x[j]*x[j]
    """
    joined: list[Statement] = []
    for statement in body:
        statement = inside(statement, join)
        if isinstance(statement, Loop) and statement.axis is Axis.REDUCE:
            place = partner(joined, statement)
            if place is not None:
                first = joined[place]
                assert isinstance(first, Loop)
                both = join((*first.body, *statement.body))
                tail = joined[place + 1 :]
                joined[place:] = [*tail, replace(first, body=both)]
                continue
        joined.append(statement)
    return tuple(joined)


def partner(before: list[Statement], loop: Loop) -> int | None:
    """The last statement of `before` that `loop` can join: only declarations in between."""
    needed = names_in((loop,))
    for place in range(len(before) - 1, -1, -1):
        other = before[place]
        if isinstance(other, Loop):
            one, two = ((s.axis, s.var, s.start, s.count) for s in (other, loop))
            made = names_set((other,))
            free = made.isdisjoint(needed | names_in(before[place + 1 :]))
            return place if one == two and free and not stores_in((other, loop)) else None
        if not isinstance(other, Declare):
            return None
    return None


def collapse(body: Body) -> Body:
    """Two perfectly nested loops become one where every index walks them as one range."""
    return tuple(map(collapse_statement, body))


def collapse_statement(statement: Statement) -> Statement:
    """Of a nest, what walks as one range at once, with one rewriting of its body; then by twos."""
    nest = nest_of(statement, Axis.SERIAL) or nest_of(statement, Axis.REDUCE)
    if not nest:
        return inside(statement, collapse)
    body = collapse(nest[-1].body)
    places = set(all_indices(body))
    groups: list[list[Var]] = []  # the innermost first
    for loop in reversed(nest):
        if groups and is_one_range([loop.var, *groups[-1]], places):
            groups[-1].insert(0, loop.var)
        else:
            groups.append([loop.var])
    ranges = [Var("".join(var.name for var in g), prod(var.extent for var in g)) for g in groups]
    values = {var: ZERO for group in groups for var in group}
    values |= {group[-1]: index(one) for group, one in zip(groups, ranges, strict=True)}
    if len(groups) < len(nest):
        body = substituted(body, values)
    for one in ranges:
        body = (collapse_two(Loop(one, nest[0].axis, body)),)
    return body[0]


def is_one_range(variables: Sequence[Var], places: Iterable[Index]) -> bool:
    """Whether every index walks the first variable and all others, which are one range for it, as
    one range."""
    outer, *others = variables
    extent = prod(var.extent for var in others)
    for where in places:
        step, inner = where.coefficient(outer), where.coefficient(others[-1])
        if step is None or inner is None or step != inner * extent:
            return False
    return True


def collapse_two(loop: Loop, bounded: bool = False) -> Loop:
    """A loop and the one in it as one, where quotients of indices go away by that, too; `bounded`:
    also where bounds are asked for sums of the outer variable and others."""
    inner = loop.body[0]
    if len(loop.body) != 1 or not nest_of(inner, loop.axis):
        return loop
    places = set(all_indices(inner.body))
    if any(is_apart(where, loop.var, inner.var, bounded) for where in places):
        return loop
    whole = Var(f"{loop.var.name}{inner.var.name}", loop.var.extent * inner.var.extent)
    quotient, remainder = index(whole) // inner.var.extent, index(whole) % inner.var.extent
    values = {loop.var: quotient, inner.var: remainder}
    atoms = {atom for place in (quotient, remainder) for atom, _ in place.terms}
    changed = {substitute(where, values) for where in places}
    left = [where for where in changed if mentions(where, atoms)]
    if not bounded and any(where.terms != quotient.terms for where in left):
        return loop
    body = substituted(inner.body, values)  # a condition on a quotient is one on the whole
    if left and any(mentions(where, atoms) for where in set(all_indices(body))):
        return loop
    return Loop(whole, loop.axis, body)


def is_apart(where: Index, outer: Var, inner: Var, bounded: bool) -> bool:
    """Whether an index says at once that it does not walk two loops as one range, nor asks for
    bounds."""
    step, unit = where.coefficient(outer), where.coefficient(inner)
    if step is None or unit is None or where.terms == index(outer).terms:
        return False
    return step != unit * inner.extent and not (bounded and step == 1 and unit == 0)


def mentions(where: Index, atoms: set[Atom]) -> bool:
    """Whether one of `atoms` occurs in an index."""
    return any(atom in atoms for atom in atoms_of(where))


def stores_alone(body: Body) -> bool:
    return all(isinstance(s, Store) for s in body)


def over_nests(
    body: Body,
    move: Callable[[Sequence[Loop]], Body],
    takes: Callable[[Body], bool] = stores_alone,
) -> Body:
    """`move` applied to every nest of loops whose innermost body it takes; what it gives back
    replaces the nest, unless it is nothing."""
    result: list[Statement] = []
    for statement in body:
        nest = nest_of(statement, Axis.SERIAL)
        if not nest:
            result.append(statement)
        elif takes(nest[-1].body):
            result += move(nest) or [statement]
        else:
            result += around(nest, over_nests(nest[-1].body, move, takes))
    return tuple(result)
