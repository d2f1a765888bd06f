"""Very long chains are cut into pieces, most of them equal: what is compiled grows no further."""

from __future__ import annotations

import numpy as np
import pytest

from tests.schedule.graphs import F32, I32, add, launches, normal, planned
from tinyhlo.codegen.render import kernels_of
from tinyhlo.ir.build import elementwise, gather, param, reduce
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.ops import Op
from tinyhlo.schedule.items import LONGEST

X, Y = param(0, (10,), F32), param(1, (10,), F32)


@pytest.mark.parametrize(("op", "length"), [(Op.SIN, 600), (Op.REM, 2500), (Op.ADD, 3000)])
def test_a_long_chain_is_a_few_equal_kernels(op: Op, length: int) -> None:
    y: Node = X
    for _ in range(length):
        y = elementwise(op, y, Y) if op.arity == 2 else elementwise(op, y)
    types = (X.type, Y.type)
    program = planned(Graph(types, (y,)), [normal(10), 1e-3 + abs(normal(10, seed=1))])
    assert len(launches(program.body)) >= length // LONGEST + 1
    assert len(kernels_of(program.body)) <= 3


def test_a_chain_of_moderate_length_is_one_kernel() -> None:
    y: Node = X
    for _ in range(LONGEST // 2):
        y = add(y, Y)
    program = planned(Graph((X.type, Y.type), (y,)), [normal(10), normal(10, seed=1)])
    assert len(program.body) == 1


def test_pieces_of_a_chain_with_what_its_derivative_keeps() -> None:
    values: list[Node] = [X]
    for _ in range(200):
        values.append(elementwise(Op.SIN, values[-1]))
    slope: Node = Y
    for value in reversed(values[:-1]):
        slope = elementwise(Op.MUL, slope, elementwise(Op.COS, value))
    program = planned(Graph((X.type, Y.type), (slope,)), [normal(10), normal(10, seed=1)])
    assert len(launches(program.body)) > 1


def test_a_chain_of_gathers_is_linear_in_kernels_and_shares_one() -> None:
    at = param(1, (10,), I32)
    y: Node = X
    for _ in range(500):
        y = gather(y, (at,))
    order = np.arange(10, dtype=np.int32)[::-1].copy()
    program = planned(Graph((X.type, at.type), (y,)), [normal(10), order])
    assert len(kernels_of(program.body)) <= 2


def test_independent_sums_share_a_kernel_and_those_of_a_chain_do_not() -> None:
    first = reduce(Op.ADD, X, (0,))
    second = reduce(Op.MAX, X, (0,))
    third = reduce(Op.MIN, Y, (0,))
    graph = Graph((X.type, Y.type), (first, second, third))
    program = planned(graph, [normal(10), normal(10, seed=1)])
    assert len(launches(program.body)) == 1
