"""Scatters of many updates on a grid: sorted in tiles, then combined range by range."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.native import check, run_native
from tests.codegen.test_ranges import combining
from tests.runtime.test_cuda import TARGET
from tinyhlo.codegen.grid.lower import lower
from tinyhlo.codegen.grid.mapping import pieces_of
from tinyhlo.codegen.grid.render import device_code
from tinyhlo.codegen.grid.scatter import grouped
from tinyhlo.ir import dtypes
from tinyhlo.ir.build import broadcast, elementwise, iota, param, scatter
from tinyhlo.ir.dtypes import F32, I32, I64, DType
from tinyhlo.ir.graph import Graph, Node, Shape
from tinyhlo.ir.ops import Op
from tinyhlo.schedule.program import Kernel

MANY, FEW = 1_501, 83


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles, ranges and windows of few updates."""
    monkeypatch.setattr(grouped, "FEWEST", 64)
    monkeypatch.setattr(grouped, "TILE", 128)


def elements(
    op: Op, dtype: DType, size: int = FEW, where: DType = I32, shape: Shape = (MANY,)
) -> Graph:
    table, updates = param(0, (size,), dtype), param(1, shape, dtype)
    place = param(2, shape, where)
    results = scatter([table], [updates], [place], combining(op, dtype), False)
    return Graph((table.type, updates.type, place.type), results)


