"""A move for rows shorter than any vector, few or in order: they run in vectors of their length.

    for i in 5:                                for j in 5 vector 5:
      for j in 5:                                y0[j] = tanh(0.0 + x0[0] * x1[j]
        add0 = 0.0                                            + x0[1] * x1[j + 5] ..)
        for k in 5 reduce:               ->    for j in 5 vector 5:
          add0 += x0[i*5 + k] * x1[j + k*5]      y0[j + 5] = tanh(0.0 + x0[5] * x1[j] ..)
        y0[i*5 + j] = tanh(add0)               ..

The state of a loop that multiplies small matrices: a row is one operation instead of five, and what
is stored together is loaded together. LLVM fills up what a register has besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tinyhlo.codegen.bodies import all_values, inside, nest_of
from tinyhlo.codegen.expressions import Apply, Expression, Load
from tinyhlo.codegen.loops import Accumulate, Axis, Body, Declare, Loop, Statement, Store, around
from tinyhlo.codegen.moves.basic import stores_alone
from tinyhlo.codegen.moves.vectors import longest_inside, score
from tinyhlo.codegen.moves.write_out import (
    chooses,
    extent_of,
    specialised,
    uses_registers,
    without_registers,
    written_out,
)
from tinyhlo.codegen.walks import all_loads
from tinyhlo.ir.dtypes import BOOL
from tinyhlo.ir.index import constant
from tinyhlo.ir.ops import COSTS
from tinyhlo.target import Target

LEAST_LANES = 3
WORDS = {32, 64}  # bits of what is loaded and stored: LLVM dies of vectors of five bf16
MOST_NODES = 512  # of expressions in a row, with its sums written out
MOST_ROWS = 8  # that are written out
MOST_NODES_OF_ROWS = 1024


def in_few_lanes(body: Body, target: Target, moves: list[str]) -> Body:
    """The same, the rows of every nest that is small enough in vectors of their length."""
    result: list[Statement] = []
    for statement in body:
        nest = nest_of(statement, Axis.SERIAL)
        if nest and is_short(nest, target):
            row = nest.pop()
            moves.append(f"vector {row.var.name} {row.var.extent}")
            result += with_loops_around(nest, in_one_vector(row))
        else:
            result.append(in_turn(statement, target, moves))
    return tuple(result)


def in_turn(
    statement: Statement, target: Target, moves: list[str], ordered: bool = False
) -> Statement:
    """The same, short rows below ordered loops that change what is where they store, as a scatter
    adds to rows, in vectors of their length: no loop around them can run in lanes instead."""
    match statement:
        case Loop(axis=Axis.SERIAL, body=body) if ordered and is_update(body):
            if is_short_row(statement, target):
                moves.append(f"vector {statement.var.name} {statement.var.extent}")
                return in_one_vector(statement)
        case Loop(axis=axis):
            ordered |= axis is Axis.ORDERED
        case _:
            pass
    return inside(statement, lambda body: tuple(in_turn(s, target, moves, ordered) for s in body))


def is_short(nest: Sequence[Loop], target: Target) -> bool:
    """Whether the last loop of a nest computes a short row, and there is little to write out."""
    row, nodes = nest[-1], set[Expression]()
    if not is_short_row(row, target):
        return False
    trips, _ = extent_of(row, nodes)
    short, lanes = lanes_of_words(row, target), row.var.extent
    sums = longest_inside(row)  # long ones run in lanes themselves
    dear = sums or any(isinstance(node, Apply) and node.op in COSTS for node in nodes)
    small = sums < 2 * short and trips * len(nodes) <= MOST_NODES * lanes
    many = any(loop.var.extent >= short for loop in nest)  # rows: one a lane wastes less
    if not (dear and small and all(map(is_plain, row.body))):
        return False
    return not (many and (2 * lanes < short or score(row, target).counts["near"] or not sums))


def is_short_row(row: Loop, target: Target) -> bool:
    """Whether a row fills no vector, and stores neighbours, each computed like the others from
    neighbours."""
    if not LEAST_LANES <= row.var.extent < lanes_of_words(row, target) or uses_registers(row):
        return False
    stores = (s for s in row.body if isinstance(s, Store))
    if chooses(row) or any(s.index.coefficient(row.var) != 1 for s in stores):
        return False  # what is taken apart or put together is a power of two
    found = score(row, target)
    return not (found.gathers or found.counts["pair"])


def lanes_of_words(row: Loop, target: Target) -> int:
    """Lanes of the shortest vector that the words of a row would fill; 0 where it has others."""
    nodes = set[Expression]()
    extent_of(row, nodes)
    kept = {s.memory.dtype for s in row.body if isinstance(s, Store)}
    kept |= {node.dtype for node in nodes if isinstance(node, Load) or node.dtype is not BOOL}
    sizes = {dtype.bits for dtype in kept}
    return target.short_lanes(max(sizes, default=32)) if sizes <= WORDS else 0


def is_plain(statement: Statement) -> bool:
    """Whether a statement of a row runs in lanes once its sums are written out."""
    if isinstance(statement, Loop):
        return statement.axis is Axis.REDUCE and all(map(is_plain, statement.body))
    return isinstance(statement, (Store, Declare, Accumulate))


def in_one_vector(row: Loop) -> Loop:
    """The row as one vector, its sums written out. Its registers become values: where LLVM does not
    optimise it keeps registers in memory, and a load of one waits for its parts to be stored."""
    body = without_registers(written_out(row.body), {})
    return replace(row, axis=Axis.VECTOR, width=row.var.extent, body=tuple(body))


def is_update(body: Body) -> bool:
    """Whether a row changes what is where it stores, and does nothing else."""
    changed = {(load.memory, load.index) for load in all_loads(all_values(body))}
    return stores_alone(body) and any((s.memory, s.index) in changed for s in body)


def with_loops_around(nest: Sequence[Loop], row: Loop) -> Body:
    """The row in the loops around it; of these the inner ones are written out while that is few
    rows."""
    nodes = set[Expression]()
    extent_of(replace(row, axis=Axis.SERIAL, width=1), nodes)
    rows, loops = [row], list(nest)
    while loops:
        count = len(rows) * loops[-1].var.extent
        if count > MOST_ROWS or count * len(nodes) > MOST_NODES_OF_ROWS:
            break
        loop = loops.pop()
        rows = [at(loop, k, each) for k in range(loop.var.extent) for each in rows]
    return around(loops, tuple(rows))


def at(loop: Loop, k: int, row: Loop) -> Loop:
    """A row in one iteration of a loop around it."""
    body = [part for s in row.body for part in specialised(s, {loop.var: constant(k)}, {}, {})]
    return replace(row, body=tuple(body))
