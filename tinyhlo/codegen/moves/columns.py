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
any number of threads. Where columns are many, each vector of them takes whole lines of a row, and
nothing is turned.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from math import prod

from tinyhlo.codegen.bodies import only_sums
from tinyhlo.codegen.expressions import Read
from tinyhlo.codegen.loops import (
    Accumulate,
    Axis,
    Body,
    Declare,
    Loop,
    Statement,
    around,
)
from tinyhlo.codegen.moves.expansion import Expansion
from tinyhlo.codegen.moves.long_sums import blocked
from tinyhlo.codegen.moves.parallel import split_reduce
from tinyhlo.codegen.walks import loads_of
from tinyhlo.ir.index import Var, index
from tinyhlo.records import dataclass
from tinyhlo.target import Target

ROW_STRIPS = 32  # pieces of a long reduce: enough to balance, few enough to join quickly
MIN_ROWS = 16  # rows of a strip: fewer would be joined in the time they are summed
WIDEST = 4096  # columns: their accumulators stay in L1, and more make use of whole lines
VECTORS = 8  # added in one turn


@dataclass(frozen=True, slots=True)
class Columns:
    """for `column`: `declares`; for `rows` (outermost first): `accumulates`; `rest`."""

    column: Var
    declares: tuple[Declare, ...]
    rows: tuple[Loop, ...]
    accumulates: tuple[Accumulate, ...]
    rest: Body

    @property
    def row_count(self) -> int:
        return prod(loop.var.extent for loop in self.rows)

    @property
    def bytes_(self) -> int:
        """Of one array of that shape."""
        largest = max(d.value.dtype.itemsize for d in self.declares)
        return self.column.extent * self.row_count * largest


def by_rows(body: Body, target: Target, moves: list[str], top: bool = True) -> Body:
    """Turn every loop over columns below `body` that gains from it; those at the `top` may use all
    threads."""
    result: list[Statement] = []
    for statement in body:
        columns = find_columns(statement)
        if columns is not None and pays(columns, target):
            moves.append(f"rows outside {columns.column.name}")
            result.extend(turned(columns, top, target, moves))
        elif isinstance(statement, Loop) and statement.axis is Axis.SERIAL:
            inner = by_rows(statement.body, target, moves, top=False)
            result.append(replace(statement, body=inner))
        else:
            result.append(statement)
    return tuple(result)


def find_columns(statement: Statement) -> Columns | None:
    """The parts of a loop over columns whose body is one reduce and what follows it."""
    match statement:
        case Loop(var=column, axis=Axis.SERIAL, count=None, body=body):
            pass
        case _:
            return None
    leading = len(list(takewhile(lambda s: isinstance(s, Declare), body)))
    declares = tuple(s for s in body[:leading] if isinstance(s, Declare))
    reduces = [s for s in body if isinstance(s, Loop)]
    if len(reduces) != 1 or body[leading] is not reduces[0]:
        return None
    rows: list[Loop] = [reduces[0]]
    while len(rows[-1].body) == 1 and isinstance(rows[-1].body[0], Loop):
        rows.append(rows[-1].body[0])
    sums = only_sums(rows[-1].body)
    simple = (
        all(loop.axis is Axis.REDUCE and loop.count is None for loop in rows)
        and {s.name for s in sums} == {d.name for d in declares} != set()
    )
    rest = body[leading + 1 :]
    return Columns(column, declares, tuple(rows), tuple(sums), rest) if simple else None


def pays(columns: Columns, target: Target) -> bool:
    """Neighbours along the columns, rows apart, and more data than the second cache holds, or the
    last one holds of all that the loops around walk."""
    if columns.row_count < MIN_ROWS or columns.column.extent > WIDEST:
        return False
    if columns.column.extent * 4 < 2 * target.vector_bytes:
        return False
    inner = columns.rows[-1].var
    loads = [load for s in columns.accumulates for load in loads_of(s.value)]
    along = [load for load in loads if load.index.coefficient(columns.column) == 1]
    across = [load for load in loads if load.index.coefficient(inner) == 1]
    far = any(2 * x.memory.nbytes >= target.l3_bytes for x in along)
    return len(along) > len(across) and (far or columns.bytes_ > target.l2_bytes // 2)


def turned(columns: Columns, top: bool, target: Target, moves: list[str]) -> Body:
    """The loops in the other order, those at the `top` in strips."""
    lanes = target.vector_bytes // max(d.value.dtype.itemsize for d in columns.declares)
    rows = around(columns.rows, columns.accumulates)[0]
    assert isinstance(rows, Loop)
    strips = min(ROW_STRIPS, rows.var.extent // MIN_ROWS)
    if not top or strips < 2:
        return whole(columns, blocked(rows, moves), lanes)
    return row_strips(columns, blocked(rows, moves, strips), strips, lanes)


def whole(columns: Columns, rows: Loop, lanes: int) -> Body:
    """What follows the reduce reads its results from scratch."""
    expansion = wide(columns.column, lanes)
    sums = expansion.expanded((*columns.declares, rows))
    reads = (Read(d.name, d.value.dtype) for d in columns.declares)
    results = (Declare(read.name, expansion.columns[read]) for read in reads)
    last = Loop(columns.column, Axis.SERIAL, (*results, *columns.rest))
    return (*expansion.scratch, *sums, last)


def row_strips(columns: Columns, rows: Loop, count: int, lanes: int) -> Body:
    """Each strip of rows has accumulators of its own, joined in order afterwards."""
    column, length = columns.column, -(-rows.var.extent // count)
    parts, strips, join = split_reduce(columns.declares, rows, length, column)
    expansion = wide(column, lanes)
    sums = expansion.expanded(strips.body)
    strips = replace(strips, body=(*expansion.scratch, *sums))
    return (*parts, strips, Loop(column, Axis.SERIAL, (*columns.declares, join, *columns.rest)))


def wide(column: Var, lanes: int) -> Expansion:
    """Several vectors a turn: the next lines are on their way while these are added."""
    width = lanes * VECTORS
    loop = Loop(column, Axis.SERIAL, ())
    if column.extent >= width:
        loop = replace(loop, axis=Axis.VECTOR, width=width, chains=VECTORS)
    return Expansion(lambda body: replace(loop, body=body), index(column), column.extent)
