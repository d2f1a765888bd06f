"""Reduce across rows in the order of memory: accumulators lie in a row of scratch.

In: a loop over columns with a reduce over rows inside, as the lowering writes it. Out: the rows
outside, the columns inside, so that memory is read from start to end:

    for i in 4096:                         local add0_parts: f32[131072]
      add0 = 0.0                           for j_strip in 32 parallel:
      for j in 4096 reduce:                  local add0_columns: f32[4096]
        add0 += x[j*4096 + i]          ->    for i in 4096: add0_columns[i] = 0.0
      y[i] = add0                            for j in j_strip*128 .. +128 of 4096 ordered:
                                               for i in 4096: add0_columns[i] += x[j*4096 + i]
                                             for i in 4096:
                                               add0_parts[j_strip*4096 + i] = add0_columns[i]
                                           for i in 4096:
                                             add0 = 0.0
                                             for j_strip in 32: add0 += add0_parts[j_strip*4096 + i]
                                             y[i] = add0

Column by column each row would give a line or two to a pass, which neither the prefetcher nor the
page tables like. The number of strips depends on the shape alone, so results are the same bits on
any number of threads. Where columns are many and rows few, each vector of columns takes whole lines
of a row, and nothing is turned, unless no cache holds them: then the same is done with some columns
after the other (`in_parts`). Rows of one array are added four at a time, each from its own quarter
of a strip (`in_streams`). Where columns are few, threads share the rows too, but the accumulators
are registers (`strips_of_rows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from itertools import takewhile
from math import gcd, prod

from tinyhlo.codegen.bodies import names_set, nest_of, only_sums, rewritten, substituted
from tinyhlo.codegen.contraction.cut import at_most
from tinyhlo.codegen.expressions import (
    Apply,
    Expression,
    Literal,
    Load,
    Memory,
    Read,
    apply,
    exchanged,
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
)
from tinyhlo.codegen.moves.expansion import Expansion
from tinyhlo.codegen.moves.long_sums import blocked
from tinyhlo.codegen.moves.parallel import kept_apart, split_reduce
from tinyhlo.codegen.moves.write_out import uses_registers
from tinyhlo.codegen.walks import loads_of, walk
from tinyhlo.ir.index import Var, index
from tinyhlo.numbers import ceil_div
from tinyhlo.records import dataclass
from tinyhlo.target import Target

ROW_STRIPS = 32  # pieces of a long reduce: enough to balance, few enough to join quickly
MIN_ROWS = 16  # rows of a strip: fewer would be joined in the time they are summed
WIDE = 4096  # columns: more make use of whole lines, and need many rows to share
WIDEST = 1 << 16  # columns: their accumulators stay in L2
VECTORS = 8  # of one row added in one turn
PART = 2048  # columns, where they are many, the rows few, and all of it far: long runs of memory
NARROW = 512  # bytes of a row, and fewer: sums of its columns are registers
FEW_TURNS = 4  # of such a strip
SHARED = 4  # vectors of a row, of which each thread has some, while a cache holds all rows
STREAMS = 4  # rows at a time, of which one vector is added in one turn


@dataclass(frozen=True, slots=True)
class Columns:
    """A nest `for column: declares; for rows: accumulates; rest`, of `rows` the outermost first."""

    column: Var
    declares: tuple[Declare, ...]
    rows: tuple[Loop, ...]
    accumulates: tuple[Accumulate, ...]
    rest: Body

    @property
    def row_count(self) -> int:
        return prod(loop.var.extent for loop in self.rows)

    @property
    def loads(self) -> list[Load]:
        return [load for s in self.accumulates for load in loads_of(s.value)]

    @property
    def along(self) -> list[Load]:
        return [load for load in self.loads if load.index.coefficient(self.column) == 1]

    @property
    def itemsize(self) -> int:
        """Bytes of the widest sum."""
        return max(d.value.dtype.itemsize for d in self.declares)

    @property
    def nbytes(self) -> int:
        """Bytes of one array over these columns and rows."""
        return self.column.extent * self.row_count * self.itemsize


def by_rows(
    body: Body, target: Target, moves: list[str], once: bool = False, top: bool = True
) -> Body:
    """Turn every loop over columns below `body` that gains from it; those at the `top` may use all
    threads. `once`: no column may be computed twice."""
    result: list[Statement] = []
    parts = body if once else (in_parts(s, target, moves) for s in body)
    for statement in fissioned(parts, target):
        columns = find_columns(statement)
        if columns is not None and top and is_narrow(columns, target):
            moves.append(f"strips around {columns.column.name}")
            result.extend(strips_of_rows(columns, target))
        elif columns is not None and pays(columns, target):
            moves.append(f"rows outside {columns.column.name}")
            result.extend(turned(columns, top, target, moves))
        elif isinstance(statement, Loop) and statement.axis is Axis.SERIAL:
            inner = by_rows(statement.body, target, moves, once, top=False)
            result.append(replace(statement, body=inner))
        else:
            result.append(statement)
    return tuple(result)


def in_parts(statement: Statement, target: Target, moves: list[str]) -> Statement:
    """Many columns of few far rows: a loop over parts of them, and one over the columns of a part.
    The last part begins earlier and computes some columns again."""
    if not isinstance(statement, Loop) or statement.var.extent < 2 * WIDE:
        return statement
    found = [columns for part in reduces_apart(statement) if (columns := find_columns(part))]
    if not any(is_far(columns, target) for columns in found):
        return statement
    extent = statement.var.extent
    name = statement.var.name
    part, column = Var(f"{name}_part", ceil_div(extent, PART)), Var(name, PART)
    place = at_most(index(part) * PART, extent - PART) + index(column)
    loop = Loop(column, Axis.SERIAL, substituted(statement.body, {statement.var: place}))
    if not all(pays(c, target) for s in reduces_apart(loop) if (c := find_columns(s))):
        return statement
    moves.append(f"parts {column.name} {PART}")
    return Loop(part, Axis.SERIAL, (loop,))


def fissioned(body: Iterable[Statement], target: Target) -> Body:
    """Loops over columns with several reduces in parts of one reduce each, where all parts gain by
    being turned: each is a pass over what it reads, in the order of memory."""
    result: list[Statement] = []
    for statement in body:
        several = isinstance(statement, Loop) and sum(map(is_reduce, statement.body)) > 1
        parts = reduces_apart(statement) if several else (statement,)
        found = [columns for part in parts if (columns := find_columns(part))]
        alone = len(found) > 1 and all(pays(columns, target) for columns in found)
        result += parts if alone else [statement]
    return tuple(result)


def reduces_apart(statement: Statement) -> Body:
    """A loop over columns for each reduce in one, and a last one for what follows. What a reduce
    finds lies in a row of scratch for the loops behind it."""
    match statement:
        case Loop(var=column, axis=Axis.SERIAL, count=None, body=body):
            pass
        case _:
            return (statement,)
    if uses_registers(statement):
        return (statement,)
    declares = declares_of(body)
    reduces = list(takewhile(is_reduce, body[len(declares) :]))
    known: dict[Expression, Expression] = {}

    def with_known(part: Body, names: Mapping[str, str]) -> Body:
        values = dict(known)
        return tuple(
            rewritten(s, lambda e: exchanged(e, values), name_of=lambda n: names.get(n, n))
            for s in part
        )

    result: list[Statement] = []
    for number, loop in enumerate(reduces):
        own = {Read(d.name, d.value.dtype): d for d in declares if d.name in names_set((loop,))}
        # a sum of joined arrays goes on from where the loop before has left it
        names = {read.name: f"{read.name}_{number}" if read in known else read.name for read in own}
        starts = [Declare(names[d.name], known.get(read, d.value)) for read, d in own.items()]
        (sums,) = with_known((loop,), names)
        rows = {
            read: Memory(f"{names[read.name]}_row", read.dtype, column.extent, local=True)
            for read in own
        }
        stores = [
            Store(row, index(column), Read(names[read.name], read.dtype))
            for read, row in rows.items()
        ]
        part = Loop(column, Axis.SERIAL, (*starts, sums, *stores))
        result += [*map(Allocate, rows.values()), part]
        known |= {read: Load(row, index(column)) for read, row in rows.items()}
    rest = with_known(body[len(declares) + len(reduces) :], {})
    return (*result, replace(statement, body=rest))


def declares_of(body: Body) -> tuple[Declare, ...]:
    """The registers that a body begins with."""
    first = takewhile(lambda s: isinstance(s, Declare), body)
    return tuple(s for s in first if isinstance(s, Declare))


def is_reduce(statement: Statement) -> bool:
    return isinstance(statement, Loop) and statement.axis is Axis.REDUCE


def find_columns(statement: Statement) -> Columns | None:
    """The parts of a loop over columns whose body is one reduce and what follows it."""
    match statement:
        case Loop(var=column, axis=Axis.SERIAL, count=None, body=body):
            pass
        case _:
            return None
    declares = declares_of(body)
    reduces = [s for s in body if isinstance(s, Loop)]
    if len(reduces) != 1 or body[len(declares)] is not reduces[0]:
        return None
    rows = nest_of(reduces[0], Axis.REDUCE)
    sums = only_sums(rows[-1].body) if rows else []
    simple = {s.name for s in sums} == {d.name for d in declares} != set()
    rest = body[len(declares) + 1 :]
    return Columns(column, declares, tuple(rows), tuple(sums), rest) if simple else None


def pays(columns: Columns, target: Target) -> bool:
    """Neighbours along the columns, rows apart, and more data than the second cache holds, or the
    last one holds of all that the loops around walk."""
    if columns.row_count < MIN_ROWS or columns.column.extent > WIDEST:
        return False
    if columns.column.extent > WIDE and columns.rows[0].var.extent < ROW_STRIPS * MIN_ROWS:
        return False
    if columns.column.extent * 4 < 2 * target.vector_bytes:
        return False
    inner = columns.rows[-1].var
    across = [load for load in columns.loads if load.index.coefficient(inner) == 1]
    large = is_far(columns, target) or columns.nbytes > target.l2_bytes // 2
    return len(columns.along) > len(across) and large


def is_narrow(columns: Columns, target: Target) -> bool:
    """Whether a row is short, and rows are many: more of them where threads may share columns."""
    nbytes = columns.column.extent * columns.itemsize
    rows = rows_of_vectors(columns, target)
    few = nbytes < SHARED * target.vector_bytes
    return (
        target.vector_bytes // 2 <= nbytes * rows
        and nbytes <= NARROW
        and columns.row_count >= ROW_STRIPS * max(MIN_ROWS, FEW_TURNS * rows)
        and columns.rows[0].var.extent >= ROW_STRIPS * rows
        and columns.nbytes >= (target.l1_bytes if few else target.l2_bytes // 2)
        and len(columns.along) > 0
    )


def is_far(columns: Columns, target: Target) -> bool:
    """Whether an array that is read along the columns fills half of the last cache."""
    return any(2 * load.memory.nbytes >= target.l3_bytes for load in columns.along)


def turned(columns: Columns, top: bool, target: Target, moves: list[str]) -> Body:
    """The loops in the other order, those at the `top` in strips."""
    lanes = target.vector_bytes // columns.itemsize
    rows = around(columns.rows, columns.accumulates)[0]
    assert isinstance(rows, Loop)
    strips = min(ROW_STRIPS, rows.var.extent // MIN_ROWS)
    if not top or strips < 2:
        return whole(columns, blocked(rows, moves), lanes)
    return row_strips(columns, blocked(rows, moves, strips), strips, lanes)


def whole(columns: Columns, rows: Loop, lanes: int) -> Body:
    """All rows in one go; what follows the reduce reads its results from scratch."""
    expansion, sums = of_all_columns(columns.column, (*columns.declares, rows), lanes)
    reads = (Read(d.name, d.value.dtype) for d in columns.declares)
    results = (Declare(read.name, expansion.columns[read]) for read in reads)
    last = Loop(columns.column, Axis.SERIAL, (*results, *columns.rest))
    return (*expansion.scratch, *sums, last)


def row_strips(columns: Columns, rows: Loop, count: int, lanes: int) -> Body:
    """Each strip of rows has accumulators of its own, joined in order afterwards."""
    column, length = columns.column, ceil_div(rows.var.extent, count)
    parts, strips, join = split_reduce(columns.declares, rows, length, column)
    expansion, sums = of_all_columns(column, strips.body, lanes)
    strips = replace(strips, body=(*expansion.scratch, *sums))
    return (*parts, strips, Loop(column, Axis.SERIAL, (*columns.declares, join, *columns.rest)))


def strips_of_rows(columns: Columns, target: Target) -> Body:
    """The same of few columns, whose accumulators are registers: threads share the rows, and not
    the columns, of which each thread would fetch the same lines. Rows that follow each other in
    memory are added as one row of whole vectors, and what is no whole strip comes last."""
    column, declares = columns.column, columns.declares
    (rows,) = around(columns.rows, columns.accumulates)
    assert isinstance(rows, Loop)
    at_a_time = rows_of_vectors(columns, target)
    turns = rows.var.extent // at_a_time
    count = min(range(ROW_STRIPS, ROW_STRIPS // 2, -1), key=lambda count: turns % count)
    length = turns // count
    strip, row = Var(f"{rows.var.name}_strip", count), Var(rows.var.name, length)
    wide = Var(column.name, column.extent * at_a_time)
    first = (index(strip) * length + index(row)) * at_a_time
    sums = Loop(row, Axis.REDUCE, substituted(rows.body, {rows.var: first, column: index(wide)}))
    part = Var(f"{rows.var.name}_part", count * at_a_time)
    size = part.extent * column.extent
    place = index(strip) * wide.extent + index(wide)
    again = index(part) * column.extent + index(column)
    parts, kept, joined = kept_apart(declares, sums, size, place, again)
    strips = Loop(strip, Axis.SERIAL, (Loop(wide, Axis.SERIAL, kept),))
    together = [Loop(part, Axis.REDUCE, joined)]
    done = part.extent * length
    left = Var(rows.var.name, rows.var.extent - done)
    if left.extent:
        rest = substituted(rows.body, {rows.var: index(left) + done})
        together.append(Loop(left, Axis.REDUCE, rest))
    last = Loop(column, Axis.SERIAL, (*declares, *together, *columns.rest))
    return (*parts, strips, last)


def rows_of_vectors(columns: Columns, target: Target) -> int:
    """How many rows are a number of whole vectors, where terms are made of nothing but rows that
    follow each other; else 1, as where they ask for the number of a row or of a column."""
    (row, *more), extent = columns.rows, columns.column.extent
    lanes = target.vector_bytes // columns.itemsize
    follow = all(load.index.coefficient(row.var) == extent for load in columns.along)
    every = walk(s.value for s in columns.accumulates)
    plain = all(isinstance(e, (Apply, Literal, Load, Read)) for e in every)
    dense = not more and follow and plain and len(columns.along) == len(columns.loads)
    return lanes // gcd(lanes, extent) if dense else 1


def of_all_columns(column: Var, body: Body, lanes: int) -> tuple[Expansion, Body]:
    """A body put around all columns. A turn adds several vectors of one row, so that the next lines
    are on their way meanwhile, or one vector of several rows."""
    streams = in_streams(body)
    width = lanes * (VECTORS if streams == body else 1)
    loop = Loop(column, Axis.SERIAL, ())
    if column.extent >= width:
        loop = replace(loop, axis=Axis.VECTOR, width=width, chains=width // lanes)
    expansion = Expansion(lambda body: replace(loop, body=body), index(column), column.extent)
    return expansion, expansion.expanded(streams)


def in_streams(body: Body) -> Body:
    """Rows of one array four at a time, each from its own quarter: one after the other they are one
    stream of memory, and prefetchers follow several as fast as each alone."""
    return tuple(in_quarters(s) if isinstance(s, Loop) else s for s in body)


def in_quarters(loop: Loop) -> Loop:
    sums, count = only_sums(loop.body), loop.count or loop.var.extent
    if not sums:
        inner = in_streams(loop.body)
        return loop if inner == loop.body else replace(loop, body=inner)
    read = {load for s in sums for load in loads_of(s.value) if load.depends_on(loop.var)}
    if len(read) != 1 or loop.var.extent % count or count % STREAMS:
        return loop
    row = Var(loop.var.name, count // STREAMS)
    quarters = (loop.start + k * row.extent + index(row) for k in range(STREAMS))
    rows = [only_sums(substituted(loop.body, {loop.var: place})) for place in quarters]
    together = (reduce(combined, alike) for alike in zip(*rows, strict=True))
    return Loop(row, loop.axis, tuple(together))


def combined(one: Accumulate, other: Accumulate) -> Accumulate:
    """Two accumulations into one register as one of both values."""
    return replace(one, value=apply(one.op, (one.value, other.value), one.value.dtype))
