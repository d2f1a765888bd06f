"""Scatters of many updates into few places, in any order: each thread has a copy of the result."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.native import compiled, run_native
from tests.codegen.test_ranges import combining
from tinyhlo.codegen.lowering import own_copies
from tinyhlo.ir import dtypes
from tinyhlo.ir.build import broadcast, iota, param, scatter
from tinyhlo.ir.dtypes import F32, I32, DType
from tinyhlo.ir.graph import Graph, Shape
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op

MANY, FEW = 3_001, 37  # no thread's share is another's


@pytest.fixture(autouse=True)
def pays_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes its time for each update."""
    monkeypatch.setattr(own_copies, "FEWEST", 0)
    monkeypatch.setattr(own_copies, "SHARE", 0)


def elements(op: Op, dtype: DType) -> Graph:
    table, updates, where = (
        param(0, (FEW,), dtype),
        param(1, (MANY,), dtype),
        param(2, (MANY,), I32),
    )
    results = scatter([table], [updates], [where], combining(op, dtype), False)
    return Graph((table.type, updates.type, where.type), results)


def arguments(dtype: DType, low: int = -5, high: int = FEW + 5) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    first = 0 if dtype.kind == "unsigned" else -9
    table, updates = (random.integers(first, 9, n).astype(dtype.numpy) for n in (FEW, MANY))
    return [table, updates, random.integers(low, high, MANY).astype(np.int32)]


def check(graph: Graph, given: list[np.ndarray], threads: int = 3) -> None:
    """The interpreter's bits."""
    np.testing.assert_array_equal(run_native(graph, given, threads)[0], run_graph(graph, given)[0])


def has_copies(graph: Graph, threads: int = 3) -> bool:
    return any("local copies" in str(program) for program in compiled(graph, threads).loops)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", [I32, dtypes.U8, dtypes.I64])
@pytest.mark.parametrize("op", [Op.ADD, Op.MUL, Op.MAX, Op.MIN, Op.AND, Op.OR, Op.XOR])
def test_whole_numbers(op: Op, dtype: DType, threads: int) -> None:
    """Some of the places lie outside."""
    graph = elements(op, dtype)
    check(graph, arguments(dtype), threads)
    assert has_copies(graph, threads) == (threads > 1)


@pytest.mark.parametrize("op", [Op.MAX, Op.MIN])
def test_extremes_of_floats(op: Op) -> None:
    """Of which one place has a NaN, and one has infinities alone."""
    graph = elements(op, F32)
    table, updates, where = arguments(F32)
    updates[where == 3], table[3] = (np.inf, np.inf) if op is Op.MIN else (-np.inf, -np.inf)
    updates[np.flatnonzero(where == 5)[-1]] = np.nan
    check(graph, [table, updates, where])
    assert has_copies(graph)


@pytest.mark.parametrize(("places", "row", "pays"), [(9_000, 1, True), (5_000, 8, False)])
def test_places_outweigh_their_elements(
    places: int, row: int, pays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of eight is combined as fast as one number."""
    monkeypatch.setattr(own_copies, "FEWEST", 1 << 16)
    monkeypatch.setattr(own_copies, "SHARE", 8)
    table, updates = (param(k, (n, row), F32) for k, n in enumerate((FEW, places)))
    where = param(2, (places,), I32)
    index = [broadcast(where, updates.shape, (0,)), iota(updates.shape, I32, 1)]
    results = scatter([table], [updates], index, combining(Op.MAX, F32), False)
    assert has_copies(Graph((table.type, updates.type, where.type), results), 2) == pays


def test_sums_of_floats_keep_their_order() -> None:
    graph = elements(Op.ADD, F32)
    given = [values.astype(np.float32) / 3 for values in arguments(F32)[:2]]
    given.append(arguments(F32)[2])
    assert not has_copies(graph)
    one, three = (run_native(graph, given, threads)[0] for threads in (1, 3))
    np.testing.assert_array_equal(one, three)


@pytest.mark.parametrize(("shape", "threads"), [((MANY, 4), 3), ((1, MANY, 4), 3), ((5, 999), 4)])
def test_rows(shape: Shape, threads: int) -> None:
    """Five of them are not enough for four threads: three would have two each."""
    first = 1 if shape[0] == 1 else 0
    operand = tuple(2 if k == first else extent for k, extent in enumerate(shape))
    table, updates, where = (
        param(0, operand, F32),
        param(1, shape, F32),
        param(2, shape[first : first + 1], I32),
    )
    place = [
        broadcast(where, shape, (k,)) if k == first else iota(shape, I32, k)
        for k in range(len(shape))
    ]
    results = scatter([table], [updates], place, combining(Op.MAX, F32), False)
    graph = Graph((table.type, updates.type, where.type), results)
    random = np.random.default_rng(0)
    rows = [random.standard_normal(extents).astype(np.float32) for extents in (operand, shape)]
    numbers = random.integers(-1, 3, shape[first]).astype(np.int32)
    check(graph, [*rows, numbers], threads)
    assert has_copies(graph, threads) == (threads < shape[first] - 1)
