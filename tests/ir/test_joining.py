"""Arrays side by side."""

from __future__ import annotations

import numpy as np
import pytest

from tinyhlo.ir import build
from tinyhlo.ir.dtypes import F32
from tinyhlo.ir.graph import Graph, Node, Slice
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.joining import join, nth, part

X = np.arange(42, dtype="f4").reshape(6, 7)
x, y = (build.param(k, X.shape, F32) for k in range(2))


def rows(node: Node, *numbers: int) -> list[Node]:
    return [build.reshape(nth(node, 0, k), (1, 7)) for k in numbers]


def run(node: Node) -> np.ndarray:
    return run_graph(Graph((x.type, y.type), (node,)), [X, -X])[0]


def test_all_rows_are_the_array() -> None:
    assert join(rows(x, *range(6)), 0) is x
    assert join([part(x, 1, 0, 4), part(x, 1, 4, 7)], 1) is x


def test_neighbours_are_one_slice() -> None:
    both = join([part(x, 1, 1, 3), part(x, 1, 3, 6)], 1)
    assert isinstance(both, Slice)
    np.testing.assert_array_equal(run(both), X[:, 1:6])


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (rows(x, 0, 2), X[[0, 2]]),
        (rows(x, 1, 0), X[[1, 0]]),
        (rows(x, 0) + rows(y, 1), np.stack([X[0], -X[1]])),
        (rows(y, 4) + rows(x, 2, 3) + rows(y, 5), np.stack([-X[4], X[2], X[3], -X[5]])),
        ([part(x, 0, 0, 2), part(part(x, 0, 0, 4), 0, 2, 4)], X[:4]),
        (
            [
                build.slice_(x, (0, 0), (1, 7), (1, 2)),
                build.slice_(x, (1, 0), (2, 7), (1, 2)),
            ],
            X[:2, ::2],
        ),
    ],
)
def test_others_are_joined(pieces: list[Node], expected: np.ndarray) -> None:
    joined = join(pieces, 0)
    assert not isinstance(joined, Slice)
    np.testing.assert_array_equal(run(joined), expected)
