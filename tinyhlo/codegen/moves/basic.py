"""Moves: small rewrites of a loop nest, each legal or refused.

In: a Body. Out: the rewritten Body. A move changes how iterations run, never what they compute;
loops that must run in order are `Axis.ORDERED` and no move touches them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tinyhlo.codegen.expressions import (
    NOTHING,
    Expression,
    Guard,
    IndexValue,
    Load,
    Memory,
    Name,
    Read,
    index_free,
    substitute_expression,
    walk,
)
from tinyhlo.codegen.identities import identity
from tinyhlo.codegen.loops import (
    Accumulate,
    Allocate,
    Assign,
    Axis,
    Bind,
    Body,
    Declare,
    If,
    Loop,
    Statement,
    Store,
    TileProduct,
)
from tinyhlo.ir.index import Atom, Condition, Index, Var, index, substitute
from tinyhlo.ir.ops import Op


def names_in(statement: Statement) -> frozenset[Name]:
    """Variables and registers that a statement reads."""
    match statement:
        case Declare(value=value) | Accumulate(value=value):
            return value.free
        case Assign(values=values):
            return frozenset().union(*(value.free for value in values))
        case Store(index=where, value=value):
            return value.free | index_free(where)
        case Loop(body=body, start=start):
            return index_free(start).union(*map(names_in, body))
        case If(conditions=conditions, body=body):
            return frozenset().union(
                *(index_free(c.index) for c in conditions), *map(names_in, body)
            )
        case Bind(index=where):
            return index_free(where)
        case TileProduct(indices=indices):
            return NOTHING.union(*map(index_free, indices))
        case Allocate():
            return frozenset()


def names_set(statement: Statement) -> frozenset[str]:
    """Registers that a statement declares or changes."""
    match statement:
        case Declare(name=name) | Accumulate(name=name):
            return frozenset((name,))
        case Assign(names=names):
            return frozenset(names)
        case Loop(body=body) | If(body=body):
            return frozenset().union(*map(names_set, body))
        case _:
            return frozenset()


def stores_to(statement: Statement) -> bool:
    match statement:
        case Store():
            return True
        case Loop(body=body) | If(body=body):
            return any(map(stores_to, body))
        case _:
            return False


def join(body: Body) -> Body:
    """Sibling reduces over one range become one loop, where neither needs the other:

       a = 0; for j: a += x[j]; b = 0; for j: b += x[j]*x[j]
    -> a = 0; b = 0; for j: a += x[j]; b += x[j]*x[j]
    """
    joined: list[Statement] = []
    for statement in body:
        if isinstance(statement, (Loop, If)):
            statement = replace(statement, body=join(statement.body))
        if isinstance(statement, Loop) and statement.axis is Axis.REDUCE:
            place = partner(joined, statement)
            if place is not None:
                first = joined[place]
                assert isinstance(first, Loop)
                both = join_bodies(first.body, statement.body)
                tail = joined[place + 1 :]
                joined[place:] = [*tail, replace(first, body=both)]
                continue
        joined.append(statement)
    return tuple(joined)


def join_bodies(first: Body, second: Body) -> Body:
    """Bodies of two joined loops; loops inside them that match join in turn."""
    return join((*first, *second))


def partner(before: list[Statement], loop: Loop) -> int | None:
    """The last statement of `before` that `loop` can join: only declarations in between."""
    needed = names_in(loop)
    for place in range(len(before) - 1, -1, -1):
        other = before[place]
        if isinstance(other, Loop):
            same = other.axis is loop.axis and other.var == loop.var and other.start == loop.start
            free = needed.isdisjoint(names_set(other)) and not stores_to(other)
            between = before[place + 1 :]
            moved = all(names_set(other).isdisjoint(names_in(s)) for s in between)
            return place if same and free and moved and not stores_to(loop) else None
        if not isinstance(other, Declare):
            return None
    return None


def rewrite_body(body: Body, values: dict[Var, Index]) -> Body:
    """Loop variables replaced in every index of `body`."""
    done: dict[Expression, Expression] = {}

    def value_of(value: Expression) -> Expression:
        return substitute_expression(value, values, done)

    def rewrite(statement: Statement) -> Statement:
        match statement:
            case Declare(name=name, value=value):
                return Declare(name, value_of(value))
            case Accumulate(name=name, op=op, value=value):
                return Accumulate(name, op, value_of(value))
            case Assign(names=names, values=several):
                return Assign(names, tuple(map(value_of, several)))
            case Store(memory=memory, index=where, value=value):
                return Store(memory, substitute(where, values), value_of(value))
            case Loop(body=inner, start=start):
                return replace(
                    statement, body=tuple(map(rewrite, inner)), start=substitute(start, values)
                )
            case If(conditions=conditions, body=inner):
                held = tuple(
                    Condition(substitute(c.index, values), c.low, c.high) for c in conditions
                )
                return If(held, tuple(map(rewrite, inner)))
            case Bind(var=var, index=where):
                return Bind(var, substitute(where, values))
            case TileProduct():
                return statement.substitute(values)
            case Allocate():
                return statement

    return tuple(map(rewrite, body))


def collapse(body: Body) -> Body:
    """Two perfectly nested loops become one where every index walks them as one range."""
    return tuple(map(collapse_statement, body))


def collapse_statement(statement: Statement) -> Statement:
    if isinstance(statement, (Loop, If)):
        statement = replace(statement, body=collapse(statement.body))
    if not isinstance(statement, Loop) or len(statement.body) != 1:
        return statement
    inner = statement.body[0]
    if not isinstance(inner, Loop) or inner.axis is not statement.axis:
        return statement
    if statement.axis not in (Axis.SERIAL, Axis.REDUCE):
        return statement
    whole = Var(f"{statement.var.name}{inner.var.name}", statement.var.extent * inner.var.extent)
    quotient, remainder = index(whole) // inner.var.extent, index(whole) % inner.var.extent
    new = rewrite_body(inner.body, {statement.var: quotient, inner.var: remainder})
    atoms = {atom for place in (quotient, remainder) for atom, _ in place.terms}
    if any(divides(s, atoms) for s in new):
        return statement
    return Loop(whole, statement.axis, new)


def divides(statement: Statement, atoms: set[Atom]) -> bool:
    """Whether a quotient or remainder of a collapsed variable is left anywhere."""
    found = False

    def visit(where: Index) -> None:
        nonlocal found
        found = found or mentions(where, atoms)

    for_each_index(statement, visit)
    return found


def mentions(where: Index, atoms: set[Atom]) -> bool:
    for atom, _ in where.terms:
        if atom in atoms:
            return True
        inner = getattr(atom, "dividend", None)
        if inner is not None and mentions(inner, atoms):
            return True
    return False


def for_each_index(statement: Statement, visit: Callable[[Index], None]) -> None:
    """Call `visit` on every index expression below a statement."""
    seen: set[Expression] = set()

    def value(root: Expression) -> None:
        for e in walk([root], lambda e: bool(e.free) and e not in seen):
            seen.add(e)
            match e:
                case Load(index=where) | IndexValue(index=where):
                    place(where)
                case Guard(conditions=conditions):
                    for condition in conditions:
                        place(condition.index)
                case _:
                    pass

    def place(where: Index) -> None:
        visit(where)
        for atom, _ in where.terms:
            inner = getattr(atom, "value", None)
            if inner is not None:
                value(inner)

    def below(s: Statement) -> None:
        match s:
            case Declare(value=e) | Accumulate(value=e):
                value(e)
            case Assign(values=several):
                for e in several:
                    value(e)
            case Store(index=where, value=e):
                place(where)
                value(e)
            case Loop(body=inner):
                for each in inner:
                    below(each)
            case If(conditions=conditions, body=inner):
                for condition in conditions:
                    place(condition.index)
                for each in inner:
                    below(each)
            case Bind(index=where):
                place(where)
            case TileProduct(indices=indices):
                for where in indices:
                    place(where)
            case Allocate():
                pass

    below(statement)


def over_nests(body: Body, move: Callable[[Sequence[Loop]], Body]) -> Body:
    """`move` applied to every nest of loops that only stores; what it gives back replaces the nest,
    unless it is nothing."""
    result: list[Statement] = []
    for statement in body:
        nest = nest_of(statement)
        if not nest:
            result.append(statement)
        elif all(isinstance(s, Store) for s in nest[-1].body):
            result += move(nest) or [statement]
        else:
            inner = over_nests(nest[-1].body, move)
            for loop in reversed(nest):
                inner = (replace(loop, body=inner),)
            result += inner
    return tuple(result)


def nest_of(statement: Statement) -> list[Loop]:
    """Independent loops, each with nothing but the next one inside."""
    nest: list[Loop] = []
    while isinstance(statement, Loop) and statement.axis is Axis.SERIAL and statement.count is None:
        nest.append(statement)
        if len(statement.body) != 1:
            break
        statement = statement.body[0]
    return nest


def strips(loop: Loop, length: int) -> Loop:
    """Split a loop into strips that run in parallel; the loop itself keeps its meaning."""
    count = -(-loop.var.extent // length)
    strip = Var(f"{loop.var.name}_strip", count)
    inner = replace(loop, start=index(strip) * length, count=length)
    return Loop(strip, Axis.PARALLEL, (inner,))


def split_reduce(declares: list[Declare], loop: Loop, length: int) -> Body:
    """A reduce in parallel: each strip has its own accumulators, joined in order afterwards. The
    number of strips does not depend on the number of threads, so the result does not either."""
    count = -(-loop.var.extent // length)
    strip = Var(f"{loop.var.name}_strip", count)
    ops = accumulated((loop,))
    parts = {d.name: Memory(f"{d.name}_parts", d.value.dtype, count, local=True) for d in declares}
    own = [Declare(d.name, identity(ops[d.name], d.value.dtype)) for d in declares]
    inner = replace(loop, start=index(strip) * length, count=length)
    stores = [Store(parts[d.name], index(strip), Read(d.name, d.value.dtype)) for d in declares]
    joined = tuple(
        Accumulate(d.name, ops[d.name], Load(parts[d.name], index(strip))) for d in declares
    )
    return (
        *(Allocate(memory) for memory in parts.values()),
        Loop(strip, Axis.PARALLEL, (*own, inner, *stores)),
        *declares,
        Loop(strip, Axis.REDUCE, joined),
    )


def accumulated(body: Body) -> dict[str, Op]:
    """The monoid of every register that only accumulates in `body`."""
    found: dict[str, Op] = {}
    for statement in body:
        match statement:
            case Accumulate(name=name, op=op):
                found[name] = op
            case Loop(body=inner) | If(body=inner):
                found |= accumulated(inner)
            case _:
                pass
    return found
