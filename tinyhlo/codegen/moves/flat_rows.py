"""Elementwise work on rows that fill no vector: lanes run along memory, from row to row.

    for i in 6000: for j in 7:                      for j_place in 112:       # once
      y[i*7 + j] = (x[i*7 + j] - b[j])*s[i]           of_column0[j_place] = b[j_place%7]
                                                    for i_block in 375:
                                               ->     for i_lane in 16 vector 16:
                                                        of_row1[i_lane] = s[i_block*16 + i_lane]
                                                      for j_lane in 16 vector 16:
                                                        y[i_block*112 + j_lane] =
                                                          (x[i_block*112 + j_lane] -
                                                            of_column0[j_lane])*of_row1[j_lane//7]
                                                      ...                     # 7 of these vectors

A block is as many rows as make whole vectors. What all of a row have in common is computed in lanes
of rows, and a shuffle puts it where it belongs (`llvm/known_places.py`); what depends on the column
alone is as many vectors, computed before. Otherwise each column would be taken out of the rows'
vectors and put back, or rows run in parts of a vector. The last block overlaps the one before it;
where no element may be computed twice, rows that are no block run as they did.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import gcd
from types import MappingProxyType

from tinyhlo.codegen.bodies import substituted
from tinyhlo.codegen.contraction.cut import at_most
from tinyhlo.codegen.expressions import (
    Apply,
    Expression,
    Load,
    Memory,
    exchanged,
    has_registers,
    substitute_expression,
)
from tinyhlo.codegen.loops import Allocate, Axis, Body, Loop, Statement, Store, around, nested
from tinyhlo.codegen.moves.basic import over_nests
from tinyhlo.codegen.moves.column_divisors import Tables, known_divisors
from tinyhlo.codegen.walks import walk
from tinyhlo.ir.dtypes import BOOL
from tinyhlo.ir.index import Index, Var, index, substitute
from tinyhlo.numbers import ceil_div
from tinyhlo.records import dataclass
from tinyhlo.target import Target

MOST_VECTORS = 16  # of a block
MOST_NODES = 256  # of expressions in a block
NO_TABLES: Tables = MappingProxyType({})
FEWEST_BLOCKS = 8  # that make up for what is computed before


@dataclass(frozen=True, slots=True)
class Rows:
    """Loops over `rows` and their `columns` inside `outer` ones; the stores of an element, of which
    `by_row` and `by_column` are the largest parts that depend on one of the two alone."""

    outer: tuple[Loop, ...]
    rows: Var
    columns: Var
    stores: tuple[Store, ...]
    by_row: tuple[Expression, ...]
    by_column: tuple[Expression, ...]

    def is_flat(self, where: Index) -> bool:
        """Whether an index counts on from row to row."""
        width = self.columns.extent
        return where.coefficient(self.rows) == width and where.coefficient(self.columns) == 1


def along_memory(
    body: Body, target: Target, moves: list[str], once: bool = False, tables: Tables = NO_TABLES
) -> Body:
    """Every nest of such rows below `body`. `once`: no element may be computed twice."""
    numbers = itertools.count()

    def move(nest: Sequence[Loop]) -> Body:
        rows = find_rows(nest, tables if target.fma else NO_TABLES)
        lanes = lanes_of(rows, target) if rows else 0
        if rows is None or not pays(rows, lanes):
            return ()
        moves.append(f"vector {rows.rows.name} {rows.columns.name} {lanes}")
        return flat(rows, lanes, numbers, once)

    return over_nests(body, move)


def find_rows(nest: Sequence[Loop], tables: Tables) -> Rows | None:
    """The rows of a nest, where all that is stored lies along memory, as does what is loaded for
    each element."""
    if len(nest) < 2:
        return None
    *outer, rows, columns = nest
    stores = tuple(
        replace(s, value=known_divisors(s.value, columns.var, tables))
        for s in columns.body
        if isinstance(s, Store)
    )
    found = Rows(tuple(outer), rows.var, columns.var, stores, (), ())
    both = {rows.var, columns.var}

    def is_of_column(e: Expression) -> bool:
        return columns.var in e.free and rows.var not in e.free

    parts = dict.fromkeys(store.value for store in stores)
    for e in walk(parts.copy(), lambda e: e.free >= both):
        match e:
            case Load(index=where) if found.is_flat(where):
                continue
            case Apply(arguments=arguments):
                parts.update(dict.fromkeys(arguments))
            case _:
                return None
    by_row = tuple(e for e in parts if rows.var in e.free and columns.var not in e.free)
    by_column = tuple(filter(is_of_column, parts))
    around_all = {loop.var for loop in outer}
    if not all(found.is_flat(store.index) for store in stores) or not (by_row or by_column):
        return None
    if any(e.free & around_all for e in by_column) or any(has_registers(e.free) for e in parts):
        return None
    return Rows(tuple(outer), rows.var, columns.var, stores, by_row, by_column)


def lanes_of(rows: Rows, target: Target) -> int:
    """Of vectors of the widest element."""
    nodes = walk(store.value for store in rows.stores)
    sizes = (e.dtype.itemsize for e in nodes if e.dtype is not BOOL)
    return target.vector_bytes // max((1, *sizes))


def rows_of_block(width: int, lanes: int) -> int:
    """The fewest rows that are whole vectors, or a whole vector of rows while that is few."""
    count = lanes // gcd(width, lanes)
    while count < lanes and 2 * count * width <= MOST_VECTORS // 2 * lanes:
        count *= 2
    return count


def pays(rows: Rows, lanes: int) -> bool:
    """Whether rows leave much of their vectors empty, a block is short, and there are many."""
    width = rows.columns.extent
    if width >= lanes and 2 * ceil_div(width, lanes) * lanes < 3 * width:
        return False
    count = rows_of_block(width, lanes)
    vectors = count * width // lanes
    nodes = len(list(walk(store.value for store in rows.stores)))
    if vectors > MOST_VECTORS or vectors * nodes > MOST_NODES:
        return False
    return rows.rows.extent >= FEWEST_BLOCKS * count


def flat(rows: Rows, lanes: int, numbers: Iterator[int], once: bool) -> Body:
    """Tables of columns, the loops over blocks of rows, and those over rows that are no block."""
    width, name, extent = rows.columns.extent, rows.rows.name, rows.rows.extent
    count = rows_of_block(width, lanes)
    before: list[Statement] = []
    place = Var(f"{rows.columns.name}_place", count * width)
    known: dict[Expression, tuple[Memory, int]] = {}  # parts: what of a block is read
    for e in rows.by_column:
        memory = Memory(f"of_column{next(numbers)}", e.dtype, place.extent, local=True)
        value = substitute_expression(e, {rows.columns: index(place) % width}, {})
        store = Store(memory, index(place), value)
        before += [Allocate(memory), Loop(place, Axis.SERIAL, (store,))]
        known[e] = memory, 1
    block = Var(f"{name}_block", extent // count if once else ceil_div(extent, count))
    first = at_most(index(block) * count, extent - count)
    inside: list[Statement] = []
    row = Var(f"{name}_lane", count)
    for e in rows.by_row:
        memory = Memory(f"of_row{next(numbers)}", e.dtype, count, local=True)
        value = substitute_expression(e, {rows.rows: first + index(row)}, {})
        store = Store(memory, index(row), value)
        inside += [Allocate(memory), Loop(row, Axis.VECTOR, (store,), width=count)]
        known[e] = memory, width
    lane = Var(f"{rows.columns.name}_lane", lanes)
    for start in range(0, count * width, lanes):
        at = index(lane) + start
        values = {rows.rows: first, rows.columns: at}
        parts: dict[Expression, Expression] = {
            e: Load(memory, at // size) for e, (memory, size) in known.items()
        }
        stores = tuple(
            Store(s.memory, substitute(s.index, values), exchanged(s.value, parts, values))
            for s in rows.stores
        )
        inside.append(Loop(lane, Axis.VECTOR, stores, width=lanes))
    blocks = around(rows.outer, (Loop(block, Axis.SERIAL, tuple(inside)),))
    left = extent - block.extent * count
    if left <= 0:
        return (*before, *blocks)
    rest = Var(name, left)
    stores = substituted(rows.stores, {rows.rows: index(rest) + (extent - left)})
    return (*before, *blocks, *around(rows.outer, nested((rest, rows.columns), stores)))
