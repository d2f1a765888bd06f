"""Sums whose terms combine rows of one operand with columns of another, in tiles of both.

    for i in 1000:                               local aside0: f32[12800]
      for j in 800:                              for k in 16: for j in 800:
        add0 = 0.0                                 aside0[k*800 + j] = y[j*16 + k]
        for k in 16 reduce:                      for i in 250: for j in 800 vector 64:
          t0 = x[i*16 + k] - y[j*16 + k]   ->      add0_0 = 0.0; ...; add0_3 = 0.0
          add0 += t0*t0                            for k in 16 reduce:
        z[i*800 + j] = add0                          t0 = aside0[k*800 + j]
                                                     t1 = x[i*64 + k] - t0; add0_0 += t1*t1; ...
                                                   z[i*3200 + j] = add0_0; ...

Distances, extremes of sums (max-plus products), and the gradients of both are products but for
their terms: row by row all columns are loaded again for each row, which takes longer than a short
term. A tile of four rows loads them once. Columns that lie across memory are put side by side
first. Products of matrices are `contraction/`'s, but for those of a batch that is innermost in
memory, whose lanes run along the batch. The order of each sum stays as it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import prod

from tinyhlo.codegen.bodies import below, only_sums, rewritten, substituted
from tinyhlo.codegen.contraction.cut import at_most
from tinyhlo.codegen.expressions import (
    Apply,
    Expression,
    Load,
    Memory,
    Read,
    exchanged,
    has_registers,
    index_free,
)
from tinyhlo.codegen.loops import (
    Accumulate,
    Allocate,
    Axis,
    Body,
    Declare,
    Loop,
    Statement,
    Store,
    around,
    nested,
)
from tinyhlo.codegen.moves.basic import over_nests
from tinyhlo.codegen.moves.jam import all_at_once
from tinyhlo.codegen.moves.work import cost
from tinyhlo.codegen.walks import loads_of, plain_loads, walk
from tinyhlo.ir.index import Index, Var, index, linear
from tinyhlo.ir.ops import TRANSCENDENTAL
from tinyhlo.numbers import ceil_div
from tinyhlo.records import dataclass
from tinyhlo.target import Target

ROWS = 4  # of a tile
SLOT, LANE = "slot", "lane"  # variables: of the rows of a tile, of a vector
VECTORS = (4, 2, 1)  # of columns
FEWEST_ROWS = 8  # that make up for columns put side by side
FEWEST_TERMS, FEWEST_REDUCED = 4, 8  # terms: shorter sums do better written out
HEAVIEST = 16.0  # operations of a term beside which loads are little
MOST_ASIDE = 1 << 24  # bytes of columns that are put side by side
OFTEN = 64  # rows of both operands by which vectors of a batch are put side by side


@dataclass(frozen=True, slots=True)
class Tiles:
    """A nest of such sums: its loops around those over rows and over columns, the loads of columns,
    and the vectors of a tile. `block` tiles of rows take turns with the same columns; 0: with all.
    Behind the loop over columns comes what reads sums in scratch, if they are not stored."""

    outer: tuple[Loop, ...]
    rows: Loop
    columns: Loop
    loads: tuple[Load, ...]
    lanes: int
    vectors: int
    block: int
    behind: Body


def in_tiles(body: Body, target: Target, moves: list[str]) -> Body:
    """Every nest of such sums below a body."""
    numbers = itertools.count()

    def move(nest: Sequence[Loop]) -> Body:
        tiles = stored_sums(nest, target) or reduced_sums(nest, target, numbers)
        if tiles is None:
            return along_both(nest, target, moves, numbers)
        name, columns = tiles.rows.var.name, tiles.columns.var.name
        moves.append(f"tile {name} {ROWS} x {columns} {tiles.lanes * tiles.vectors}")
        return tiled(tiles, numbers)

    return over_nests(body, move, takes=lambda inner: bool(sums_in(inner) or reduce_of(inner)))


# --- which nests ---------------------------------------------------------------------------------


def sums_in(body: Body) -> list[Accumulate]:
    """What a body adds up, where it does nothing else than that, and stores the sums."""
    sums: list[Accumulate] = []
    for statement in body:
        match statement:
            case Loop(axis=Axis.REDUCE, width=1, count=None, body=(Loop(),) as inner):
                found = sums_in(inner)
            case Loop(axis=Axis.REDUCE, width=1, count=None, body=inner):
                found = only_sums(inner)
            case Declare() | Store():
                continue
            case _:
                return []
        if not found:
            return []
        sums += found
    return sums


def reduce_of(body: Body) -> Loop | None:
    """The loop of a row that reduces what such sums are, one for each column."""
    match [s for s in body if not isinstance(s, (Declare, Store))]:
        case [Loop(axis=Axis.REDUCE, width=1, count=None) as columns]:
            sums = sums_in(tuple(s for s in columns.body if not isinstance(s, Accumulate)))
            stores = any(isinstance(s, Store) for s in columns.body)
            own = {s.name for s in columns.body if isinstance(s, Declare)}
            begin_there = bool(sums) and {s.name for s in sums} <= own  # and are no sums of all
            return columns if begin_there and not stores else None
        case _:
            return None


def stored_sums(nest: Sequence[Loop], target: Target) -> Tiles | None:
    """The tiles of a nest whose innermost loop stores a sum a turn."""
    *outer, columns = nest
    terms = loads_of_terms(columns)
    for rows in reversed(outer):
        if rows.var.extent >= FEWEST_ROWS and are_apart(terms, rows, columns):
            left = tuple(loop for loop in outer if loop is not rows)
            return tiles_of(left, rows, columns, (), FEWEST_TERMS, target)
    return None


def reduced_sums(nest: Sequence[Loop], target: Target, numbers: Iterator[int]) -> Tiles | None:
    """The tiles of a nest whose innermost loop reduces such sums: their columns wait in scratch."""
    *outer, rows = nest
    columns = reduce_of(rows.body)
    if columns is None or rows.var.extent < FEWEST_ROWS:
        return None
    sums = {s.name: s for s in columns.body if isinstance(s, Declare)}
    terms = (s for s in columns.body if not isinstance(s, Accumulate))
    place = index(Var(SLOT, ROWS)) * columns.var.extent + index(columns.var)
    size = ROWS * columns.var.extent
    kept = {
        Read(name, s.value.dtype): Memory(f"row{next(numbers)}", s.value.dtype, size, local=True)
        for name, s in sums.items()
    }
    stores = (Store(memory, place, read) for read, memory in kept.items())
    apart = Loop(columns.var, Axis.SERIAL, (*terms, *stores))
    nbytes = sum(memory.nbytes for memory in kept.values())
    if not are_apart(loads_of_terms(apart), rows, apart) or nbytes > target.l2_bytes // 4:
        return None
    loads: dict[Expression, Expression] = {r: Load(m, place) for r, m in kept.items()}
    read = (s for s in columns.body if isinstance(s, Accumulate))
    again = replace(
        columns, body=tuple(rewritten(s, partial(exchanged, known=loads)) for s in read)
    )
    behind = tuple(again if s is columns else s for s in rows.body)
    found = tiles_of(tuple(outer), rows, apart, behind, FEWEST_REDUCED, target)
    return replace(found, block=0) if found else None


def are_apart(loads: Sequence[Load], rows: Loop, columns: Loop) -> bool:
    """Whether some loads depend on the row and some on the column, none on both."""
    of_rows = {load for load in loads if load.depends_on(rows.var)}
    of_columns = {load for load in loads if load.depends_on(columns.var)}
    return bool(of_rows and of_columns) and of_rows.isdisjoint(of_columns)


def is_light(columns: Loop) -> bool:
    """Whether loads are what the terms of sums wait for, and all else lies along the columns."""
    values, terms = [s.value for s in sums_in(columns.body)], loads_of_terms(columns)
    every = list(dict.fromkeys(load for value in values for load in loads_of(value)))
    others = [load for load in every if load not in terms]
    for statement in columns.body:
        if isinstance(statement, (Declare, Store)):
            others += loads_of(statement.value)
    stores = (s for s in columns.body if isinstance(s, Store))
    return (
        all(cost(value) <= HEAVIEST for value in values)
        and not any(isinstance(e, Apply) and e.op in TRANSCENDENTAL for e in walk(values))
        and all(s.index.coefficient(columns.var) == 1 for s in stores)
        and all(load.index.coefficient(columns.var) in (0, 1) for load in others)
        and len(plain_loads(values)) == len(every)
        and not any(has_registers(index_free(load.index)) for load in (*every, *others))
    )


def loads_of_terms(columns: Loop) -> list[Load]:
    """What the sums of columns load anew for each of their terms."""
    summed = {s.var for s in below(columns.body) if isinstance(s, Loop)}
    loads = dict.fromkeys(load for s in sums_in(columns.body) for load in loads_of(s.value))
    return [load for load in loads if not summed.isdisjoint(load.free)]


def tiles_of(
    outer: tuple[Loop, ...], rows: Loop, columns: Loop, behind: Body, shortest: int, target: Target
) -> Tiles | None:
    """Tiles that fit the registers; None where loads are not what a term waits for, or columns do
    not fill a vector."""
    sums, var, terms = sums_in(columns.body), columns.var, loads_of_terms(columns)
    right = tuple(load for load in terms if load.depends_on(var))
    summed = [s.var for s in below(columns.body) if isinstance(s, Loop)]
    along = all(load.index.coefficient(var) is not None for load in right)
    aside = bytes_of(right, [s.var for s in below((*outer, columns)) if isinstance(s, Loop)])
    if not (along and is_light(columns)) or prod(v.extent for v in summed) < shortest:
        return None
    bits = bits_of(columns)
    lanes = target.vector_bytes * 8 // bits
    while lanes > var.extent:
        lanes //= 2
    most = min(target.vector_registers // 2 // (ROWS * len(sums)), var.extent // lanes)
    fitting = [vectors for vectors in VECTORS if vectors <= most]
    if lanes < target.short_lanes(bits) or not fitting or aside > MOST_ASIDE:
        return None
    vectors = min(fitting, key=lambda v: ceil_div(var.extent, v * lanes) * (2 * v + 1))
    depth = max(prod(v.extent for v in summed if load.depends_on(v)) for load in right)
    held = target.l2_bytes // 8 // (ROWS * depth * bits // 8)
    block = max(held, 1) if aside > target.l2_bytes // 2 else 0
    return Tiles(outer, rows, columns, right, lanes, vectors, block, behind)


def bits_of(columns: Loop) -> int:
    """Of the widest element that terms load or are."""
    values = (s.value for s in sums_in(columns.body))
    return max(e.dtype.bits for e in (*loads_of_terms(columns), *values))


def bytes_of(loads: Sequence[Load], variables: Sequence[Var]) -> int:
    """What all that is loaded along some variables takes, put side by side."""
    sizes = (prod(v.extent for v in {*variables} if load.depends_on(v)) for load in loads)
    return sum(size * load.dtype.itemsize for size, load in zip(sizes, loads, strict=True))


# --- their loops ---------------------------------------------------------------------------------


def tiled(tiles: Tiles, numbers: Iterator[int]) -> Body:
    """The nest in tiles, behind what puts columns side by side."""
    rows, columns = tiles.rows.var, tiles.columns
    across = [load for load in tiles.loads if load.index.coefficient(columns.var) != 1]
    inside = (s.var for s in below((*tiles.outer, columns)) if isinstance(s, Loop))
    order = (*(v for v in inside if v != columns.var), columns.var)
    body, aside = from_scratch(columns.body, across, order, numbers)
    turn, body = in_slots(body, rows, ROWS)
    width = tiles.lanes * tiles.vectors
    columns = replace(columns, axis=Axis.VECTOR, width=width, chains=tiles.vectors, body=body)
    if tiles.block:
        block = Var(f"{rows.name}_block", ceil_div(turn.extent, tiles.block))
        start = index(block) * tiles.block
        part = Loop(turn, Axis.SERIAL, body, start=start, count=tiles.block)
        nest = Loop(block, Axis.SERIAL, (replace(columns, body=(part,)),))
    elif tiles.behind:
        scratch = dict.fromkeys(s.memory for s in body if isinstance(s, Store))
        row = row_of(turn, rows, ROWS)
        behind = Loop(Var(SLOT, ROWS), Axis.SERIAL, substituted(tiles.behind, {rows: row}))
        nest = Loop(turn, Axis.SERIAL, (*map(Allocate, scratch), columns, behind))
    else:
        nest = Loop(turn, Axis.SERIAL, (columns,))
    return (*aside, *around(tiles.outer, (nest,)))


def in_slots(body: Body, var: Var, count: int) -> tuple[Var, Body]:
    """(a loop's turns of so many iterations, these at once)."""
    turn, slot = Var(var.name, ceil_div(var.extent, count)), Var(SLOT, count)
    body = substituted(body, {var: row_of(turn, var, count)})
    return turn, all_at_once(Loop(slot, Axis.SERIAL, body))


def row_of(turn: Var, var: Var, count: int) -> Index:
    """An iteration of a turn of `count`. The last turn overlaps the one before it, so that each sum
    is added up like the others."""
    return at_most(index(turn) * count, var.extent - count) + index(Var(SLOT, count))


def from_scratch(
    body: Body, loads: Sequence[Load], order: Sequence[Var], numbers: Iterator[int]
) -> tuple[Body, Body]:
    """(a body that loads from scratch instead, what fills that with all that is loaded: in the
    order of these variables, the last one side by side)."""
    known: dict[Expression, Expression] = {}
    fill: list[Statement] = []
    for load in loads:
        own = [v for v in dict.fromkeys(order) if load.depends_on(v)]
        place = linear([index(v) for v in own], [v.extent for v in own])
        size = prod(v.extent for v in own)
        memory = Memory(f"aside{next(numbers)}", load.dtype, size, local=True)
        known[load] = Load(memory, place)
        fill += [Allocate(memory), *nested(own, (Store(memory, place, load),))]
    return tuple(rewritten(s, partial(exchanged, known=known)) for s in body), tuple(fill)


# --- a batch that is innermost in memory ---------------------------------------------------------


def along_both(
    nest: Sequence[Loop], target: Target, moves: list[str], numbers: Iterator[int]
) -> Body:
    """A nest whose lanes run along both operands, as those of a batch do: rows of one by rows of
    the other, a vector of the batch each. Where each is read often, those of one vector are put
    side by side first, for they lie in few sets of the caches; unless there are fewer such vectors
    than threads."""
    *outer, batch = nest
    sums, var, terms = sums_in(batch.body), batch.var, loads_of_terms(batch)
    along = [load for load in terms if load.index.coefficient(var) == 1]
    still = all(load in along or load.index.coefficient(var) == 0 for load in terms)
    depth = prod(s.var.extent for s in below(batch.body) if isinstance(s, Loop))
    if not (along and still and is_light(batch)) or depth < FEWEST_TERMS:
        return ()
    high = target.vector_registers // 2 // (ROWS * len(sums))
    whole = target.vector_bytes * 8 // bits_of(batch)
    lanes = whole if whole <= var.extent else whole // 2
    pair = next((p for p in itertools.combinations(outer, 2) if fills(p, terms, along)), None)
    if pair is None or lanes > var.extent or not high:
        return ()
    rows, columns = pair
    block, lane = Var(f"{var.name}_block", ceil_div(var.extent, lanes)), Var(LANE, lanes)
    place = at_most(index(block) * lanes, var.extent - lanes) + index(lane)
    body, aside = substituted(batch.body, {var: place}), tuple[Statement, ...]()
    left = [loop for loop in outer if loop not in pair]
    often = min(rows.var.extent, columns.var.extent) >= OFTEN
    if often and block.extent * prod(loop.var.extent for loop in left) >= target.threads:
        order = (rows.var, columns.var, *(s.var for s in below(body) if isinstance(s, Loop)), lane)
        loads = dict.fromkeys(e for s in sums_in(body) for e in loads_of(s.value))
        moved = [load for load in loads if load.depends_on(lane)]
        if bytes_of(moved, order) <= MOST_ASIDE:
            body, aside = from_scratch(body, moved, order, numbers)
    turns: list[Var] = []
    for loop, count in ((columns, high), (rows, ROWS)):
        turn, body = in_slots(body, loop.var, count)
        turns.insert(0, turn)
    moves.append(f"tile {rows.var.name} {ROWS} x {columns.var.name} {high} of {var.name} {lanes}")
    inner = nested(turns, (Loop(lane, Axis.VECTOR, body, lanes),))
    return around(left, nested([block], (*aside, *inner)))


def fills(pair: tuple[Loop, Loop], terms: Sequence[Load], along: Sequence[Load]) -> bool:
    """Whether two loops have turns enough for a tile, and what is loaded for either lies along the
    lanes, at least in part."""
    return (
        min(loop.var.extent for loop in pair) >= ROWS
        and are_apart(terms, *pair)
        and are_apart(along, *pair)
    )
