"""What becomes one kernel between two contractions: counts of launches and of bytes written."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.schedule.graphs import F32, TARGET, add, launches, mul, normal, planned, softmax
from tinyhlo.ir.build import broadcast as expand
from tinyhlo.ir.build import elementwise, param, permute, reduce, reshape
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.ops import Op
from tinyhlo.schedule import Program


def product(x: Node, y: Node) -> Node:
    """x[i, k] * y[k, j], summed over k."""
    (i, k), (_, j) = x.shape, y.shape
    shape = (i, j, k)
    return reduce(Op.ADD, mul(expand(x, shape, (0, 2)), expand(y, shape, (2, 1))), (2,))


def written(program: Program) -> int:
    return sum(buffer.type.nbytes for item in launches(program.body) for buffer in item.writes)


def inputs(rows: int, keys: int, depth: int, columns: int) -> tuple[list[Node], list[np.ndarray]]:
    shapes = (rows, depth), (depth, keys), (keys, columns)
    nodes = [param(k, shape, F32) for k, shape in enumerate(shapes)]
    return list(nodes), [normal(*shape, seed=k) for k, shape in enumerate(shapes)]


def planned_far(graph: Graph, arguments: list[np.ndarray]) -> Program:
    """Where no last cache holds the scores."""
    return planned(graph, arguments, target=replace(TARGET, l3_bytes=0))


def graph_of(nodes: list[Node], *results: Node) -> Graph:
    return Graph(tuple(node.type for node in nodes), results)


def test_attention_is_one_launch_that_writes_its_result_only() -> None:
    (q, k, v), values = inputs(64, 96, 16, 24)
    program = planned_far(graph_of([q, k, v], product(softmax(product(q, k)), v)), values)
    assert len(launches(program.body)) == 1
    assert written(program) == 64 * 24 * 4 and program.arena_bytes == 0


def test_weights_that_are_a_result_are_written() -> None:
    (q, k, v), values = inputs(64, 96, 16, 24)
    weights = softmax(product(q, k))
    program = planned_far(graph_of([q, k, v], weights, product(weights, v)), values)
    assert len(launches(program.body)) == 3


def test_elementwise_work_between_contractions() -> None:
    """One launch where there are more scores than operands."""
    for rows, keys, count in ((96, 96, 1), (64, 24, 2)):
        (q, k, v), values = inputs(rows, keys, 16, 24)
        weights = elementwise(Op.EXP, product(q, k))
        program = planned_far(graph_of([q, k, v], product(weights, v)), values)
        assert len(launches(program.body)) == count


def test_rows_that_are_read_after_the_last_product_stay_in_memory() -> None:
    (q, k, v), values = inputs(64, 96, 16, 24)
    e = elementwise(Op.EXP, product(q, k))
    total = expand(reduce(Op.ADD, e, (1,)), (64, 24), (0,))
    result = elementwise(Op.DIV, product(e, v), total)
    program = planned_far(graph_of([q, k, v], result), values)
    assert len(launches(program.body)) == 3


def test_rows_read_across_stay_apart() -> None:
    """The second product sums over the queries, not the keys."""
    (q, k, _), values = inputs(64, 96, 16, 24)
    w = param(2, (64, 24), F32)
    turned = permute(softmax(product(q, k)), (1, 0))
    values[2] = normal(64, 24, seed=2)
    program = planned_far(graph_of([q, k, w], product(turned, w)), values)
    assert len(launches(program.body)) == 3


def test_wide_layers_stay_apart() -> None:
    """The weights of a large layer do not fit beside the rows: walking them for every block of
    rows costs more than writing what lies between."""
    (x, w, u), _ = inputs(32, 4096, 1024, 1024)
    from tinyhlo.schedule import schedule

    hidden = elementwise(Op.TANH, product(x, w))
    program = schedule(graph_of([x, w, u], product(hidden, u)), "test", (), TARGET)
    assert len(launches(program.body)) == 2


def test_scores_of_two_contractions_stay_apart() -> None:
    (q, k, v), values = inputs(64, 96, 16, 24)
    total = softmax(add(product(q, k), product(q, add(k, k))))
    program = planned_far(graph_of([q, k, v], product(total, v)), values)
    assert len(launches(program.body)) > 1


def test_a_reshape_that_mixes_rows_and_keys_stays_apart() -> None:
    (q, k, _), values = inputs(64, 96, 16, 24)
    mixed = reshape(elementwise(Op.EXP, product(q, k)), (96, 64))
    w = param(2, (64, 24), F32)
    values[2] = normal(64, 24, seed=2)
    program = planned_far(graph_of([q, k, w], product(mixed, w)), values)
    assert len(launches(program.body)) > 1


@pytest.mark.parametrize(
    ("queries", "keys", "columns", "count"),
    [
        (300, 320, 64, 1),  # attention
        (300, 320, 8, 3),  # a vector of columns: scores may as well be read again
        (32, 96, 64, 3),  # the operands are larger
    ],
)
def test_scores_that_the_last_cache_holds(
    queries: int, keys: int, columns: int, count: int
) -> None:
    (q, k, v), values = inputs(queries, keys, 64, columns)
    program = planned(graph_of([q, k, v], product(softmax(product(q, k)), v)), values)
    assert len(launches(program.body)) == count
    far = planned_far(graph_of([q, k, v], product(softmax(product(q, k)), v)), values)
    assert len(launches(far.body)) == 1
