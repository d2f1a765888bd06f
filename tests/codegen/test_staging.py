"""Rows of dear values are computed once and kept; cheap ones are computed again."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.native import check, compiled, run_native
from tests.schedule.graphs import F32, add, mul, over_rows, softmax
from tinyhlo.ir.build import broadcast, elementwise, full, pad, param, reduce, scalar
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.ops import Op


def staged(graph: Graph) -> int:
    (loops,) = compiled(graph).loops
    return len([m for m in loops.moves if m.startswith("stage")])


def rows(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def exponential(x: Node) -> Node:
    return elementwise(Op.EXP, x)


@pytest.mark.parametrize("shape", [(6, 40), (5, 37), (300, 129), (9, 5000)])
def test_the_exponential_of_softmax_is_computed_once_a_row(shape: tuple[int, int]) -> None:
    x = param(0, shape, F32)
    graph = Graph((x.type,), (softmax(x),))
    (loops,) = compiled(graph).loops
    assert str(loops).count("exp(") == 1
    check(graph, [rows(*shape)])


def test_rows_that_overflow_and_rows_of_nan_keep_their_meaning() -> None:
    x = param(0, (5, 64), F32)
    value = rows(5, 64)
    value[0, 3], value[1, 5], value[2, :], value[3, :] = np.inf, np.nan, -np.inf, -1e38
    check(Graph((x.type,), (softmax(x),)), [value])


def test_cheap_values_are_computed_again() -> None:
    x = param(0, (64, 100), F32)
    double = add(x, x)
    graph = Graph((x.type,), (mul(double, over_rows(reduce(Op.ADD, double, (1,)), double.shape)),))
    assert staged(graph) == 0
    check(graph, [rows(64, 100)], atol=1e-4)


def test_a_value_under_a_guard_is_not_staged() -> None:
    x = param(0, (64, 100), F32)
    wide = pad(exponential(x), scalar(0.0, F32), (0, 3), (0, 5), (0, 0))
    total = reduce(Op.ADD, wide, (1,))
    graph = Graph((x.type,), (mul(wide, over_rows(total, wide.shape)),))
    check(graph, [rows(64, 100)])


def test_a_short_array_is_a_row_too() -> None:
    """Sums of all elements, each of what the one before it made of them."""
    x = param(0, (40, 50), F32)
    value: Node = x
    for _ in range(5):
        mean = mul(reduce(Op.ADD, value, (0, 1)), scalar(1 / 2000, F32))
        value = add(elementwise(Op.SIN, value), broadcast(mean, x.shape))
    graph = Graph((x.type,), (value,))
    (loops,) = compiled(graph).loops
    assert str(loops).count("sin(") == 5
    check(graph, [rows(40, 50)])


def test_threads_share_a_row_that_takes_long() -> None:
    x = param(0, (12000,), F32)
    value = elementwise(Op.TANH, exponential(x))
    total = broadcast(reduce(Op.ADD, value, (0,)), x.shape)
    graph = Graph((x.type,), (elementwise(Op.DIV, value, total),))
    (loops,) = compiled(graph).loops
    assert str(loops).count("tanh(") == 1 and "parallel" in str(loops).split("row0[i] =")[0]
    first, second = (run_native(graph, [rows(12000)], threads=n)[0] for n in (1, 3))
    np.testing.assert_array_equal(first, second)
    check(graph, [rows(12000)])


def test_staged_rows_are_the_same_bits_on_any_number_of_threads() -> None:
    x = param(0, (500, 300), F32)
    graph = Graph((x.type,), (softmax(x),))
    assert staged(graph) == 1
    one, two = (run_native(graph, [rows(500, 300)], threads) for threads in (1, 2))
    assert one[0].tobytes() == two[0].tobytes()


@pytest.mark.parametrize("shape", [(64, 100), (37, 8), (100, 3)])
def test_columns_in_lanes_are_not_staged(shape: tuple[int, int]) -> None:
    """A reduce over rows runs many columns at once: one row of scratch would not hold them."""
    x = param(0, shape, F32)
    third = add(elementwise(Op.DIV, x, full(3.0, shape, F32)), full(1.0, shape, F32))
    total = broadcast(reduce(Op.ADD, third, (0,)), shape, (1,))
    away = add(third, total)
    graph = Graph((x.type,), (reduce(Op.ADD, mul(away, away), (0,)),))
    check(graph, [rows(*shape)], rtol=1e-4, atol=1e-4)
