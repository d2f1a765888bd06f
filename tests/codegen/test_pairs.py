"""Short rows of pairs, a number with each of a table: lanes along the numbers, whose sums need not
be folded."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.native import check
from tests.schedule.graphs import F32, mul
from tinyhlo.codegen.lowering.kernel import lower_kernel
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.ir.build import broadcast, cast, elementwise, param, reduce
from tinyhlo.ir.dtypes import F64, I32, DType
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel

WIDE = named_target("x86-64-v4", 1)


def pairs(count: int, terms: int, dtype: DType = F32) -> tuple[Node, Node]:
    """Numbers and a table, each with each."""
    x, table = param(0, (count,), dtype), param(1, (terms,), dtype)
    return broadcast(x, (count, terms), (0,)), broadcast(table, (count, terms), (1,))


def smaller(x: Node, table: Node) -> Node:
    return cast(elementwise(Op.LT, table, x), I32)


def weighted(x: Node, table: Node) -> Node:
    """A dear value of a term alone is computed for a vector of terms."""
    return mul(x, elementwise(Op.EXP, table))


def graph_of(count: int, terms: int, term, dtype: DType = F32) -> Graph:  # type: ignore[no-untyped-def]
    x, table = pairs(count, terms, dtype)
    total = reduce(Op.ADD, term(x, table), (1,))
    return Graph((param(0, (count,), dtype).type, param(1, (terms,), dtype).type), (total,))


def lanes(graph: Graph) -> str:
    """Which loop runs in lanes: i over numbers, j over terms."""
    loops = choose_moves(lower_kernel(Kernel("pairs", graph), WIDE), WIDE)
    (move,) = [move for move in loops.moves if move.startswith("vector")]
    return move.split()[1]


@pytest.mark.parametrize(("count", "terms", "term", "along"), [
    (1000, 48, smaller, "i"),
    (1000, 250, smaller, "i"),
    (1000, 400, smaller, "j"),  # to fold lanes takes little of the time
    (100, 48, smaller, "j"),
    (1000, 48, weighted, "j"),
    (1000, 48, lambda x, table: elementwise(Op.POW, x, table), "j"),
])  # fmt: skip
def test_which_lanes(count: int, terms: int, term, along: str) -> None:  # type: ignore[no-untyped-def]
    assert lanes(graph_of(count, terms, term)) == along


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("count", [256, 1003])
@pytest.mark.parametrize("terms", [17, 33, 100])
def test_counts_below_each_number(count: int, terms: int, dtype: DType) -> None:
    random = np.random.default_rng(terms)
    x, table = (random.standard_normal(n).astype(dtype.numpy) for n in (count, terms))
    check(graph_of(count, terms, smaller, dtype), [x, table])
