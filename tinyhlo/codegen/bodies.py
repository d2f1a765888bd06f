"""What a body of statements consists of and does: its values, indices, registers and memory.

    names_in(for j in 9: sum += x[i*9 + j])  ->  {i, j}
    changed(the same)                        ->  {"sum"}

Moves and renderers ask here and change statements by `rewritten`: a new kind of statement needs its
lines here, in the printer and in the renderer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from tinyhlo.codegen.expressions import (
    NOTHING,
    Apply,
    Expression,
    Literal,
    Load,
    Memory,
    Name,
    index_free,
    substitute_expression,
)
from tinyhlo.codegen.loops import (
    Accumulate,
    Allocate,
    Assign,
    Bind,
    Body,
    Copy,
    Declare,
    Fetch,
    FragmentProduct,
    If,
    Keep,
    Loop,
    Put,
    ReadTexel,
    Statement,
    Store,
    TileProduct,
    WarpgroupProducts,
    WriteTexel,
)
from tinyhlo.codegen.walks import computed_in, loads_of, parts, places, walk
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.index import Index, Var, substitute
from tinyhlo.ir.ops import Op


def below(body: Iterable[Statement]) -> Iterator[Statement]:
    """Every statement, each before those inside it."""
    for statement in body:
        yield statement
        if isinstance(statement, (Loop, If)):
            yield from below(statement.body)


def allocated(body: Iterable[Statement]) -> set[Memory]:
    """The memories that are made below a body."""
    return {s.memory for s in below(body) if isinstance(s, Allocate)}


def nested_loops(statement: Statement) -> list[Loop]:
    """Loops directly inside each other, the outermost first."""
    nest: list[Loop] = []
    while isinstance(statement, Loop):
        nest.append(statement)
        statement = statement.body[0]
    return nest


def values_in(statement: Statement) -> tuple[Expression, ...]:
    """The values that a statement itself computes."""
    match statement:
        case Declare(value=value) | Accumulate(value=value) | Store(value=value):
            return (value,)
        case Assign(values=values) | TileProduct(values=values) | FragmentProduct(words=values):
            return values
        case WriteTexel(values=values) | Put(values=values):
            return values
        case Keep(values=values, condition=condition):
            return (*values, condition)
        case _:
            return ()


def indices_in(statement: Statement) -> tuple[Index, ...]:
    """The indices that a statement itself has, those of its values aside."""
    match statement:
        case Store(index=where) | Bind(index=where) | Loop(start=where) | Fetch(index=where):
            return (where,)
        case Put(index=where):
            return (where,)
        case ReadTexel(x=x, y=y) | WriteTexel(x=x, y=y):
            return (x, y)
        case Copy(index=where, origin=origin, conditions=conditions):
            return (where, origin, *(c.index for c in conditions))
        case If(conditions=conditions):
            return tuple(c.index for c in conditions)
        case TileProduct(indices=indices):
            return indices
        case WarpgroupProducts(places=pairs):
            return tuple(where for pair in pairs for where in pair)
        case _:
            return ()


def all_indices(body: Iterable[Statement]) -> Iterator[Index]:
    """Every index below a body that names occur in, those inside values and indices included."""
    body = list(body)
    yield from (where for s in below(body) for where in indices_in(s))
    for e in walk(all_values(below(body)), lambda e: bool(e.free), parts):
        yield from places(e)


def all_values(statements: Iterable[Statement]) -> list[Expression]:
    """The values that statements themselves compute, those in their indices included."""
    statements = list(statements)
    values = [value for s in statements for value in values_in(s)]
    return values + [v for s in statements for where in indices_in(s) for v in computed_in(where)]


def memories_read(body: Iterable[Statement]) -> set[Memory]:
    """Memory that expressions below a body load from."""
    loads = walk(all_values(below(body)), lambda e: e.loads > 0, parts)
    return {e.memory for e in loads if isinstance(e, Load)}


def memories_in(body: Body) -> set[Memory]:
    """Memory that a body reads or writes."""
    found = memories_read(body)
    for statement in below(body):
        if isinstance(statement, (Store, Fetch, Put)):
            found.add(statement.memory)
        elif isinstance(statement, Copy):
            found.update((statement.memory, statement.source))
        elif isinstance(statement, WarpgroupProducts):
            found.update((statement.left, statement.right))
        elif isinstance(statement, (ReadTexel, WriteTexel)):
            found.add(statement.image)
        elif isinstance(statement, Keep):
            found.update(statement.memories)
    return found


# --- names ---------------------------------------------------------------------------------------


def names_in(body: Iterable[Statement]) -> frozenset[Name]:
    """Variables and registers that are read anywhere in a body."""
    statements = list(below(body))
    values = (value.free for s in statements for value in values_in(s))
    return NOTHING.union(*values, *(index_free(i) for s in statements for i in indices_in(s)))


def names_set(body: Iterable[Statement]) -> frozenset[str]:
    """Registers that are declared or changed anywhere in a body."""
    return frozenset(name for s in below(body) for name in set_by(s))


def set_by(statement: Statement) -> frozenset[str]:
    """Registers that a statement itself declares or changes."""
    match statement:
        case Declare(name=name) | Accumulate(name=name):
            return frozenset((name,))
        case Assign(names=names) | FragmentProduct(sums=names) | Fetch(names=names):
            return frozenset(names)
        case ReadTexel(names=names) | WarpgroupProducts(sums=names):
            return frozenset(names)
        case Keep(count=count):
            return frozenset((count,))
        case _:
            return frozenset()


def changed(body: Body) -> frozenset[str]:
    """Registers set anywhere in `body`, without those declared there."""
    names: set[str] = set()
    for statement in body:
        names |= set_by(statement)
        if isinstance(statement, (Loop, If)):
            names |= changed(statement.body)
    declared = (set_by(s) for s in body if isinstance(s, (Declare, ReadTexel)))
    return frozenset(names.difference(*declared))


def accumulates(body: Iterable[Statement]) -> list[Accumulate]:
    """Every accumulation in a body."""
    return [s for s in below(body) if isinstance(s, Accumulate)]


def only_sums(body: Body) -> list[Accumulate]:
    """The sums that a body consists of, each of a register that no term reads; none where there is
    anything else."""
    sums = [s for s in body if isinstance(s, Accumulate)]
    names = {s.name for s in sums}
    apart = all(names.isdisjoint(s.value.free) for s in sums)
    return sums if len(sums) == len(body) == len(names) and apart else []


def ways_together(body: Body) -> dict[tuple[str, ...], Op | Graph]:
    """The registers from outside that a body accumulates into, with the op or combiner of each:
    parts of the body that run apart, each with registers of its own, are joined by the same."""
    outside = changed(body)
    found: dict[tuple[str, ...], Op | Graph] = {}
    for statement in below(body):
        match statement:
            case Accumulate(name=name, op=op) if name in outside:
                found[name,] = op
            case Assign(names=names, combiner=Graph() as combiner) if outside.issuperset(names):
                found[names] = combiner
            case _:
                pass
    return found


# --- memory --------------------------------------------------------------------------------------


def stores_in(body: Iterable[Statement]) -> bool:
    written = (Store, Copy, Put, Keep, TileProduct, WriteTexel)
    return any(isinstance(s, written) for s in below(body))


def is_copy(loop: Loop) -> bool:
    """Whether a loop does nothing but store neighbours: as they were loaded, or one constant. A
    choice between these must be the same for the whole loop."""

    def is_row(value: Expression) -> bool:
        match value:
            case Apply(op=Op.WHERE, arguments=(condition, *chosen)):
                return loop.var not in condition.free and all(map(is_row, chosen))
            case Load(index=source):
                return source.coefficient(loop.var) == 1
            case _:
                return isinstance(value, Literal)

    stores = [s for s in loop.body if isinstance(s, Store) and s.index.coefficient(loop.var) == 1]
    return 0 < len(stores) == len(loop.body) and all(is_row(s.value) for s in stores)


def must_run_once(loop: Loop) -> bool:
    """Whether lanes must not run twice: they add to what they store, they count what they keep,
    they change scratch that the loop reads, or scratch of a strip ends where the strip does."""
    in_strip = loop.count is not None
    return (
        reads_results(loop.body)
        or rereads_scratch(loop.body)
        or any(
            (isinstance(s, Store) and in_strip and (s.memory.local or reads_scratch(s)))
            or (isinstance(s, Declare) and reads_scratch(s))
            or (isinstance(s, Loop) and must_run_once(s))
            or isinstance(s, Keep)
            for s in loop.body
        )
    )


def rereads_scratch(body: Body) -> bool:
    """Whether anything in a body may read scratch that the body writes."""
    statements = list(below(body))
    written = {s.memory for s in statements if isinstance(s, Store) and s.memory.local}
    if not written:
        return False
    tiles = any(isinstance(s, TileProduct) for s in statements)
    return tiles or not written.isdisjoint(memories_read(body))


def reads_results(body: Body) -> bool:
    """Whether a value that is stored, by a scatter above all, is made of what lay there before."""
    stores = [s for s in below(body) if isinstance(s, Store)]
    written = {s.memory for s in stores}
    loads = walk((s.value for s in stores), lambda e: e.loads > 0)
    if not any(isinstance(e, Load) and e.memory in written for e in loads):
        return False
    return any(load.memory == s.memory for s in stores for load in loads_of(s.value))


def only_stores(body: Body) -> bool:
    return all(isinstance(s, (Declare, Store)) for s in body)


def store_groups(stores: list[Store]) -> list[list[Store]]:
    """Neighbouring stores, cut so that all values of a group can be computed before any of it is
    stored. Where results are read, by a scatter that is written out above all, a group ends before
    a store to what may have been stored in it; and before a value that is read from scratch which
    it stores."""
    if not stores:
        return []
    written = {s.memory for s in stores if s.memory.local}
    results = reads_results(tuple(stores))
    scratch = bool(written) and not written.isdisjoint(memories_read(stores))
    if not results and not scratch:
        return [stores]
    result: list[list[Store]] = [[]]
    for store in stores:
        overlaps = results and any(may_overlap(store, before) for before in result[-1])
        if overlaps or (scratch and reads_stored_scratch(store, result[-1])):
            result.append([])
        result[-1].append(store)
    return result


def in_order(body: Body) -> Iterator[Statement | list[Store]]:
    """The statements of a body; neighbouring stores as groups whose values are computed first."""
    position = 0
    while position < len(body):
        neighbours: list[Store] = []
        while position < len(body) and isinstance(store := body[position], Store):
            neighbours.append(store)
            position += 1
        yield from store_groups(neighbours)
        if not neighbours:
            yield body[position]
            position += 1


def may_overlap(one: Store, other: Store) -> bool:
    apart = one.index - other.index
    return one.memory == other.memory and not (apart.is_constant and apart.offset)


def reads_stored_scratch(store: Store, before: Iterable[Store]) -> bool:
    own = {s.memory for s in before if s.memory.local}
    return bool(own) and not own.isdisjoint(memories_read((store,)))


def reads_scratch(statement: Store | Declare) -> bool:
    return any(load.memory.local for load in loads_of(statement.value))


# --- rewriting -----------------------------------------------------------------------------------


def inside(statement: Statement, change: Callable[[Body], Body]) -> Statement:
    """A loop or an `if` with its body changed; other statements have none."""
    if isinstance(statement, (Loop, If)):
        return replace(statement, body=change(statement.body))
    return statement


def unchanged(part: Index) -> Index:
    return part


def rewritten(
    statement: Statement,
    value_of: Callable[[Expression], Expression],
    index_of: Callable[[Index], Index] = unchanged,
    name_of: Callable[[str], str] = str,
) -> Statement:
    """The statement, and those inside it, with other values, indices and registers."""
    match statement:
        case Declare(name=name, value=value):
            return Declare(name_of(name), value_of(value))
        case Accumulate(name=name, op=op, value=value):
            return Accumulate(name_of(name), op, value_of(value))
        case Assign(names=names, values=values, combiner=combiner, elements=elements):
            changed = tuple(map(name_of, names)), tuple(map(value_of, values))
            return Assign(*changed, combiner, tuple(map(value_of, elements)))
        case Store(memory=memory, index=where, value=value):
            return Store(memory, index_of(where), value_of(value))
        case Loop(body=body, start=start):
            inner = tuple(rewritten(s, value_of, index_of, name_of) for s in body)
            return replace(statement, body=inner, start=index_of(start))
        case If(conditions=conditions, body=body):
            held = tuple(c.of(index_of(c.index)) for c in conditions)
            return If(held, tuple(rewritten(s, value_of, index_of, name_of) for s in body))
        case Bind(var=var, index=where):
            return Bind(var, index_of(where))
        case Keep(memories=memories, values=values, condition=condition, count=count):
            kept = tuple(map(value_of, values))
            return Keep(memories, kept, value_of(condition), name_of(count))
        case TileProduct():
            return statement.over(value_of, index_of)
        case Fetch(names=names, index=where):
            return replace(statement, names=tuple(map(name_of, names)), index=index_of(where))
        case Copy(memory=memory, index=where, source=source, origin=origin, conditions=conditions):
            held = tuple(c.of(index_of(c.index)) for c in conditions)
            return Copy(memory, index_of(where), source, index_of(origin), held, statement.words)
        case Put(memory=memory, index=where, values=values):
            return Put(memory, index_of(where), tuple(map(value_of, values)))
        case ReadTexel(names=names, image=image, x=x, y=y):
            return ReadTexel(tuple(map(name_of, names)), image, index_of(x), index_of(y))
        case WriteTexel(image=image, x=x, y=y, values=values):
            return WriteTexel(image, index_of(x), index_of(y), tuple(map(value_of, values)))
        case FragmentProduct(name=name, sums=sums, words=words):
            changed = tuple(map(name_of, sums)), tuple(map(value_of, words))
            return FragmentProduct(name, *changed, statement.adds)
        case WarpgroupProducts(sums=sums, places=pairs):
            moved = tuple((index_of(one), index_of(two)) for one, two in pairs)
            return replace(statement, sums=tuple(map(name_of, sums)), places=moved)
        case _:
            return statement


def substituted(body: Body, values: Mapping[Var, Index]) -> Body:
    """Loop variables replaced in every index of `body`."""
    done: dict[Expression, Expression] = {}
    return tuple(
        rewritten(
            statement,
            lambda value: substitute_expression(value, values, done),
            lambda where: substitute(where, values),
        )
        for statement in body
    )
