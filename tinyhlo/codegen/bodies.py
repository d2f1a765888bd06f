"""What a body of statements consists of and does: its values, indices, registers and memory.

    names_in(for j in 9: sum += x[i*9 + j])  ->  {i, j}
    changed(the same)                        ->  {"sum"}

Moves and renderers ask here and change statements by `rewritten`: a new kind of statement needs a
line of FIELDS, and its lines in the printer and in the renderer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from tinyhlo.codegen.expressions import (
    NOTHING,
    Apply,
    Expression,
    Literal,
    Load,
    Memory,
    Name,
    has_registers,
    index_free,
    substitute_expression,
)
from tinyhlo.codegen.grid import statements as grid
from tinyhlo.codegen.loops import (
    Accumulate,
    Allocate,
    Assign,
    Axis,
    Bind,
    Body,
    Declare,
    HoldMatrices,
    If,
    Keep,
    Loop,
    Statement,
    Store,
    TileProduct,
)
from tinyhlo.codegen.walks import all_loads, computed_in, loads_of, parts, places, walk
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import BF16, F16
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.index import ZERO, Index, Var, substitute
from tinyhlo.ir.ops import FUNCTIONS, Op

CHEAP = 8  # instructions for an element of a row that take no longer than to load and store it


def below(body: Iterable[Statement]) -> Iterator[Statement]:
    """Every statement, each before those inside it."""
    for statement in body:
        yield statement
        if isinstance(statement, (Loop, If)):
            yield from below(statement.body)


def allocated(body: Iterable[Statement]) -> set[Memory]:
    """The memories that are made below a body."""
    return {s.memory for s in below(body) if isinstance(s, Allocate)}


def nest_of(statement: Statement, *axes: Axis) -> list[Loop]:
    """Loops of some axes, of any where none is named, each over all of a variable of its own and
    with nothing but the next one inside; the outermost first."""
    nest: list[Loop] = []
    body: Body = (statement,)
    while True:
        match body:
            case (Loop(start=start, count=None) as loop,) if (
                start == ZERO
                and (not axes or loop.axis in axes)
                and all(loop.var != outer.var for outer in nest)
            ):
                nest.append(loop)
                body = loop.body
            case _:
                return nest


class Fields(NamedTuple):
    """Names of a statement's fields, by what is in them: one of these, or a tuple. Conditions have
    indices, and so have pairs of memory and an index."""

    values: tuple[str, ...] = ()  # that it computes
    parts: tuple[str, ...] = ()  # of those values
    indices: tuple[str, ...] = ()  # but those over variables of its own
    registers: tuple[str, ...] = ()  # that it declares or changes
    memory: tuple[str, ...] = ()


FIELDS: dict[type, Fields] = {
    Loop: Fields(indices=("start",)),
    Bind: Fields(indices=("index",)),
    Declare: Fields(values=("value",), registers=("name",)),
    Accumulate: Fields(values=("value",), registers=("name",)),
    Assign: Fields(values=("values",), parts=("elements",), registers=("names",)),
    Store: Fields(values=("value",), indices=("index",), memory=("memory",)),
    If: Fields(indices=("conditions",)),
    Allocate: Fields(memory=("memory",)),
    Keep: Fields(values=("values", "condition"), registers=("count",), memory=("memories",)),
    TileProduct: Fields(
        values=("values",),
        indices=("left_rows", "right_vectors", "tile_vectors", "ahead"),
        memory=("left", "right", "tile"),
    ),
    HoldMatrices: Fields(),
    grid.Synchronize: Fields(),
    grid.Copy: Fields(indices=("index", "origin", "conditions"), memory=("memory", "source")),
    grid.EndCopies: Fields(),
    grid.FragmentProduct: Fields(values=("words",), registers=("sums",)),
    grid.WarpgroupProducts: Fields(
        indices=("places",), registers=("sums",), memory=("left", "right")
    ),
    grid.Fetch: Fields(indices=("index",), registers=("names",), memory=("memory",)),
    grid.Put: Fields(values=("values",), indices=("index",), memory=("memory",)),
    grid.ReadTexel: Fields(indices=("x", "y"), registers=("names",), memory=("image",)),
    grid.WriteTexel: Fields(values=("values",), indices=("x", "y"), memory=("image",)),
}


def held(statement: Statement, fields: tuple[str, ...]) -> tuple[Any, ...]:
    """What is in some fields of a statement, tuples by their elements."""
    found: tuple[Any, ...] = ()
    for name in fields:
        part = getattr(statement, name)
        found += part if type(part) is tuple else (part,)
    return found


def values_in(statement: Statement) -> tuple[Expression, ...]:
    """The values that a statement itself computes."""
    return held(statement, FIELDS[type(statement)].values)


def indices_in(statement: Statement) -> tuple[Index, ...]:
    """The indices that a statement itself has, those of its values aside."""
    return indices_of(held(statement, FIELDS[type(statement)].indices))


def indices_of(parts: tuple[Any, ...]) -> tuple[Index, ...]:
    found: tuple[Index, ...] = ()
    for part in parts:
        match part:
            case Index():
                found += (part,)
            case Condition():
                found += (part.index,)
            case _ if type(part) is tuple:
                found += indices_of(part)
    return found


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
    return {load.memory for load in all_loads(all_values(below(body)))}


def memories_in(body: Body) -> set[Memory]:
    """Memory that a body reads or writes."""
    own = (m for s in below(body) for m in held(s, FIELDS[type(s)].memory) if m is not None)
    return memories_read(body).union(own)


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
    return frozenset(held(statement, FIELDS[type(statement)].registers))


def changed(body: Body) -> frozenset[str]:
    """Registers set anywhere in `body`, without those declared there."""
    names: set[str] = set()
    for statement in body:
        names |= set_by(statement)
        if isinstance(statement, (Loop, If)):
            names |= changed(statement.body)
    declared = (set_by(s) for s in body if isinstance(s, (Declare, grid.ReadTexel)))
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
    written = (Store, grid.Copy, grid.Put, Keep, TileProduct, grid.WriteTexel)
    return any(isinstance(s, written) for s in below(body))


def is_cheap_row(loop: Loop) -> bool:
    """Whether a loop does nothing but store neighbours: as they were loaded, from either end, one
    constant, or what a few instructions make of neighbours and of what is the same for all of them.
    What is the same decides any choice between rows that is made for nothing, and is no register of
    a reduce before the row: lanes of that are lanes of the row, too. Of halves, which are converted
    before and after, there are no more than elements. Nothing is made of what is stored: those
    lanes must not run again."""
    count, extent = 0, loop.var.extent
    written = {s.memory for s in loop.body if isinstance(s, Store)}

    def is_row(value: Expression) -> bool:
        nonlocal count
        match value:
            case Apply(op=Op.WHERE, arguments=(condition, *chosen)) if (
                loop.var not in condition.free
            ):
                return all(map(is_row, chosen))
            case Load(memory=memory, index=source):
                return source.coefficient(loop.var) in (1, -1) and memory not in written
            case Apply(op=op, arguments=arguments) if loop.var in value.free:
                count += 1
                long = op in FUNCTIONS or (op is Op.DIV and value.dtype.is_integer)
                varying = [each for each in arguments if loop.var in each.free]
                most = min(CHEAP, extent) if value.dtype in (F16, BF16) else CHEAP
                return not long and count <= most and all(map(is_row, varying))
            case _:
                return isinstance(value, Literal)

    stores = [s for s in loop.body if isinstance(s, Store) and s.index.coefficient(loop.var) == 1]
    own = not any(has_registers(s.value.free) for s in stores)
    return own and 0 < len(stores) == len(loop.body) and all(is_row(s.value) for s in stores)


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
    if len(written) == 1:
        return True
    return any(load.memory == s.memory for s in stores for load in loads_of(s.value))


def only_stores(body: Body) -> bool:
    return all(isinstance(s, (Declare, Store)) for s in body)


def stores_last(statements: Iterable[Statement]) -> Body:
    """The same statements, those that store behind all others."""
    return tuple(sorted(statements, key=lambda s: isinstance(s, Store)))


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
    fields, new = FIELDS[type(statement)], dict[str, Any]()
    for name in fields.values + fields.parts:
        new[name] = mapped(getattr(statement, name), value_of)
    for name in fields.indices:
        new[name] = with_indices(getattr(statement, name), index_of)
    for name in fields.registers:
        new[name] = mapped(getattr(statement, name), name_of)
    if isinstance(statement, (Loop, If)):
        new["body"] = tuple(rewritten(s, value_of, index_of, name_of) for s in statement.body)
    return replace(statement, **new) if new else statement


def mapped(part: Any, change: Callable[[Any], Any]) -> Any:
    return tuple(map(change, part)) if type(part) is tuple else change(part)


def with_indices(part: Any, change: Callable[[Index], Index]) -> Any:
    """A field with its indices changed; memory beside them stays."""
    match part:
        case Index():
            return change(part)
        case Condition():
            return part.of(change(part.index))
        case _ if type(part) is tuple:
            return tuple(with_indices(each, change) for each in part)
        case _:
            return part


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
