"""The order of a comparator agrees with the comparator itself, on every pair of hard values."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir import dtypes
from tinyhlo.ir.build import elementwise, param, where
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.graph import Graph, Node, Sort
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op
from tinyhlo.ir.order import find_order

FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-40, -1e-40, np.inf, -np.inf, np.nan, -np.nan)


def values(dtype: DType) -> np.ndarray:
    if dtype.is_float:
        return np.array(FLOATS).astype(dtype.numpy)
    if dtype is dtypes.BOOL:
        return np.array([False, True])
    info = np.iinfo(dtype.numpy)
    return np.array([info.min, info.max, 0, 1, 7], dtype.numpy)


def comparator_of(*operands: np.ndarray, keys: int = 1) -> Graph:
    """What `lax.sort` compares with."""
    lowered = jax.jit(lambda *x: lax.sort(x, num_keys=keys)).lower(*operands)
    (node,) = [n for n in import_module(lowered.as_text()).graph.nodes() if isinstance(n, Sort)]
    return node.comparator


def agrees(comparator: Graph, *columns: np.ndarray) -> None:
    """For all pairs of rows of `columns`: the keys order them as the comparator does."""
    keys = find_order(comparator)
    assert keys is not None
    rows = list(zip(*columns, strict=True))
    for left, right in itertools.product(rows, rows):
        pairs = [np.asarray(x) for both in zip(left, right, strict=True) for x in both]
        (expected,) = run_graph(comparator, pairs)
        first, second = (
            [int(run_graph(key.graph, [np.asarray(x) for x in row])[0]) for key in keys]
            for row in (left, right)
        )
        assert (first < second) == bool(expected), (left, right)
        assert all(x < 1 << key.bits for x, key in zip(first, keys, strict=True))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_order_of_lax_sort(dtype: DType) -> None:
    with jax.enable_x64(True):
        column = values(dtype)
        agrees(comparator_of(column), column)


def test_two_keys() -> None:
    grid = np.array(list(itertools.product(FLOATS, (-3, 0, 5))))
    columns = grid[:, 0].astype(np.float32), grid[:, 1].astype(np.int32)
    comparator = comparator_of(*columns, keys=2)
    assert len(find_order(comparator) or ()) == 2
    agrees(comparator, *columns)


def less(dtype: DType, op: Op = Op.LT) -> tuple[Node, Node, Node]:
    left, right = param(0, (), dtype), param(1, (), dtype)
    return left, right, elementwise(op, left, right)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize("descending", [False, True])
def test_plain_comparison(dtype: DType, descending: bool) -> None:
    left, right, ascending = less(dtype)
    result = elementwise(Op.LT, right, left) if descending else ascending
    column = values(dtype)
    numbers = column[~np.isnan(column.astype(np.float64))]  # NaN has no place in this order
    agrees(Graph((left.type, right.type), (result,)), numbers)


def test_selected_comparison() -> None:
    a, b, first = less(dtypes.I32)
    c, d = param(2, (), dtypes.U8), param(3, (), dtypes.U8)
    chosen = where(elementwise(Op.EQ, b, a), elementwise(Op.LT, d, c), first)
    columns = np.array([1, 1, 2, -5], np.int32), np.array([4, 3, 0, 9], np.uint8)
    agrees(Graph((a.type, b.type, c.type, d.type), (chosen,)), *columns)


def test_what_is_no_order() -> None:
    left, right, at_most = less(dtypes.I32, Op.LE)
    shifted = elementwise(Op.LT, elementwise(Op.ADD, left, left), right)
    mixed = elementwise(Op.LT, elementwise(Op.ADD, left, right), right)
    for result in (at_most, shifted, mixed):
        assert find_order(Graph((left.type, right.type), (result,))) is None


def test_sorting_by_the_order_is_sorting() -> None:
    x = jnp.array([3.0, jnp.nan, -0.0, 0.0, -1.0])
    (key,) = find_order(comparator_of(np.asarray(x))) or ()
    numbers = [int(run_graph(key.graph, [np.asarray(v)])[0]) for v in x]
    order = np.argsort(numbers, kind="stable")
    np.testing.assert_array_equal(np.asarray(x)[order], np.asarray(jnp.sort(x)))
