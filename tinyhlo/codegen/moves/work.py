"""How much a statement does: what vectors, threads and tiles are chosen by.

work(for i in 1000: y[i] = exp(x[i]))  ->  21000.0      # exp counts as 20, the load as 1
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod

from tinyhlo.codegen.bodies import all_values, below, values_in
from tinyhlo.codegen.expressions import Apply, Expression, Load
from tinyhlo.codegen.loops import Accumulate, Body, If, Loop, Statement, Store, TileProduct
from tinyhlo.codegen.walks import operands, parts, walk
from tinyhlo.ir.ops import TRANSCENDENTAL, TRANSCENDENTAL_COST
from tinyhlo.target import LINE_BYTES

Below = Callable[[Expression], Iterable[Expression]]


def work(statement: Statement) -> float:
    """Rough number of operations below a statement, those of indices from data included."""
    match statement:
        case Loop(trip_count=trips, body=body):
            return trips * max(1.0, sum(map(work, body)))
        case If(body=body):
            return sum(map(work, body))
        case TileProduct(left_rows=rows, vectors=vectors, lanes=lanes, depth=depth):
            return len(rows) * vectors * lanes * prod(var.extent for var in depth)
        case _:
            return sum(cost(value, parts) for value in values_in(statement))


def work_once(body: Body) -> float:
    """The work of a whole body: what its statements share is counted once, since networks of
    additions have as many stores as rows; accumulations and stores count themselves."""
    values: list[Expression] = []
    total = 0.0
    for statement in body:
        match statement:
            case Loop(trip_count=trips, body=inner):
                total += trips * max(1.0, work_once(inner))
            case If(body=inner):
                total += work_once(inner)
            case TileProduct():
                total += work(statement)
            case _:
                total += isinstance(statement, (Accumulate, Store))
                values += values_in(statement)
    return total + cost_of_all(values, parts)


def cost(value: Expression, below: Below = operands) -> float:
    """Operations of an expression, shared parts once; a transcendental counts as 20, what is the
    same in every iteration nothing."""
    return cost_of_all([value], below)


def cost_of_all(values: Iterable[Expression], below: Below) -> float:
    """Operations of several expressions, as `cost` counts them."""
    nodes = walk(values, lambda e: bool(e.free) or not isinstance(e, Apply), below)
    dear = (isinstance(e, Apply) and e.op in TRANSCENDENTAL for e in nodes)
    return sum(TRANSCENDENTAL_COST if is_dear else 1 for is_dear in dear)


def words(loop: Loop) -> int:
    """How many words of four bytes the widest value that a loop loads, stores or adds up has: of
    doubles a vector holds half as many, and a line of memory."""
    values = all_values(below((loop,)))
    most = max((e.dtype.bits for e in walk(values) if isinstance(e, Load)), default=0)
    return max(1, *(value.dtype.bits // 32 for value in values), most // 32)


def misses(statement: Statement, cache: int) -> int:
    """How often an innermost loop reads the one element that it needs of a line, from memory of
    more bytes than `cache`."""
    if not isinstance(statement, Loop):
        return 0
    if any(isinstance(inner, (Loop, If)) for inner in statement.body):
        return statement.var.extent * sum(misses(inner, cache) for inner in statement.body)
    values = [value for inner in statement.body for value in values_in(inner)]
    loads = [e for e in walk(values, lambda e: e.loads > 0) if isinstance(e, Load)]
    far = (abs(e.index.coefficient(statement.var) or 0) * e.dtype.itemsize for e in loads)
    sizes = (e.memory.nbytes for e in loads)
    lines = sum(s >= LINE_BYTES and size > cache for s, size in zip(far, sizes, strict=True))
    return statement.var.extent * lines
