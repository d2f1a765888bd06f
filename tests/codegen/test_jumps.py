"""Choices that all lanes make alike: a jump where one side takes long."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.codegen.native import check, compiled
from tests.schedule.graphs import F32, add
from tinyhlo.ir.build import broadcast, elementwise, param, reduce, reshape, scalar, slice_, where
from tinyhlo.ir.dtypes import I32
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.ops import Op

ROWS, COLUMNS = 40, 129  # the last vector of a row is not full


def negative(x: Node) -> Node:
    return elementwise(Op.LT, x, broadcast(scalar(0.0, F32), x.shape))


def sine(x: Node) -> Node:
    return elementwise(Op.SIN, x)


def by_number(x: Node, s: Node) -> Node:
    return where(broadcast(negative(s), x.shape), sine(x), x)


def in_a_sum(x: Node, s: Node) -> Node:
    return reduce(Op.ADD, by_number(x, s), (1,))


def by_row(x: Node, s: Node) -> Node:
    """One choice a row, another than that of rows before."""
    first = reshape(slice_(x, (0, 0), (ROWS, 1)), (ROWS,))
    chosen = negative(add(first, broadcast(s, first.shape)))
    return where(broadcast(chosen, x.shape, (0,)), elementwise(Op.EXP, x), sine(x))


def twice(x: Node, s: Node) -> Node:
    """Choices within choices."""
    again = where(broadcast(negative(elementwise(Op.NEG, s)), x.shape), elementwise(Op.LOG, x), x)
    return where(broadcast(negative(s), x.shape), sine(x), again)


def by_element(x: Node, s: Node) -> Node:
    return where(negative(x), sine(x), broadcast(s, x.shape))


def needed_besides(x: Node, s: Node) -> Node:
    return add(by_number(x, s), sine(x))


def of_the_test(x: Node, s: Node) -> Node:
    """Nothing that takes long differs from lane to lane."""
    return where(broadcast(negative(sine(s)), x.shape), broadcast(sine(s), x.shape), x)


def cheap(x: Node, s: Node) -> Node:
    return where(broadcast(negative(s), x.shape), add(x, x), x)


def graph_of(function: Callable[[Node, Node], Node]) -> Graph:
    x, s = param(0, (ROWS, COLUMNS), F32), param(1, (), F32)
    return Graph((x.type, s.type), (function(x, s),))


def jumps(graph: Graph) -> bool:
    return any(move.startswith("jump") for loops in compiled(graph).loops for move in loops.moves)


@pytest.mark.parametrize("s", [-1.0, 1.0, np.nan])
@pytest.mark.parametrize(
    ("function", "expected"),
    [
        *((function, True) for function in (by_number, in_a_sum, by_row, twice)),
        *((function, False) for function in (by_element, needed_besides, of_the_test, cheap)),
    ],
)
def test_jumps_where_all_lanes_choose_alike(
    function: Callable[[Node, Node], Node], expected: bool, s: float
) -> None:
    graph = graph_of(function)
    assert jumps(graph) == expected
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    check(graph, [x, np.float32(s)], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("s", [0, 1, -7])
def test_remainders_take_long(s: int) -> None:
    x, n = param(0, (500,), I32), param(1, (), I32)
    test = elementwise(Op.LT, n, scalar(0, I32))
    value = where(broadcast(test, x.shape), elementwise(Op.REM, x, broadcast(n, x.shape)), x)
    graph = Graph((x.type, n.type), (value,))
    assert jumps(graph)
    check(graph, [np.arange(500, dtype=np.int32) - 250, np.int32(s)])