def arguments(graph: Graph, low: int, high: int, most: int = 9, seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    *values, where = graph.params
    given = [random.integers(0, most, t.shape).astype(t.dtype.numpy) for t in values]
    return [*given, random.integers(low, high, where.shape).astype(where.dtype.numpy)]


def is_grouped(graph: Graph) -> bool:
    loops = lower(Kernel("kernel", graph), TARGET)
    assert device_code([Kernel("kernel", graph)], TARGET).source
    return len(pieces_of(loops, TARGET)[0]) == 3


@pytest.mark.parametrize("op", [Op.ADD, Op.MUL, Op.MAX, Op.MIN])
@pytest.mark.parametrize("dtype", [F32, I32, dtypes.U8, dtypes.F64, dtypes.BF16])
@pytest.mark.parametrize("where", [I32, I64, dtypes.U8, dtypes.I8])
def test_elements_of_which_some_lie_outside(op: Op, dtype: DType, where: DType) -> None:
    graph = elements(op, dtype, where=where)
    assert is_grouped(graph)
    low = 0 if where is dtypes.U8 else -9
    check(graph, arguments(graph, low, FEW + 9, 2 if dtype is dtypes.BF16 else 9))


@pytest.mark.parametrize("ends", [(0, 1), (70, FEW), (FEW, 99), (-5, 0), (0, 10)])
@pytest.mark.parametrize("op", [Op.ADD, Op.DIV])
def test_all_updates_in_one_place_and_none(op: Op, ends: tuple[int, int]) -> None:
    """What is combined in no order but its own, too: all windows of a range."""
    graph = elements(op, F32)
    given = arguments(graph, *ends)
    given[1] = given[1] + 1 if op is Op.ADD else np.where(given[1] > 3, 0.5, 2).astype(np.float32)
    check(graph, given)


@pytest.mark.parametrize("size", [1, 2, 50_000, (1 << 24) + 1])
def test_few_places_and_many(size: int) -> None:
    """Keys of 64 bits, too."""
    graph = elements(Op.ADD, I32, size)
    assert is_grouped(graph)
    check(graph, arguments(graph, -1, size + 1))


def test_the_last_update_stays() -> None:
    graph = elements(Op.ADD, F32)
    last = Graph(combining(Op.ADD, F32).params, (param(1, (), F32),))
    (result,) = scatter(
        [param(0, (FEW,), F32)], [param(1, (MANY,), F32)], [param(2, (MANY,), I32)], last, False
    )
    graph = Graph(graph.params, (result,))
    given = arguments(graph, -3, FEW, 1000)
    check(graph, given)
    assert is_grouped(graph)


def test_the_same_bits_in_every_run() -> None:
    graph = elements(Op.ADD, F32)
    random = np.random.default_rng(3)
    given = arguments(graph, -3, FEW)
    given[1] = random.standard_normal(MANY).astype(np.float32)
    (one,), (other,) = run_native(graph, given), run_native(graph, given)
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("shape", [(MANY, 5), (MANY, 1, 300), (3, MANY), (2, 700, 4)])
@pytest.mark.parametrize("op", [Op.ADD, Op.MAX])
def test_rows(shape: Shape, op: Op) -> None:
    """Behind their places, before them, and on both sides."""
    along = shape.index(max(shape[:2]))
    if shape == (MANY, 1, 300):
        along = 0
    operand = tuple(FEW if k == along else extent for k, extent in enumerate(shape))
    table, updates = param(0, operand, F32), param(1, shape, F32)
    where = param(2, (shape[along],), I32)
    places = [
        broadcast(where, shape, (k,)) if k == along else iota(shape, I32, k)
        for k in range(len(shape))
    ]
    results = scatter([table], [updates], places, combining(op, F32), False)
    graph = Graph((table.type, updates.type, where.type), results)
    assert is_grouped(graph)
    check(graph, arguments(graph, -2, FEW + 2))


@pytest.mark.parametrize("columns", [3, 64])
@pytest.mark.parametrize("op", [Op.ADD, Op.DIV])
def test_sums_of_many_rows(columns: int, op: Op) -> None:
    """Of segments: rows of a tile are added first, where their order may be another."""
    shape = (MANY, columns)
    table, updates, where = (
        param(0, (7, columns), F32),
        param(1, shape, F32),
        param(2, (MANY,), I32),
    )
    places = [broadcast(where, shape, (0,)), iota(shape, I32, 1)]
    results = scatter([table], [updates], places, combining(op, F32), False)
    graph = Graph((table.type, updates.type, where.type), results)
    assert is_grouped(graph)
    given = arguments(graph, -1, 8)
    given[1] = np.where(given[1] > 4, 0.5, 2).astype(np.float32) if op is Op.DIV else given[1]
    check(graph, given)


def test_places_that_differ_within_a_row() -> None:
    """x.at[where[i, j], j]: a column is a place of its own."""
    shape = (700, 6)
    table, updates = param(0, (FEW, 6), F32), param(1, shape, F32)
    where = param(2, shape, I32)
    places: list[Node] = [where, iota(shape, I32, 1)]
    results = scatter([table], [updates], places, combining(Op.ADD, F32), False)
    graph = Graph((table.type, updates.type, where.type), results)
    assert is_grouped(graph)
    check(graph, arguments(graph, -2, FEW + 2))


def test_two_axes_and_two_results() -> None:
    scalars = [param(k, (), F32) for k in range(4)]
    sums = (
        elementwise(Op.ADD, scalars[0], scalars[3]),
        elementwise(Op.MAX, scalars[1], scalars[2]),
    )
    combiner = Graph(tuple(node.type for node in scalars), sums)
    tables = [param(k, (9, 31), F32) for k in range(2)]
    updates = [param(k + 2, (MANY,), F32) for k in range(2)]
    where = [param(k + 4, (MANY,), I32) for k in range(2)]
    results = scatter(tables, updates, where, combiner, False)
    graph = Graph(tuple(node.type for node in (*tables, *updates, *where)), results)
    random = np.random.default_rng(0)
    given = [random.integers(0, 9, t.shape).astype(t.dtype.numpy) for t in graph.params]
    check(graph, [*given[:4], given[4] - 1, given[5] * 4])


@pytest.mark.parametrize("size", [1_000, 1 << 21])
def test_tiles_and_windows_of_their_true_size(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """2048 and 1024 keys: an odd and an even number of levels, of 32 and of 64 bits."""
    monkeypatch.undo()
    monkeypatch.setattr(grouped, "FEWEST", 2048)
    monkeypatch.setattr(grouped, "LEAST", 800)
    graph = elements(Op.ADD, I32, size, shape=(5_000,))
    check(graph, arguments(graph, -9, size + 9))


def test_few_updates_pass_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouped, "FEW", MANY + 1)
    assert not is_grouped(elements(Op.ADD, F32))


def test_what_runs_on_a_device_of_many_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million updates: tiles of 2048, ranges of 77 places."""
    monkeypatch.undo()
    graph = elements(Op.ADD, F32, 100_000, shape=(1 << 20,))
    kernel = Kernel("kernel", graph)
    found = device_code([kernel], TARGET).kernels[kernel]
    assert [(d.groups, d.items) for d in found.dispatches] == [(391, 256), (512, 256), (1299, 256)]
