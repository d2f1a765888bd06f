"""Sort: every row is copied to scratch, sorted there, and copied out.

In: a kernel whose root is a Sort. Out: its LoopProgram. The way is chosen by what the comparator
means (`ir/order.py`) and the length of the rows. Where it orders by numbers, short rows are sorted
by counting, others by radix; where it does not, by merging. When only the first few elements of a
row are wanted, they are found without sorting it, one after the other in a short row:

    sort of f32[1000,8]    ->  counted
    sort of f32[100000]    ->  radix sort
    top_k(f32[64], 4)      ->  extracted
    top_k(f32[32000], 40)  ->  selected
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, isqrt

from tinyhlo.codegen.expressions import Expression, Load, Memory
from tinyhlo.codegen.loops import Allocate, Axis, Loop, LoopProgram, Statement, Store
from tinyhlo.codegen.lowering.fused import Lowering, Position, letter
from tinyhlo.codegen.sort.extract import extract, place_of
from tinyhlo.codegen.sort.merge import merge_sort
from tinyhlo.codegen.sort.radix import Row, cost, digits_of, radix_sort
from tinyhlo.codegen.sort.rank import rank_sort, signed_key
from tinyhlo.codegen.sort.select import block_length, position_of, select
from tinyhlo.ir.graph import Output, Sort
from tinyhlo.ir.index import ZERO, Index, Var, constant, index, linear
from tinyhlo.ir.order import Order, find_order
from tinyhlo.records import dataclass
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

BLOCK = 1 << 14  # elements of one row that are worth a thread of their own
COUNTS = 3 << 10  # elements that take as long as adding up what a thread has counted


def lower_sort(kernel: Kernel, target: Target) -> LoopProgram:
    """Sort every row; rows are independent."""
    root = kernel.root
    assert isinstance(root, Sort)
    lowering = Lowering(kernel)
    if root.results[0].size:
        axis, shape = root.axis, root.results[0].shape
        outer, place = lowering.nest(lowering.root, (*shape[:axis], 1, *shape[axis + 1 :]))

        def at(position: Index) -> Position:
            return lowering.position((*place[:axis], position, *place[axis + 1 :]))

        def read(operand: int, position: Index) -> Expression:
            return lowering.emit(root.inputs[operand], at(position), outer, ())

        statements, result = sort_row(root, read, root.results[0].size // shape[axis], target)
        var = Var(letter(outer.depth), shape[axis])
        drain: list[Statement] = []
        for memory, node in zip(lowering.writes, kernel.graph.results, strict=True):
            assert isinstance(node, Output)
            value = result(node.position, index(var))
            drain.append(Store(memory, linear(at(index(var)), shape), value))
        outer.statements += [*statements, Loop(var, Axis.SERIAL, tuple(drain))]
    return lowering.program(lowering.root.body())


Element = Callable[[int, Index], Expression]  # of an operand, at a position of the row


def sort_row(
    root: Sort, read: Element, rows: int, target: Target
) -> tuple[list[Statement], Element]:
    """Statements that sort one of `rows` rows, and its elements afterwards."""
    length, limit = root.inputs[0].shape[root.axis], root.results[0].shape[root.axis]
    if length == 1:
        return [], read
    order = find_order(root.comparator)
    threads = target.threads if 2 * rows <= target.threads else 1  # else each sorts rows
    lanes = target.vector_bytes // 4
    sorting = cost_of_sorting(order, length, target) if order else 0.0
    if order and min(found := first_costs(order, length, limit, lanes)) < sorting:

        def key(position: Index) -> Expression:
            return signed_key(order[0], [read(k, position) for k in range(len(root.inputs))])

        if found[0] <= found[1]:
            statements, best = extract(key, length, limit, lanes)
            return statements, lambda operand, rank: read(operand, place_of(best, rank, length))
        statements, best = select(key, length, limit, lanes, threads > 1)
        return statements, lambda operand, rank: read(
            operand, position_of(best, limit, rank, length)
        )
    way = choose_way(root, order, length, threads, target)
    var = Var("position", length)
    fill = [Store(column, index(var), read(k, index(var))) for k, column in enumerate(way.columns)]
    statements = [
        *map(Allocate, way.columns),
        Loop(var, Axis.SERIAL, tuple(fill)),
        *way.statements,
    ]
    return statements, lambda operand, rank: Load(way.columns[operand], way.start + rank)


@dataclass(frozen=True, slots=True)
class Way:
    """`statements` sort the row that lies at the start of `columns`, one an operand; the sorted
    row then begins at `start`."""

    columns: tuple[Memory, ...]
    statements: Sequence[Statement]
    start: Index


def choose_way(root: Sort, order: Order | None, length: int, threads: int, target: Target) -> Way:
    """The cheapest way to sort a row."""
    lanes = target.vector_bytes // 4
    if order is None:  # what it says need be no order: counting could give two elements one place
        columns, spare = scratch("front", root, length), scratch("back", root, length)
        return Way(columns, merge_sort(root.comparator, columns, spare, length), ZERO)
    columns = scratch("data", root, 2 * length)
    if counting_cost(order, length, target) <= moving_cost(order, length):
        statements = rank_sort(order, columns, length, lanes)
        return Way(columns, statements, constant(length))
    layout = Row(columns, length, threads_of_row(length, threads))
    return Way(columns, radix_sort(order, layout, lanes), layout.origin)


def threads_of_row(length: int, threads: int) -> int:
    """With more the counts of all of them take longer than their shares of the row."""
    return max(1, min(threads, length // BLOCK, isqrt(length // COUNTS)))


# Costs: nanoseconds of one row on one 3 GHz core, measured (docs/decisions/0014-sort.md).


def first_costs(order: Order, length: int, limit: int, lanes: int) -> tuple[float, float]:
    """Of finding the first `limit` elements by extraction and by selection: keys with their
    positions fit 64 bits."""
    if len(order) > 1 or any(key.bits > 32 for key in order):
        return inf, inf
    extraction = 1.4 * length + limit * (4.0 + 2.7 * length / lanes)
    return extraction, selection_cost(length, limit)


def selection_cost(length: int, limit: int) -> float:
    if length < 16 * limit:
        return inf
    again = limit * block_length(length, limit)
    return 150.0 + 0.12 * length + 1.5 * again + limit * (9.0 + 2.0 * limit)


def cost_of_sorting(order: Order, length: int, target: Target) -> float:
    return min(counting_cost(order, length, target), moving_cost(order, length))


def counting_cost(order: Order, length: int, target: Target) -> float:
    """Of a rank sort: keys, then all pairs. Vectors of 64 bytes are hardly faster (Zen 4)."""
    words = sum(max(1, key.bits // 32) for key in order)
    return words * length * (2.2 + 3.4 * length / min(target.vector_bytes, 32))


def moving_cost(order: Order, length: int) -> float:
    """Of a radix sort."""
    return sum(cost(digits_of(key, length), length) for key in order)


def scratch(name: str, root: Sort, size: int) -> tuple[Memory, ...]:
    """Private memory for every operand."""
    return tuple(
        Memory(f"{name}{k}", type_.dtype, size, local=True) for k, type_ in enumerate(root.results)
    )
