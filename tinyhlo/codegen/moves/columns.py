"""Reduce across rows in the order of memory: accumulators lie in a row of scratch.

In: a loop over columns with a reduce over rows inside, as the lowering writes it. Out: the rows
outside, the columns inside, so that memory is read from start to end:

    for i in 4096:                         local add0_rows: f32[131072]
      add0 = 0.0                           for strip in 32 parallel:
      for j in 4096 reduce:                  for i in 4096: add0_rows[strip*4096 + i] = 0.0
        add0 += x[j*4096 + i]          ->    for j in strip*128 .. +128 of 4096 ordered:
      y[i] = add0                              for i in 4096:
                                                 add0_rows[strip*4096 + i] += x[j*4096 + i]
                                           for i in 4096:
                                             add0 = 0.0
                                             for strip in 32: add0 += add0_rows[strip*4096 + i]
                                             y[i] = add0

Column by column each row would give a line or two to a pass, which neither the prefetcher nor the
page tables like. The number of strips depends on the shape alone, so results are the same bits on
any number of threads. Where columns are many, each vector of them takes whole lines of a row, and
nothing is turned. Long sums of floats are made of blocks of rows, each in another row of
scratch first (`long_sums.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from math import isqrt, prod

from tinyhlo.codegen.expressions import Apply, Expression, Load, Memory, identity
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
from tinyhlo.codegen.walks import loads_of
from tinyhlo.ir.index import ZERO, Index, Var, index
from tinyhlo.ir.ops import Op
from tinyhlo.records import dataclass
from tinyhlo.target import Target

ROW_STRIPS = 32  # pieces of a long reduce: enough to balance, few enough to join quickly
MIN_ROWS = 16  # rows of a strip: fewer would be joined in the time they are summed
WIDEST = 4096  # columns: their accumulators stay in L1, and more make use of whole lines
VECTORS = 8  # added in one turn
LONG = 256  # rows beyond which sums of floats are made in blocks
BLOCK = 64  # rows at least


Rows = tuple[Loop, ...]  # directly inside each other


@dataclass(frozen=True, slots=True)
class Columns:
    """for `column`: `declares`; for `rows` (outermost first): `accumulates`; `rest`."""

    column: Var
    declares: tuple[Declare, ...]
    rows: Rows
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
            result.extend(turned(columns, top, target))
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
    accumulates = tuple(s for s in rows[-1].body if isinstance(s, Accumulate))
    names = {s.name for s in accumulates}
    simple = (
        all(loop.axis is Axis.REDUCE and loop.count is None for loop in rows)
        and len(accumulates) == len(rows[-1].body) == len(names)
        and names == {d.name for d in declares}
        and all(names.isdisjoint(s.value.free) for s in accumulates)
    )
    rest = body[leading + 1 :]
    return Columns(column, declares, tuple(rows), accumulates, rest) if simple else None


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


def turned(columns: Columns, top: bool, target: Target) -> Body:
    """The loops in the other order, in strips."""
    lanes = target.vector_bytes // max(d.value.dtype.itemsize for d in columns.declares)
    strips = min(ROW_STRIPS, columns.rows[0].var.extent // MIN_ROWS)
    if not top or strips < 2:
        return whole(columns, lanes)
    return row_strips(columns, strips, lanes)


def row_strips(columns: Columns, count: int, lanes: int) -> Body:
    """Each strip of rows has accumulators of its own, joined in order afterwards."""
    extent = columns.column.extent
    rows, block = in_blocks(columns, count)
    outer = rows[0]
    length = -(-outer.var.extent // count)
    strip = Var("strip", -(-outer.var.extent // length))
    parts = memories(columns, strip.extent * extent)
    start = index(strip) * extent
    rows = (replace(outer, start=index(strip) * length, count=length), *rows[1:])
    sums = accumulate(columns, parts, start, rows, block, lanes)
    joined = tuple(
        Accumulate(s.name, s.op, Load(memory, start + index(columns.column)))
        for s, memory in zip(columns.accumulates, parts, strict=True)
    )
    last = (*columns.declares, Loop(strip, Axis.REDUCE, joined), *columns.rest)
    return (
        *map(Allocate, parts),
        Loop(strip, Axis.PARALLEL, sums),
        Loop(columns.column, Axis.SERIAL, last),
    )


def whole(columns: Columns, lanes: int) -> Body:
    """What follows the reduce reads its results from scratch."""
    parts = memories(columns, columns.column.extent)
    sums = accumulate(columns, parts, ZERO, *in_blocks(columns), lanes)
    pairs = zip(columns.accumulates, parts, strict=True)
    results = (Declare(s.name, Load(memory, index(columns.column))) for s, memory in pairs)
    last = Loop(columns.column, Axis.SERIAL, (*results, *columns.rest))
    return (*map(Allocate, parts), *sums, last)


def in_blocks(columns: Columns, pieces: int = 1) -> tuple[Rows, Rows]:
    """The loops over rows, of which `pieces` are added up on their own, and those of a block: none
    where sums are short or exact."""
    rows = columns.rows
    chain = columns.row_count // pieces
    rounds = any(s.op is Op.ADD and s.value.dtype.is_float for s in columns.accumulates)
    if not rounds or chain <= LONG:
        return rows, ()
    size = max(BLOCK, isqrt(chain))
    number, below = len(rows) - 1, 1
    while number > 0 and below * rows[number].var.extent < size:
        below *= rows[number].var.extent
        number -= 1
    loop, each = rows[number], max(1, size // below)
    block = Var(f"{loop.var.name}_block", -(-loop.var.extent // each))
    inside = replace(loop, start=index(block) * each, count=each)
    return (*rows[:number], Loop(block, Axis.ORDERED, ())), (inside, *rows[number + 1 :])


def memories(columns: Columns, size: int, use: str = "rows") -> tuple[Memory, ...]:
    """Scratch for each accumulator, in the order in which they accumulate."""
    types = {d.name: d.value.dtype for d in columns.declares}
    return tuple(
        Memory(f"{s.name}_{use}", types[s.name], size, local=True) for s in columns.accumulates
    )


def accumulate(
    columns: Columns,
    parts: Sequence[Memory],
    start: Index,
    rows: Rows,
    block: Rows,
    lanes: int,
) -> Body:
    """Clear the scratch from `start` on, then add row after row; or block after block, each of
    which is added up in scratch of its own."""

    def over(stores: Sequence[Store]) -> Loop:
        return wide(Loop(columns.column, Axis.SERIAL, tuple(stores)), lanes)

    place = start + index(columns.column)
    values = [s.value for s in columns.accumulates]
    clear, add = over(cleared(columns, parts, place)), over(added(columns, parts, place, values))
    if not block:
        return (clear, *around(in_order(rows), (add,)))
    own, at = memories(columns, columns.column.extent, "block"), index(columns.column)
    body = (
        over(cleared(columns, own, at)),
        *around(in_order(block), (over(added(columns, own, at, values)),)),
        over(added(columns, parts, place, [Load(memory, at) for memory in own])),
    )
    return (*map(Allocate, own), clear, *around(in_order(rows), body))


def cleared(columns: Columns, parts: Sequence[Memory], place: Index) -> list[Store]:
    pairs = zip(columns.accumulates, parts, strict=True)
    return [Store(memory, place, identity(s.op, memory.dtype)) for s, memory in pairs]


def added(
    columns: Columns, parts: Sequence[Memory], place: Index, values: Sequence[Expression]
) -> list[Store]:
    terms = zip(columns.accumulates, parts, values, strict=True)
    return [
        Store(memory, place, Apply(s.op, (Load(memory, place), value), memory.dtype))
        for s, memory, value in terms
    ]


def in_order(rows: Rows) -> Rows:
    return tuple(replace(loop, axis=Axis.ORDERED) for loop in rows)


def wide(loop: Loop, lanes: int) -> Loop:
    """Several vectors a turn: the next lines are on their way while these are added."""
    width = lanes * VECTORS
    if loop.var.extent < width:
        return loop
    return replace(loop, axis=Axis.VECTOR, width=width, chains=VECTORS)
