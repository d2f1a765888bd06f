"""Reduces by functions of several values, as trees: the same as element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tests.codegen.native import check, compiled
from tinyhlo.codegen.moves import tree_reduce
from tinyhlo.codegen.moves.tree_reduce import BLOCK, UNIT
from tinyhlo.ir.build import elementwise, full, iota, multi_reduce, pad, param, scalar, where
from tinyhlo.ir.dtypes import F32, I8, I32, DType
from tinyhlo.ir.graph import Graph, Node, Shape
from tinyhlo.ir.ops import Op

LONG = 3 * BLOCK + UNIT + 5
Combined = Callable[[Sequence[Node], Sequence[Node]], tuple[Node, ...]]


def combiner(types: Sequence[DType], function: Combined) -> Graph:
    """The region of a reduce: `function` of accumulators and elements."""
    given = [param(k, (), dtype) for k, dtype in enumerate((*types, *types))]
    results = function(given[: len(types)], given[len(types) :])
    return Graph(tuple(p.type for p in given), results)


def behind(f: Sequence[Node], g: Sequence[Node]) -> tuple[Node, ...]:
    """g(f(x)) of lines (slope, offset): exact in integers, and their order matters."""
    return f[0] * g[0], f[1] * g[0] + g[1]


def first_greatest(one: Sequence[Node], other: Sequence[Node]) -> tuple[Node, ...]:
    """Of (value, place) the first of the greatest values."""
    stays = elementwise(Op.LE, other[0], one[0])
    return where(stays, one[0], other[0]), where(stays, one[1], other[1])


def lines(x: Node, axes: Sequence[int]) -> tuple[Node, ...]:
    """Lines of odd slopes behind one another. The first is none that changes nothing."""
    dtype = x.dtype
    odd = elementwise(Op.OR, x, full(1, x.shape, dtype))
    first = scalar(3, dtype), scalar(-2, dtype)
    return multi_reduce((odd, x), first, axes, combiner((dtype, dtype), behind))


def best(x: Node, axis: int) -> tuple[Node, ...]:
    places = iota(x.shape, I32, axis)
    first = scalar(-9, F32), scalar(-1, I32)
    return multi_reduce((x, places), first, (axis,), combiner((F32, I32), first_greatest))


def numbers(shape: Shape, dtype: DType) -> np.ndarray:
    found = np.random.default_rng(0).integers(-100, 100, shape)
    return found.astype(dtype.numpy)


def moves(graph: Graph) -> list[str]:
    return [move for loops in compiled(graph).loops for move in loops.moves]


def is_a_tree(graph: Graph) -> bool:
    return any(move.startswith("tree ") for move in moves(graph))


@pytest.mark.parametrize("dtype", [I32, I8])
@pytest.mark.parametrize(
    "shape",
    [(17,), (100,), (BLOCK,), (LONG,), (20 * BLOCK,), (300, 100), (97, 40), (1000, 21), (3, LONG)],
)
def test_rows_keep_their_order(shape: Shape, dtype: DType) -> None:
    x = param(0, shape, dtype)
    graph = Graph((x.type,), lines(x, (len(shape) - 1,)))
    assert is_a_tree(graph)
    check(graph, [numbers(shape, dtype)])


@pytest.mark.parametrize(("shape", "axes"), [((100, 300), (0,)), ((5, 100, 64), (1,))])
def test_vectors_of_results_stay(shape: Shape, axes: tuple[int, ...]) -> None:
    x = param(0, shape, I32)
    graph = Graph((x.type,), lines(x, axes))
    assert not is_a_tree(graph)
    check(graph, [numbers(shape, I32)])


@pytest.mark.parametrize("shape", [(40, 50, 30), (7, 3, 2 * BLOCK)])
@pytest.mark.parametrize("axes", [(0, 1, 2), (1, 2), (0, 2), (2,)])
def test_several_axes(shape: Shape, axes: tuple[int, ...]) -> None:
    x = param(0, shape, I32)
    graph = Graph((x.type,), lines(x, axes))
    assert is_a_tree(graph)
    check(graph, [numbers(shape, I32)])


@pytest.mark.parametrize("shape", [(LONG,), (500, 60)])
def test_two_reduces_of_one_array(shape: Shape) -> None:
    x, axis = param(0, shape, F32), len(shape) - 1
    line = multi_reduce(
        (x, x), (scalar(1, F32), scalar(0, F32)), (axis,), combiner((F32, F32), behind)
    )
    graph = Graph((x.type,), (*best(x, axis), *line))
    assert is_a_tree(graph)
    values = (1 + numbers(shape, F32) / 1e5).astype(np.float32)
    check(graph, [values], rtol=1e-4)


def test_what_is_reduced_may_be_computed_and_padded() -> None:
    x = param(0, (50, 90), F32)
    wide = pad(elementwise(Op.SIN, x), scalar(-5, F32), (0, 3), (0, 4), (0, 0))
    graph = Graph((x.type,), best(wide, 1))
    assert is_a_tree(graph)
    check(graph, [numbers(x.shape, F32)])


def test_the_first_of_equal_values_stays_the_first() -> None:
    x = param(0, (4, LONG), F32)
    graph = Graph((x.type,), best(x, 1))
    value, place = (np.zeros((4, LONG), np.float32) for _ in range(2))
    check(graph, [value])
    place[:, LONG // 2 :] = 1
    check(graph, [place])


def test_dear_functions_are_trees_where_rows_are_short() -> None:
    """What is written out is a chain, as long as a row."""

    def added(a: Sequence[Node], b: Sequence[Node]) -> tuple[Node, ...]:
        apart = elementwise(Op.ABS, a[0] - b[0])
        rest = elementwise(Op.LOG1P, elementwise(Op.EXP, elementwise(Op.NEG, apart)))
        return (elementwise(Op.MAX, a[0], b[0]) + rest,)

    x = param(0, (999, 12), F32)
    region = combiner((F32,), added)
    graph = Graph((x.type,), multi_reduce((x,), (scalar(-1e30, F32),), (1,), region))
    assert is_a_tree(graph)
    check(graph, [numbers(x.shape, F32) / np.float32(30)])


def test_rows_that_are_written_out_do_not_share_scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    """No vector runs along a loop that has scratch in each turn."""
    for name, value in (("BLOCK", 64), ("UNIT", 16), ("WIDEST", 8)):
        monkeypatch.setattr(tree_reduce, name, value)
    x = param(0, (64, 15), I32)
    graph = Graph((x.type,), lines(x, (1,)))
    assert is_a_tree(graph)
    check(graph, [numbers(x.shape, I32)])
