"""Sorts of which only the first elements are read."""

from __future__ import annotations

import numpy as np
import pytest

from tinyhlo.ir.build import elementwise, param, slice_, sort
from tinyhlo.ir.dtypes import F32, I32
from tinyhlo.ir.graph import Graph, Node, Sort
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import simplify
from tinyhlo.ir.verifier import verify_graph

SHAPE = (3, 8)


def sorted_pair() -> tuple[Node, ...]:
    scalars = [param(k, (), dtype) for k, dtype in enumerate((F32, F32, I32, I32))]
    comparator = Graph(tuple(s.type for s in scalars), (elementwise(Op.LT, *scalars[:2]),))
    return sort([param(0, SHAPE, F32), param(1, SHAPE, I32)], 1, comparator)


def limit_of(*results: Node) -> int:
    """The length of the sorted rows; the simplified graph computes the same."""
    graph = Graph((param(0, SHAPE, F32).type, param(1, SHAPE, I32).type), results)
    inputs = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32), np.indices(SHAPE)[1]
    arguments = [inputs[0], inputs[1].astype(np.int32)]
    small = simplify(graph)
    verify_graph(small)
    for got, want in zip(run_graph(small, arguments), run_graph(graph, arguments), strict=True):
        np.testing.assert_array_equal(got, want)
    (node,) = [node for node in small.nodes() if isinstance(node, Sort)]
    return node.results[0].shape[1]


def test_first_elements_only() -> None:
    keys, places = sorted_pair()
    first = slice_(keys, (0, 0), (3, 2))
    assert limit_of(first) == 2
    assert limit_of(first, slice_(places, (0, 0), (3, 3))) == 3
    assert limit_of(slice_(keys, (1, 1), (2, 6), (1, 2))) == 6
    doubled = elementwise(Op.ADD, first, first)
    assert limit_of(doubled) == 2


@pytest.mark.parametrize("other", ["result", "operand"])
def test_another_reader_needs_all(other: str) -> None:
    keys, places = sorted_pair()
    whole = places if other == "result" else elementwise(Op.ADD, places, places)
    assert limit_of(slice_(keys, (0, 0), (3, 2)), whole) == 8


def test_the_end_needs_all() -> None:
    keys, _ = sorted_pair()
    assert limit_of(slice_(keys, (0, 6), (3, 8))) == 8
