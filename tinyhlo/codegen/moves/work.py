"""How much a statement does: what vectors, threads and tiles are chosen by.

work(for i in 1000: y[i] = exp(x[i]))  ->  11000.0      # exp counts as 10, the load as 1
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod

from tinyhlo.codegen.bodies import values_in
from tinyhlo.codegen.expressions import Apply, Expression
from tinyhlo.codegen.loops import If, Loop, Statement, TileProduct
from tinyhlo.codegen.walks import operands, parts, walk
from tinyhlo.ir.ops import TRANSCENDENTAL

Below = Callable[[Expression], Iterable[Expression]]


def work(statement: Statement) -> float:
    """Rough number of operations below a statement, those of indices from data included."""
    match statement:
        case Loop(var=var, body=body, count=count):
            return min(count or var.extent, var.extent) * max(1.0, sum(map(work, body)))
        case If(body=body):
            return sum(map(work, body))
        case TileProduct(left_rows=rows, vectors=vectors, lanes=lanes, depth=depth):
            return len(rows) * vectors * lanes * prod(var.extent for var in depth)
        case _:
            return sum(cost(value, parts) for value in values_in(statement))


def cost(value: Expression, below: Below = operands) -> float:
    """Operations of an expression, shared parts once; a transcendental counts as 10, what is the
    same in every iteration nothing."""
    nodes = walk([value], lambda e: bool(e.free) or not isinstance(e, Apply), below)
    dear = (isinstance(e, Apply) and e.op in TRANSCENDENTAL for e in nodes)
    return sum(10.0 if is_dear else 1.0 for is_dear in dear)
