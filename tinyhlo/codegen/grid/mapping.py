"""Loops as dispatches: which iterations become work-items, which are dealt to a group.

In: the LoopProgram of a kernel, all of whose loops are as they were lowered. Out: pieces that run
one after the other, each a grid of groups:

    for i in 64: for j in 100: y[..] = ..        ->  6400 items, each one iteration
    for i in 64: sum = 0; for j in 1000: sum += .. ->  64 groups, which are dealt the 1000
    sum = 0; for j in 1000: sum += ..; y[0] = sum  ->  one group

Registers that a later piece reads, and private memory that lies outside of all loops, are kept in
scratch of the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from tinyhlo.codegen.bodies import (
    all_indices,
    all_values,
    allocated,
    below,
    memories_read,
    names_in,
    names_set,
    nest_of,
)
from tinyhlo.codegen.expressions import Load, Memory, Read
from tinyhlo.codegen.grid.several import elements_of, several
from tinyhlo.codegen.loops import (
    Accumulate,
    Allocate,
    Assign,
    Axis,
    Bind,
    Body,
    Declare,
    If,
    Keep,
    Loop,
    LoopProgram,
    Statement,
    Store,
    Turns,
    guarded,
)
from tinyhlo.codegen.walks import all_loads
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.index import ZERO, Data, Index, Var, index, unravel
from tinyhlo.numbers import ceil_div
from tinyhlo.records import dataclass
from tinyhlo.target import WARP, WARPS, Target

INDEPENDENT = (Axis.SERIAL, Axis.PARALLEL, Axis.VECTOR)
ITEMS = 256  # of a group
SMALL = 4096  # iterations of a kernel that are not worth several dispatches
ROW = 32  # iterations from which a loop is worth a group
PRIVATE_BYTES = 512  # memory of an item: what registers hold
MANY = 1 << 15  # items that fill a device
WARPS_OF_A_UNIT = 32  # that fill it well enough


@dataclass(frozen=True, eq=False, slots=True)
class Piece:
    """A body that `groups` groups of `items` items run; `alone`: each item by itself; several
    `rows` of a group: each warp by itself."""

    body: Body
    groups: int
    items: int
    alone: bool
    rows: int = 1


def pieces_of(program: LoopProgram, target: Target) -> tuple[list[Piece], tuple[Memory, ...]]:
    """The pieces of a kernel, and what they keep in scratch."""
    items = min(ITEMS, target.group_items)
    kept = [s.memory for s in program.body if isinstance(s, Allocate)]
    segments = split(tuple(s for s in program.body if not isinstance(s, Allocate)))
    spilled, saved = across(segments)
    in_place = bool(program.in_place)
    return [mapped(segment, items, target, in_place) for segment in spilled], (*kept, *saved)


def pieces_of_turn(turns: Turns, target: Target) -> list[Piece]:
    """The pieces of every turn, which find its number where `numbers` begins."""
    known = index(Data(Load(turns.numbers, ZERO), turns.turn.bounds))
    number = Bind(turns.turn, known)
    return [mapped((number, loop), target.group_items, target, False) for loop in turns.body]


# --- dispatches ----------------------------------------------------------------------------------


def split(body: Body) -> list[Body]:
    """Loops whose iterations are independent stand alone; what is between them stays together."""
    grids = any(is_grid(s) for s in body)
    if not grids and sum(iterations(s) for s in body) <= SMALL:
        return [body] if body else []
    segments: list[Body] = []
    joins = False
    for statement in body:
        own = is_grid(statement) or (is_independent(statement) and iterations(statement) > ROW)
        if own or not joins:
            segments.append((statement,))
        else:
            segments[-1] += (statement,)
        joins = not own
    return segments


def is_independent(statement: Statement) -> bool:
    return isinstance(statement, Loop) and statement.axis in INDEPENDENT and not crosses(statement)


def crosses(loop: Loop) -> bool:
    """Whether an iteration may read what another one writes: lanes, which all read first, may."""
    own = allocated(loop.body)
    written: dict[Memory, set[Index]] = {}
    for s in below(loop.body):
        if isinstance(s, Store) and s.memory not in own:
            written.setdefault(s.memory, set()).add(s.index)
    return bool(written) and any(
        e.memory in written and written[e.memory] != {e.index}
        for e in all_loads(all_values(below(loop.body)))
    )


def is_grid(statement: Statement) -> bool:
    """Whether a lowering has mapped a loop to groups."""
    return isinstance(statement, Loop) and statement.axis is Axis.GRID


def iterations(statement: Statement) -> int:
    """How often what is innermost runs."""
    match statement:
        case Loop(var=var, body=body, count=count):
            own = var.extent if count is None else min(count, var.extent)
            return own * max(1, sum(map(iterations, body)))
        case If(body=body):
            return max(1, sum(map(iterations, body)))
        case _:
            return 1


def across(segments: Sequence[Body]) -> tuple[list[Body], tuple[Memory, ...]]:
    """Registers that pass from one segment to another, through memory; variables are bound anew."""
    types: dict[str, DType] = {}
    memories: dict[str, Memory] = {}
    binds: list[Statement] = []
    result: list[Body] = []
    for position, segment in enumerate(segments):
        own = {s.name for s in segment if isinstance(s, Declare)}
        types |= {s.name: s.value.dtype for s in segment if isinstance(s, Declare)}
        changed = names_set(segment)
        used = (names_in(segment) | changed) - own
        later = tuple(s for other in segments[position + 1 :] for s in other)
        redeclared = {s.name for s in later if isinstance(s, Declare)}
        needed = ((names_in(later) | names_set(later)) & changed) - redeclared
        taken, given = ([n for n in types if n in names] for names in (used, needed))
        for name in (*taken, *given):
            memories.setdefault(name, Memory(f"kept_{name}", types[name], 1, local=True))
        before = tuple(Declare(name, Load(memories[name], ZERO)) for name in taken)
        after = tuple(Store(memories[n], ZERO, Read(n, types[n])) for n in given)
        result.append((*binds, *before, *segment, *after))
        binds += [s for s in segment if isinstance(s, Bind)]
    return result, tuple(memories.values())


# --- groups and items ----------------------------------------------------------------------------


def mapped(body: Body, items: int, target: Target, in_place: bool) -> Piece:
    """One segment as a grid. What is declared before an independent loop, each item declares."""
    *before, last = body
    if is_grid(last):
        assert isinstance(last, Loop)
        own = [s.var.extent for s in last.body if isinstance(s, Loop) and s.axis is Axis.ITEM]
        return Piece((*before, last), last.var.extent, max(own, default=items), False)
    if is_independent(last) and all(isinstance(s, (Declare, Bind)) for s in before):
        assert isinstance(last, Loop)
        variables, inner = collapsed(last)
        count = prod(var.extent for var in variables)
        flat = Var("item", count)
        head = (*before, *recovered(flat, variables))
        if is_row(inner, variables, count) and for_warps(inner, count, target):
            loop = Loop(flat, Axis.GRID, (*head, *dealt(inner, WARP)))
            return Piece((loop,), ceil_div(count, items // WARP), items, False, items // WARP)
        if is_row(inner, variables, count):
            items = min(items, row_items(inner))
            loop = Loop(flat, Axis.GRID, (*head, *dealt(inner, items)))
            return Piece((loop,), count, items, False)
        each = elements_of(inner, count, items, target)
        if each > 1 and (found := several(before, variables, inner, each, items, in_place)):
            return Piece((found.loop,), found.groups, items, found.alone)
        loop = Loop(flat, Axis.GRID, (*head, *inner))
        return Piece((loop,), ceil_div(count, items), items, True)
    body = dealt(body, items)
    together = any(isinstance(s, Loop) and s.axis is Axis.GROUP for s in below(body))
    return Piece(body, 1, items if together else 1, not together)


def collapsed(loop: Loop) -> tuple[list[Var], Body]:
    """Independent loops directly inside each other, the outermost first."""
    nest = nest_of(loop, *INDEPENDENT)
    return [each.var for each in nest], nest[-1].body if nest else (loop,)


def recovered(flat: Var, variables: Sequence[Var]) -> Body:
    """The variables of collapsed loops."""
    places = unravel(index(flat), tuple(var.extent for var in variables))
    return tuple(Bind(var, place) for var, place in zip(variables, places, strict=True))


def by_item(count: int, items: int, body: Callable[[Index], Body]) -> Loop:
    """`body` of a number less than `count`, each by an item of a group of so many."""
    group, item = Var("group", ceil_div(count, items)), Var("item", items)
    number = index(group) * items + index(item)
    inner = guarded(body(number), Condition(number, 0, count))
    return Loop(group, Axis.GRID, (Loop(item, Axis.ITEM, inner),))


def is_row(body: Body, variables: Sequence[Var], count: int) -> bool:
    """Whether a group for each iteration pays: it has long loops, which read neighbours, or there
    are too few iterations for items of their own; or it needs more memory than an item has."""
    if any(memory.nbytes > PRIVATE_BYTES for memory in allocated(body)):
        return True
    loops = [s for s in body if isinstance(s, Loop)]
    longest = max((iterations(loop) for loop in loops), default=0)
    if longest < ROW:
        return False
    if count < MANY:
        return True
    along = sum(is_contiguous(loop, innermost(loop)) for loop in loops)
    return along > sum(is_contiguous(loop, variables[-1]) for loop in loops)


def for_warps(body: Body, count: int, target: Target) -> bool:
    """Whether each warp of a group is given an iteration: it is short, there are enough of them to
    fill the device, and its items exchange registers alone."""
    if not target.has(WARPS) or count < WARPS_OF_A_UNIT * target.threads:
        return False
    written = {s.memory for s in below(body) if isinstance(s, Store)}
    shares = any(isinstance(s, (Allocate, Keep)) for s in below(body))
    longest = max((iterations(s) for s in body), default=0)
    return not shares and longest <= WARP * WARP and written.isdisjoint(memories_read(body))


def row_items(body: Body) -> int:
    """As many as its longest loop has iterations, a power of two."""
    longest = max((iterations(s) for s in below(body) if isinstance(s, Loop)), default=1)
    return max(ROW, 1 << (longest - 1).bit_length())


def innermost(loop: Loop) -> Var:
    while len(loop.body) == 1 and isinstance(loop.body[0], Loop):
        loop = loop.body[0]
    return loop.var


def is_contiguous(loop: Loop, var: Var, others: Var | None = None) -> bool:
    """Whether memory that the loop reads or writes lies side by side along `var`; that which is the
    same for all of `others` does not count."""
    return any(
        place.coefficient(var) == 1 and (others is None or place.coefficient(others) != 0)
        for place in all_indices(loop.body)
    )


def dealt(body: Body, items: int) -> Body:
    """A body that a whole group runs: its independent loops and its sums are dealt to the items."""
    result: list[Statement] = []
    for statement in body:
        match statement:
            case Loop() if is_independent(statement):
                result += shared_out(statement, items)
            case Loop(axis=Axis.REDUCE) if can_be_dealt(statement, result):
                result.append(replace(one_loop(statement), axis=Axis.GROUP))
            case Loop(axis=Axis.ORDERED, body=inner) | If(body=inner):
                result.append(replace(statement, body=dealt(inner, items)))
            case _:
                result.append(statement)
    return tuple(result)


def shared_out(loop: Loop, items: int) -> Body:
    """An independent loop: its own iterations are dealt, or, where it has few, those inside."""
    variables, inner = collapsed(loop)
    if not variables:
        return (replace(loop, axis=Axis.GROUP),)
    count = prod(var.extent for var in variables)
    longest = max((iterations(s) for s in inner if isinstance(s, Loop)), default=0)
    if count == 0:
        return ()
    if longest >= ROW and count < items:
        return (replace(loop, body=dealt(loop.body, items)),)
    flat = Var("dealt", count)
    return (Loop(flat, Axis.GROUP, (*recovered(flat, variables), *inner)),)


def can_be_dealt(loop: Loop, before: Sequence[Statement]) -> bool:
    """Whether items may run its iterations, each with registers of its own: what has a combiner
    starts from a neutral element, right before it."""
    combined = {n for s in below(loop.body) if isinstance(s, Assign) for n in s.names}
    declared = {s.name for s in before if isinstance(s, Declare)}
    used = names_set(s for s in before if not isinstance(s, Declare))
    return only_accumulates(loop.body) and combined <= declared - used


def only_accumulates(body: Body) -> bool:
    return all(
        isinstance(s, (Accumulate, Bind, Loop, If)) or (isinstance(s, Assign) and s.combiner)
        for s in below(body)
    )


def one_loop(loop: Loop) -> Loop:
    """Sums over several axes as one loop."""
    nest = nest_of(loop, Axis.REDUCE)
    if len(nest) < 2:
        return loop
    variables = [each.var for each in nest]
    flat = Var("dealt", prod(var.extent for var in variables))
    return Loop(flat, Axis.REDUCE, (*recovered(flat, variables), *nest[-1].body))
