"""Scatters of many updates: each thread does those in its range of places, in their order."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.native import check, compiled, run_native, target
from tinyhlo.codegen.bodies import below
from tinyhlo.codegen.loops import Keep
from tinyhlo.codegen.lowering import ranges
from tinyhlo.codegen.lowering.kernel import lower_kernel
from tinyhlo.ir import dtypes
from tinyhlo.ir.build import broadcast, elementwise, iota, param, scatter
from tinyhlo.ir.dtypes import F32, I32, I64, DType
from tinyhlo.ir.graph import Graph, Shape
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel

MANY = 3_003  # neither whole blocks nor whole vectors
ROWS = 1_077


@pytest.fixture(autouse=True)
def pays_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes its time for each update."""
    monkeypatch.setattr(ranges, "FEWEST", MANY)
    monkeypatch.setattr(ranges, "NEAR", 0)


def combining(op: Op, dtype: DType) -> Graph:
    p, q = param(0, (), dtype), param(1, (), dtype)
    return Graph((p.type, q.type), (elementwise(op, p, q),))


def values(shape: Shape, dtype: DType = F32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 10, shape).astype(dtype.numpy)


def places(low: int, high: int, dtype: DType = I32, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(low, high, MANY).astype(dtype.numpy)


def keeps(graph: Graph, threads: int = 2) -> bool:
    """Whether a kernel of the graph passes over its updates by ranges."""
    programs = compiled(graph, threads).loops
    return any(isinstance(s, Keep) for program in programs for s in below(program.body))


def elements(op: Op, dtype: DType, index: DType, count: int = MANY) -> Graph:
    table, updates = param(0, (77,), dtype), param(1, (count,), dtype)
    where = param(2, (count,), index)
    results = scatter([table], [updates], [where], combining(op, dtype), False)
    return Graph((table.type, updates.type, where.type), results)


@pytest.mark.parametrize(("count", "holds"), [(MANY, True), ((1 << 31) + MANY, False)])
def test_lists_hold_the_numbers_of_updates(count: int, holds: bool) -> None:
    graph = elements(Op.ADD, F32, I32, count)
    loops = lower_kernel(Kernel("scatter", graph), named_target("x86-64-v3", 2))
    assert any(isinstance(s, Keep) for s in below(loops.body)) == holds


@pytest.mark.parametrize("op", [Op.ADD, Op.MUL, Op.MAX])
@pytest.mark.parametrize("dtype", [F32, I32, dtypes.F64, dtypes.U8])
@pytest.mark.parametrize("index", [I32, I64])
def test_elements_of_which_some_lie_outside(op: Op, dtype: DType, index: DType) -> None:
    graph = elements(op, dtype, index)
    few = values((MANY,), dtype, 1) // (1 if op is Op.ADD else 9)
    check(graph, [values((77,), dtype), few, places(-20, 99, index)])
    assert keeps(graph) == target(2).packs and not keeps(graph, threads=1)


def test_places_that_do_not_fit_32_bits_are_outside() -> None:
    graph = elements(Op.ADD, F32, I64)
    far = places(0, 77, I64) + (values((MANY,), I64) << 32)
    check(graph, [values((77,)), values((MANY,), seed=1), far])


@pytest.mark.parametrize("shape", [(ROWS, 11), (ROWS, 1, 16), (1, ROWS, 12)])
def test_rows(shape: Shape) -> None:
    """Of one axis, of two, and behind an axis of one."""
    rows, first = 60, shape.index(ROWS)
    operand = tuple(rows if k == first else extent for k, extent in enumerate(shape))
    table, updates, where = param(0, operand, F32), param(1, shape, F32), param(2, (ROWS,), I32)
    place = [
        broadcast(where, shape, (k,)) if k == first else iota(shape, I32, k)
        for k in range(len(shape))
    ]
    results = scatter([table], [updates], place, combining(Op.ADD, F32), False)
    graph = Graph((table.type, updates.type, where.type), results)
    check(graph, [values(operand), values(shape, seed=1), places(-1, rows + 1)[:ROWS]])
    assert keeps(graph) == target(2).packs


def test_places_on_two_axes_and_two_results() -> None:
    scalars = [param(k, (), F32) for k in range(4)]
    sums = tuple(elementwise(Op.ADD, scalars[k], scalars[k + 2]) for k in range(2))
    combiner = Graph(tuple(node.type for node in scalars), sums)
    tables = [param(k, (9, 31), F32) for k in range(2)]
    updates = [param(k + 2, (MANY,), F32) for k in range(2)]
    where = [param(k + 4, (MANY,), I32) for k in range(2)]
    results = scatter(tables, updates, where, combiner, False)
    graph = Graph(tuple(node.type for node in (*tables, *updates, *where)), results)
    given = [values((9, 31), seed=k) for k in range(2)]
    given += [values((MANY,), seed=k) for k in range(2)]
    check(graph, [*given, places(-1, 10), places(-2, 33, seed=2)])
    assert keeps(graph) == target(2).packs


def test_the_same_bits_for_any_number_of_threads() -> None:
    graph = elements(Op.ADD, F32, I32)
    random = np.random.default_rng(3)
    given = [random.standard_normal(n).astype(np.float32) for n in (77, MANY)]
    given.append(places(-3, 80))
    (alone,) = run_native(graph, given, 1)
    for threads in (2, 3, 5):
        np.testing.assert_array_equal(run_native(graph, given, threads)[0], alone)


def test_all_updates_in_one_range_and_none() -> None:
    graph = elements(Op.ADD, F32, I32)
    for low, high in ((0, 3), (70, 77), (90, 99)):
        check(graph, [values((77,)), values((MANY,), seed=1), places(low, high)])


def test_a_target_in_the_nearest_cache_is_left_to_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(ranges, "FEWEST", MANY)
    assert not keeps(elements(Op.ADD, F32, I32))
