"""A move for operands that lie across: squares of them are turned around in scratch.

    for i in 2048:                            for i_block in 32: for j_block in 32:
      for j in 2048:                            local turned0: f32[4096]
        y[i*2048 + j] =               ->        for k in 8: for i in 64 vector 8:
            tanh(x[i + j*2048])                   turned0[i*64 + k*8 + 0..7] = x[i + (k*8 + 0..7)*2048]
                                                for i in 64: for j in 64:
                                                  y[...] = tanh(turned0[i*64 + j])

Element by element, such a load takes one element of a line, and the line is gone from the cache
when its neighbour is wanted. Here whole lines are read in vectors, turned around in registers
(`llvm/interleave.py`), and the loops that compute and store find neighbours next to each other.
The last block overlaps the one before it, as those of a product do (`codegen/contraction/cut.py`).
Blocks of few rows follow each other in one thread: two threads would fetch the same lines, and take
the results of rows that overlap from each other.
Rows that are read backwards (`rot90`) lie in scratch as in memory and are picked from its end. The
parts of pairs (complex numbers), and of rows of a few (colours), are turned each for itself.
"""  # noqa: E501

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from math import prod

from tinyhlo.codegen.bodies import substituted
from tinyhlo.codegen.contraction.cut import at_most
from tinyhlo.codegen.expressions import Expression, Load, Memory, exchanged
from tinyhlo.codegen.loops import Allocate, Axis, Body, Loop, LoopProgram, Statement, Store, nested
from tinyhlo.codegen.moves.basic import over_nests
from tinyhlo.codegen.walks import plain_loads
from tinyhlo.ir.index import Index, Var, constant, index, substitute
from tinyhlo.numbers import ceil_div, power_of_two, round_up
from tinyhlo.records import dataclass
from tinyhlo.target import LINE_BYTES, Target

RUN_BYTES = 256  # written in order: fewer, and the pages of as many rows come and go
NEAR_PAGES = 256  # of an array in memory: of more pages, more is read at a time than one line
PAGE_BYTES = 4096
GROUP_BYTES = 16  # narrow elements are turned in vectors of so many bytes: one instruction each
LEAST_BYTES = 8  # of a vector: half of a register, for rows of 8 to 15 bytes
NEAR = 4  # elements apart: so few vectors are loaded and picked from
FEWEST = 4  # rows and columns of a square
FEW_ROWS = 48  # whose pages are at hand together: their blocks overlap, and share lines of memory
OVERLAP = 1.03  # computed twice, rather than in blocks that are narrow
SHARED = 16  # blocks: fewer are not taken out of the loops that they do not depend on
FEW_OPERANDS = 4  # whose squares are so many columns wide; more have narrower ones
OPERANDS = 8  # at a time: more have no room in the first cache
# Elements from one row to the next: backwards, and of pairs to fours.
STEPS = (*range(-4, 0), *range(1, 5))


@dataclass(frozen=True, slots=True)
class Block:
    """`size` positions of a loop at a time: `outer` numbers the blocks, `inner` those inside."""

    var: Var
    size: int

    @property
    def outer(self) -> Var:
        return Var(f"{self.var.name}_block", ceil_div(self.var.extent, self.size))

    @property
    def inner(self) -> Var:
        return Var(f"{self.var.name}_inside", self.size)

    def at(self, inside: Index) -> Index:
        """A position of the loop, from one in the block."""
        first = index(self.outer) * self.size
        return at_most(first, self.var.extent - self.size) + inside


def turn_around(program: LoopProgram, body: Body, target: Target, moves: list[str]) -> Body:
    """Turn what lies across in every nest of loops that only stores. What is written in place may
    not be computed twice, as overlapping blocks do."""
    if program.in_place:
        return body
    numbers = itertools.count()
    return over_nests(body, lambda nest: turned_nest(nest, target, moves, numbers))


