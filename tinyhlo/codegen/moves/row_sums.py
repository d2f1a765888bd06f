"""Sums along rows for as many rows at a time as a vector has lanes.

    for i in 240:                          for i in 240 vector 16:
      add0 = 0.0                             add0 = 0.0
      for k in 60 reduce 64:            ->   for k in 60 reduce 16:
        add0 += (a[i*60 + k] * x[k])           add0 += (a[i*60 + k] * x[k])
      y[i] = add0                            y[i] = add0

Lanes along the rows and across them: every row has its own vector (`llvm/row_sums.py`), what all
rows read is read once for all, and their lanes are put together in one go, which takes longer than
to add up a short row. Where each row has sums of its own with a few columns, those are written out,
and fewer rows fill a vector: a matrix times four columns takes four rows at a time.

Short rows that lie side by side are one stream of memory, which no processor fetches far enough
ahead while sums are put together. They are taken from four parts of all rows, two from each; longer
ones, and such as are no equal parts, one by one to their end.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from tinyhlo.codegen.bodies import only_sums, rewritten, substituted
from tinyhlo.codegen.expressions import (
    Apply,
    Expression,
    Load,
    Memory,
    Name,
    exchanged,
    identity,
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
)
from tinyhlo.codegen.moves.jam import all_at_once
from tinyhlo.codegen.moves.write_out import uses_registers
from tinyhlo.codegen.walks import loads_of, walk
from tinyhlo.ir.dtypes import BOOL
from tinyhlo.ir.index import ZERO, Var, index
from tinyhlo.ir.ops import TRANSCENDENTAL, Op
from tinyhlo.target import NEAR, Target

MOST_COLUMNS = 8
FEWEST_TURNS = 4  # that make up for columns that are taken apart before
SPARE = 8  # registers besides those of the sums and of what the rows keep
SET_ROWS = 4  # at a time, of any length: the cache keeps a line of each
STREAMS = (4, 3, 2)  # parts of all rows, as many as divide them
STREAM_SUMS = 8  # of all parts, at a time
FAR_SHARE = 6  # of the first cache: one of so many is for rows that are taken at a time
MOST_NODES = 16  # of a term: there is one for every row


def rows_together(body: Body, target: Target, moves: list[str]) -> Body:
    """Every such loop below a body."""
    result: list[Statement] = []
    for statement in body:
        if isinstance(statement, Loop):
            loop = columns_written_out(statement)
            lanes = lanes_of(loop, target)
            streams = streams_of(loop, target) if lanes else 0
            if streams > 1:
                loop = columns_written_out(rows_apart(loop, streams))
                lanes = lanes_of(loop, target, STREAM_SUMS)
            if lanes and streams:
                if streams > 1:
                    moves.append(f"apart {loop.var.name} {streams}")
                name = f"columns{len(moves)}"
                moves.append(f"rows {loop.var.name} {lanes}")
                aside, loop = columns_aside(loop, name, lanes)
                result += aside
                statement = together(loop, lanes)
            else:
                inner = rows_together(statement.body, target, moves)
                statement = replace(statement, body=inner)
        result.append(statement)
    return tuple(result)


def columns_written_out(loop: Loop) -> Loop:
    """The loop over rows without a loop over a few columns inside it: one sum for each of them, all
    in one loop along the row."""
    match loop.body:
        case (Loop(axis=Axis.SERIAL, width=1, count=None, var=var) as columns,) if (
            var.extent <= MOST_COLUMNS and not uses_registers(columns)
        ):
            return replace(loop, body=all_at_once(columns))
        case _:
            return loop


def streams_of(loop: Loop, target: Target) -> int:
    """How many equal parts of all rows to take rows from in turn: 1 where the rows are in the cache
    or have several sums each, 0 where no number divides them."""
    (along,) = (s for s in loop.body if isinstance(s, Loop))
    terms = only_sums(along.body)
    loads = {e for s in terms for e in loads_of(s.value) if e.depends_on(loop.var)}
    if len(terms) > 1 or not are_far(loads, target.l2_bytes):
        return 1
    return next((n for n in STREAMS if loop.var.extent % n == 0), 0)


def are_far(loads: Collection[Load], cache_bytes: int) -> bool:
    """Whether a cache does not hold what is read."""
    return any(e.memory.nbytes > cache_bytes for e in loads)


def rows_apart(loop: Loop, streams: int) -> Loop:
    """The loop over the rows of one part, and inside it one over the parts."""
    row, part = Var(loop.var.name, loop.var.extent // streams), Var("part", streams)
    place = index(part) * row.extent + index(row)
    body = substituted(loop.body, {loop.var: place})
    return replace(loop, var=row, body=(Loop(part, Axis.SERIAL, body),))


def columns_aside(loop: Loop, name: str, lanes: int) -> tuple[Body, Loop]:
    """(scratch, the loop that reads it): what all rows read at every second, third ... place, put
    side by side first, since taking columns apart costs as much as multiplying with them."""
    (along,) = (s for s in loop.body if isinstance(s, Loop))
    var = along.var
    terms = only_sums(along.body)
    loads = dict.fromkeys(e for s in terms for e in loads_of(s.value) if is_column(e, var))
    if not loads or loop.var.extent < FEWEST_TURNS * lanes:
        return (), loop
    fill: list[Store] = []
    for k, load in enumerate(loads):
        column = Memory(f"{name}_{k}", load.dtype, var.extent, local=True)
        fill.append(Store(column, index(var), load))
    here: dict[Expression, Expression] = {s.value: Load(s.memory, s.index) for s in fill}
    width = along.width // along.chains
    body = (rewritten(s, lambda value: exchanged(value, here)) for s in along.body)
    inner = replace(along, body=tuple(body))
    turned = replace(loop, body=tuple(inner if s is along else s for s in loop.body))
    aside = (*(Allocate(s.memory) for s in fill), Loop(var, Axis.VECTOR, tuple(fill), width))
    return aside, turned


def is_column(load: Load, var: Var) -> bool:
    stride = load.index.coefficient(var)
    return stride in range(2, NEAR + 1) and index_free(load.index) <= frozenset[Name]((var,))


def together(loop: Loop, lanes: int) -> Loop:
    """The loop over rows in lanes, that along them in one vector."""
    body = (
        replace(s, width=s.width // s.chains, chains=1) if isinstance(s, Loop) else s
        for s in loop.body
    )
    return replace(loop, axis=Axis.VECTOR, width=lanes, body=tuple(body))


def lanes_of(loop: Loop, target: Target, most: int = 0) -> int:
    """How many rows to take at a time, 0 if that is not possible or wins nothing; no more sums than
    `most`, if that is given."""
    match [s for s in loop.body if isinstance(s, Loop)]:
        case [Loop(axis=Axis.REDUCE, start=start, count=None) as along] if start == ZERO:
            lanes = along.width // along.chains
        case _:
            return 0
    terms = only_sums(along.body)
    stores = [s for s in loop.body if isinstance(s, Store)]
    declares = [s for s in loop.body if isinstance(s, Declare)]
    plain = loop.axis is Axis.SERIAL and loop.count is None and lanes <= along.var.extent
    if not plain or len(loop.body) != len(declares) + 1 + len(stores):
        return 0
    if not (begin_neutral(declares, terms) and are_near(stores, loop.var)):
        return 0
    if not all(is_simple(s.value) for s in terms):
        return 0
    rows = rows_of(loop.var, along, most or max(lanes, target.vector_registers // 2), target)
    alike = len({s.op for s in terms}) == len({d.value.dtype for d in declares}) == 1
    return rows if 1 < rows <= loop.var.extent and (alike or rows == lanes) else 0


def begin_neutral(declares: Sequence[Declare], terms: Sequence[Accumulate]) -> bool:
    """Whether the registers are those of the sums, each of which begins with the neutral element:
    every row starts with that."""
    ops = {s.name: s.op for s in terms}
    own = set() != ops.keys() == {d.name for d in declares}
    return own and all(d.value is identity(ops[d.name], d.value.dtype) for d in declares)


def are_near(stores: Sequence[Store], row: Var) -> bool:
    """Whether results of neighbouring rows lie next to each other, or nearly, and so does all else
    that they are computed from."""
    apart = (s.index.coefficient(row) for s in stores)
    read = (load.index.coefficient(row) for s in stores for load in loads_of(s.value))
    return all(step in range(1, NEAR + 1) for step in apart) and all(
        step in range(NEAR + 1) for step in read
    )


def rows_of(row: Var, along: Loop, most: int, target: Target) -> int:
    """Rows whose sums, `most` of them together, fill a vector or less, or a vector each if there
    are registers; and which stay in half of the first cache, unless they are so few that it keeps
    a line of each. Of single sums over far memory they stay in less."""
    terms = only_sums(along.body)
    sums, ops = len(terms), {s.op for s in terms}
    loads = {load for s in terms for load in loads_of(s.value)}
    of_row = [load for load in loads if load.depends_on(row)]
    still = sum(not load.depends_on(along.var) for load in of_row)  # these wait in registers

    def registers() -> int:
        return rows * (sums + still) if still else 0

    def nbytes() -> int:
        read = (load.dtype.itemsize * (rows if load in of_row else 1) for load in loads)
        return sum(read) * along.var.extent

    rows = along.width // along.chains
    while rows * sums > most:
        rows //= 2
    if sums == 1:  # nothing but the last step is shared
        # to put the lanes of an extreme together takes longer: it pays out of the third cache too
        cache = target.l3_bytes if ops <= {Op.MAX, Op.MIN} else target.l2_bytes
        share = FAR_SHARE if are_far(of_row, cache) else 2
        return rows if nbytes() <= target.l1_bytes // share else 0
    while rows > 1 and registers() > target.vector_registers - SPARE:
        rows //= 2
    while rows > SET_ROWS and nbytes() > target.l1_bytes // 2:
        rows //= 2
    return rows


def is_simple(value: Expression) -> bool:
    """Whether a term is short, of plain loads, and fills whole lanes of 32 bits and more."""
    nodes = list(walk([value]))
    wide = all(e.dtype.bits >= 32 and e.dtype is not BOOL for e in nodes)
    dear = any(isinstance(e, Apply) and e.op in TRANSCENDENTAL for e in nodes)
    return wide and not dear and len(nodes) <= MOST_NODES
