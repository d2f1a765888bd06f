"""Scatters of long rows into few places: each thread does some columns of every update."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.native import compiled, run_native
from tests.codegen.test_ranges import combining
from tinyhlo.codegen.lowering import strips
from tinyhlo.ir.build import broadcast, iota, param, scatter
from tinyhlo.ir.dtypes import F32, F64, I32, DType
from tinyhlo.ir.graph import Graph, Shape
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op

MANY, FEW = 31, 3


@pytest.fixture(autouse=True)
def pays_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes its time for each update."""
    monkeypatch.setattr(strips, "FEWEST", 0)


def rows(op: Op, dtype: DType, row: Shape, several: int = 1) -> Graph:
    """Of `row` elements each; updates follow each other along `several` axes."""
    shape, axes = (*(MANY,) * several, *row), range(len(row))
    table, updates = param(0, (FEW, *row), dtype), param(1, shape, dtype)
    where = param(2, (MANY,) * several, I32)
    place = [
        broadcast(where, shape, range(several)),
        *(iota(shape, I32, several + k) for k in axes),
    ]
    results = scatter([table], [updates], place, combining(op, dtype), False)
    return Graph((table.type, updates.type, where.type), results)


def arguments(graph: Graph) -> list[np.ndarray]:
    """Some of the places lie outside."""
    random = np.random.default_rng(0)
    table, updates, where = graph.params
    values = [random.standard_normal(t.shape).astype(t.dtype.numpy) for t in (table, updates)]
    return [*values, random.integers(-1, FEW + 1, where.shape).astype(np.int32)]


def is_cut(graph: Graph, threads: int) -> bool:
    return any("for strip in" in str(program) for program in compiled(graph, threads).loops)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("columns", [1152, 1201, 2000])
def test_sums_of_rows(columns: int, dtype: DType, threads: int) -> None:
    """In the order of the updates: the interpreter's bits."""
    graph = rows(Op.ADD, dtype, (columns,))
    given = arguments(graph)
    assert is_cut(graph, threads) == (threads > 1)
    (found,), (expected,) = run_native(graph, given, threads), run_graph(graph, given)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("several", [1, 2])
@pytest.mark.parametrize("row", [(5, 400), (1000, 3), (800, 2, 2)], ids=str)
def test_rows_of_several_axes_and_updates_along_several(row: Shape, several: int) -> None:
    """Rows are one range before they are cut: a loop over part of one is not put together with
    another."""
    graph = rows(Op.ADD, F32, row, several)
    given = arguments(graph)
    assert is_cut(graph, 2)
    (found,), (expected,) = run_native(graph, given, 2), run_graph(graph, given)
    np.testing.assert_array_equal(found, expected)


def test_short_rows_are_left_to_one_thread() -> None:
    assert not is_cut(rows(Op.ADD, F32, (767,)), 2) and is_cut(rows(Op.ADD, F32, (768,)), 2)