def turned_nest(
    nest: Sequence[Loop], target: Target, moves: list[str], numbers: Iterator[int]
) -> Body:
    """The nest with its operands turned around; nothing where none lies across."""
    stores = [s for s in nest[-1].body if isinstance(s, Store)]
    column, variables, stores = columns_of([loop.var for loop in nest], stores)
    if column is None:
        return ()
    written = {s.memory for s in stores}
    across = [
        x
        for x in plain_loads(s.value for s in stores)
        if x.memory not in written and is_far(x, column)
    ]
    found = Counter(v for x in across for v in variables if x.index.coefficient(v) in STEPS)
    if not found:
        return ()
    row = max(found, key=lambda v: (found[v], v.extent))
    loads = [x for x in across if x.index.coefficient(row) in STEPS][:OPERANDS]
    widest = max(x.dtype.itemsize for x in loads)
    shortest = min(row.extent, column.extent)
    lanes = square_of(widest, shortest, target)
    if shortest < FEWEST or lanes * widest < LEAST_BYTES:
        return ()
    run = RUN_BYTES if any(has_many_pages(x, column, target) for x in loads) else LINE_BYTES
    rows = Block(row, size_of(row.extent, run // widest, lanes))
    step = max(s.index.coefficient(column) or 1 for s in stores)
    run_of_columns = RUN_BYTES // (widest * ceil_div(step, FEW_OPERANDS))
    columns = Block(column, size_of(column.extent, run_of_columns, lanes))
    moves.append(f"turn {row.name} {rows.size} x {column.name} {columns.size}")
    outside = [v for v in variables if v not in (row, column)]
    blocks = [rows.outer, columns.outer]
    if row.extent <= FEW_ROWS:
        blocks.reverse()
    around = [v for v in outside if any(load.depends_on(v) for load in loads)]
    if prod(v.extent for v in (*around, *blocks)) < SHARED:
        around = outside
    inside = [*(v for v in variables if v not in around and v is not column), column]
    block = in_block(stores, loads, rows, columns, inside, lanes, numbers)
    return nested([*around, *blocks], block)


def has_many_pages(load: Load, column: Var, target: Target) -> bool:
    """Whether a walk along the columns reads a line of each of many pages from memory: page tables,
    and banks of memory, are better at longer runs."""
    step = abs(load.index.coefficient(column) or 0) * load.dtype.itemsize
    pages = column.extent * min(step, PAGE_BYTES) // PAGE_BYTES
    return pages > NEAR_PAGES and 2 * load.memory.nbytes >= target.l3_bytes


def columns_of(
    variables: list[Var], stores: list[Store]
) -> tuple[Var | None, list[Var], list[Store]]:
    """The loop along which results lie side by side, all loops, and what is stored in one turn. A
    short one that goes on along another is written out, and no loop any more."""
    column = next((v for v in variables if is_along(v, stores)), None)
    longer = next((v for v in variables if column and goes_on(v, column, stores)), None)
    if column is None or longer is None:
        return column, variables, stores
    places = map(constant, range(column.extent))
    rows = (substituted(tuple(stores), {column: place}) for place in places)
    written_out = [s for row in rows for s in row if isinstance(s, Store)]
    return longer, [v for v in variables if v != column], written_out


def is_along(column: Var, stores: Sequence[Store]) -> bool:
    """Whether what is stored along a loop lies side by side, or is rows of a few that do."""
    steps = {(s.memory, s.index.coefficient(column)) for s in stores}
    return all(
        step == 1 or fills_rows([s.index for s in stores if s.memory is memory], step or 0)
        for memory, step in steps
    )


def fills_rows(places: Sequence[Index], step: int) -> bool:
    """Whether places of a memory are rows of `step` elements side by side: x, x + 1, y, y + 1."""
    if not 0 < step <= OPERANDS:
        return False
    offsets = defaultdict[object, list[int]](list)
    for place in places:
        offsets[place.terms].append(place.offset)
    return all(
        sorted(each) == [first + n for first in sorted(each)[::step] for n in range(step)]
        for each in offsets.values()
    )


def goes_on(longer: Var, column: Var, stores: Sequence[Store]) -> bool:
    """Whether the short rows that are stored along a loop follow each other along a longer one."""
    nbytes = column.extent * stores[0].memory.dtype.itemsize
    return (
        nbytes < LINE_BYTES
        and len(stores) * column.extent <= OPERANDS
        and longer.extent > column.extent
        and all(s.index.coefficient(longer) == len(stores) * column.extent for s in stores)
        and all(
            is_far(load, longer)
            for load in plain_loads(s.value for s in stores)
            if is_far(load, column)
        )
    )


def is_far(load: Load, column: Var) -> bool:
    return abs(load.index.coefficient(column) or 0) > NEAR


def square_of(itemsize: int, extent: int, target: Target) -> int:
    """Rows and columns that are turned at a time: a power of two."""
    bytes_ = target.vector_bytes if itemsize >= 4 else GROUP_BYTES
    return min(bytes_ // itemsize, power_of_two(extent))


def size_of(extent: int, most: int, lanes: int) -> int:
    """The size of blocks: the largest multiple of `lanes` where the last one overlaps little."""
    sizes = range(lanes, max(lanes, min(extent, most)) + 1, lanes)
    least = min(round_up(extent, size) for size in sizes)
    return max(size for size in sizes if round_up(extent, size) <= OVERLAP * least)


def in_block(
    stores: Sequence[Store], loads: Sequence[Load], rows: Block, columns: Block,
    variables: Sequence[Var], lanes: int, numbers: Iterator[int],
) -> Body:  # fmt: skip
    """Fill scratch with each load's block, then compute and store from there, along `variables`.
    The scratch of nests side by side has `numbers` of its own."""
    places = {rows.var: rows.at(index(rows.inner)), columns.var: columns.at(index(columns.inner))}
    allocates: list[Statement] = []
    fills: list[Statement] = []
    values: dict[Expression, Expression] = {}
    square = Var("square", columns.size // lanes)
    for load in loads:
        scratch = Memory(f"turned{next(numbers)}", load.dtype, rows.size * columns.size, local=True)
        allocates.append(Allocate(scratch))
        row, stored = index(rows.inner), index(rows.inner)
        if (load.index.coefficient(rows.var) or 0) < 0:  # scratch is in the order of memory
            stored = row * -1 + (rows.size - 1)
        copies: list[Store] = []
        for k in range(lanes):
            inside = index(square) * lanes + k
            here = {**places, rows.var: rows.at(stored), columns.var: columns.at(inside)}
            loaded = Load(load.memory, substitute(load.index, here))
            copies.append(Store(scratch, row * columns.size + inside, loaded))
        fills += nested([square], (Loop(rows.inner, Axis.VECTOR, tuple(copies), lanes),))
        values[load] = Load(scratch, stored * columns.size + index(columns.inner))
    computed = tuple(Store(s.memory, s.index, exchanged(s.value, values)) for s in stores)
    inner_of = {rows.var: rows.inner, columns.var: columns.inner}
    inner = nested([inner_of.get(v, v) for v in variables], substituted(computed, places))
    return (*allocates, *fills, *inner)
