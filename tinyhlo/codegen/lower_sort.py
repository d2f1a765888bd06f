"""Sort: every row is copied to scratch, sorted there, and copied out.

In: a kernel whose root is a Sort. The way is chosen by what the comparator means (`ir/order.py`)
and the length of the rows: counting for short rows; else radix sort where it orders by numbers,
merge sort where it does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinyhlo.codegen.loops import (
    Allocate,
    Axis,
    Load,
    Loop,
    LoopProgram,
    Memory,
    Statement,
    Store,
)
from tinyhlo.codegen.lower import LETTERS, Lowering, argument_memories
from tinyhlo.codegen.lower_update import finished
from tinyhlo.codegen.sort_merge import merge_sort
from tinyhlo.codegen.sort_radix import Row, digits_of, radix_sort
from tinyhlo.codegen.sort_rank import rank_sort
from tinyhlo.codegen.target import Target
from tinyhlo.ir.graph import Output, Sort
from tinyhlo.ir.index import ZERO, Index, Var, constant, index, linear
from tinyhlo.ir.order import Order, find_order
from tinyhlo.schedule.program import Kernel

BLOCK = 1 << 14  # elements of one row that are worth a thread of their own


def lower_sort(kernel: Kernel, target: Target) -> LoopProgram:
    """Sort every row; rows are independent."""
    root = kernel.graph.results[0].inputs[0]
    assert isinstance(root, Sort)
    reads, writes = argument_memories(kernel)
    lowering = Lowering(reads)
    shape, axis = root.results[0].shape, root.axis
    if root.results[0].size:
        length = shape[axis]
        outer, row = lowering.nest(lowering.root, (*shape[:axis], 1, *shape[axis + 1 :]))
        var = Var(LETTERS[outer.depth], length)
        at = lowering.position((*row[:axis], index(var), *row[axis + 1 :]))
        rows = root.results[0].size // length
        way = choose_way(root, rows, target)
        outer.statements += [Allocate(column) for column in way.columns]
        fill = [
            Store(column, index(var), lowering.emit(source, at, outer, ()))
            for column, source in zip(way.columns, root.inputs, strict=True)
        ]
        outer.statements.append(Loop(var, Axis.SERIAL, tuple(fill)))
        outer.statements += way.statements
        drain: list[Statement] = []
        for memory, node in zip(writes, kernel.graph.results, strict=True):
            assert isinstance(node, Output)
            value = Load(way.columns[node.position], way.start + index(var))
            drain.append(Store(memory, linear(at, shape), value))
        outer.statements.append(Loop(var, Axis.SERIAL, tuple(drain)))
    return finished(kernel, reads, writes, lowering.root.body(), lowering)


@dataclass(frozen=True, slots=True)
class Way:
    """`statements` sort the row that lies at the start of `columns`, one an operand; the sorted
    row then begins at `start`."""

    columns: tuple[Memory, ...]
    statements: Sequence[Statement]
    start: Index


def choose_way(root: Sort, rows: int, target: Target) -> Way:
    """The cheapest way by its measured cost, in nanoseconds of one row on one 3 GHz core with
    8 lanes of 32 bits (`docs/decisions/0010-sort.md`)."""
    length = root.results[0].shape[root.axis]
    lanes = target.vector_bytes // 4
    order = find_order(root.comparator)
    if counting_cost(order, length, lanes) <= moving_cost(order, length):
        columns = scratch("data", root, 2 * length)
        way = rank_sort(order or root.comparator, columns, length, lanes)
        return Way(columns, way, constant(length))
    if order is None:
        columns, spare = scratch("front", root, length), scratch("back", root, length)
        return Way(columns, merge_sort(root.comparator, columns, spare, length), ZERO)
    columns = scratch("data", root, 2 * length)
    blocks = min(target.threads, length // BLOCK) if rows < target.threads else 1
    layout = Row(columns, length, max(1, blocks))
    return Way(columns, radix_sort(order, layout, lanes), layout.origin)


def counting_cost(order: Order | None, length: int, lanes: int) -> float:
    """Of a rank sort: all pairs."""
    words = sum(max(1, key.bits // 32) for key in order) if order else 4
    return 0.44 * words * length * length / lanes


def moving_cost(order: Order | None, length: int) -> float:
    """Of a radix sort, or a merge sort where there are no keys."""
    if order is None:
        return 6.0 * length * length.bit_length()
    return sum(digits_of(key, length).number.extent * (1.9 * length + 115.0) for key in order)


def scratch(name: str, root: Sort, size: int) -> tuple[Memory, ...]:
    """Private memory for every operand."""
    return tuple(
        Memory(f"{name}{k}", type_.dtype, size, local=True) for k, type_ in enumerate(root.results)
    )
