"""Scatters and block updates as generated code."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.native import check, compiled
from tinyhlo.codegen.render import kernels_of, render_program
from tinyhlo.ir import dtypes
from tinyhlo.ir.build import (
    broadcast,
    elementwise,
    full,
    iota,
    param,
    scalar,
    scatter,
    update_slice,
)
from tinyhlo.ir.dtypes import F32, I32, DType
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule import schedule


def values(shape: tuple[int, ...], dtype: DType = F32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 10, shape).astype(dtype.numpy)


@pytest.mark.parametrize("op", [Op.ADD, Op.MUL, Op.MAX, Op.MIN])
@pytest.mark.parametrize("dtype", [F32, I32, dtypes.BF16, dtypes.U8])
def test_scatter_drops_what_is_outside(op: Op, dtype: DType) -> None:
    p, q = param(0, (), dtype), param(1, (), dtype)
    combiner = Graph((p.type, q.type), (elementwise(op, p, q),))
    table, updates, where = param(0, (5,), dtype), param(1, (9,), dtype), param(2, (9,), I32)
    results = scatter([table], [updates], [where], combiner, False)
    graph = Graph((table.type, updates.type, where.type), results)
    index = np.array([0, 1, 1, 1, 4, 5, -1, 0, 2], np.int32)
    check(graph, [values((5,), dtype), values((9,), dtype, seed=1), index])


def test_updates_that_all_lie_outside_are_nothing() -> None:
    p, q = param(0, (), F32), param(1, (), F32)
    combiner = Graph((p.type, q.type), (elementwise(Op.ADD, p, q),))
    table, updates = param(0, (5, 3), F32), param(1, (4, 3), F32)
    places = [iota((4, 3), I32, 0) + 5, iota((4, 3), I32, 1)]
    graph = Graph((table.type, updates.type), scatter([table], [updates], places, combiner, False))
    check(graph, [values((5, 3)), values((4, 3), seed=1)])


def test_updates_are_expected_to_be_inside() -> None:
    """Then nothing jumps back over the update of each turn."""
    p, q = param(0, (), F32), param(1, (), F32)
    combiner = Graph((p.type, q.type), (elementwise(Op.MAX, p, q),))
    table, updates, where = param(0, (5,), F32), param(1, (9,), F32), param(2, (9,), I32)
    results = scatter([table], [updates], [where], combiner, False)
    graph = Graph((table.type, updates.type, where.type), results)
    target = named_target("x86-64-v3", threads=1)
    program = schedule(graph, "test", (), target)
    _, text = render_program(program, kernels_of(program.body), target, lambda _: None)
    (jump,) = [line for line in text.splitlines() if "!prof" in line]
    inside = jump.partition("label %")[2].partition(",")[0]
    assert jump.endswith("!prof !0") and '!0 = !{!"branch_weights"' in text
    assert "load float" in text.partition(f"\n{inside}:")[2].partition("br label")[0]


def test_scatter_of_rows() -> None:
    p, q = param(0, (), F32), param(1, (), F32)
    combiner = Graph((p.type, q.type), (elementwise(Op.ADD, p, q),))
    table, updates, where = param(0, (6, 8), F32), param(1, (10, 8), F32), param(2, (10,), I32)
    rows, columns = broadcast(where, (10, 8), (0,)), iota((10, 8), I32, 1)
    results = scatter([table], [updates], [rows, columns], combiner, False)
    graph = Graph((table.type, updates.type, where.type), results)
    check(graph, [values((6, 8)), values((10, 8), seed=1), values((10,), I32, seed=2) % 6])


@pytest.mark.parametrize("op", [Op.ADD, Op.MAX])
def test_rows_of_a_scatter_run_in_lanes_and_batches_in_parallel(op: Op) -> None:
    """Only the loop over places that are data keeps its order."""
    batch, count, width = 9, 200, 72
    p, q = param(0, (), F32), param(1, (), F32)
    combiner = Graph((p.type, q.type), (elementwise(op, p, q),))
    table, updates = param(0, (batch, 50, width), F32), param(1, (batch, count, width), F32)
    where = param(2, (batch, count), I32)
    shape = updates.shape
    place = [iota(shape, I32, 0), broadcast(where, shape, (0, 1)), iota(shape, I32, 2)]
    results = scatter([table], [updates], place, combiner, False)
    graph = Graph((table.type, updates.type, where.type), results)
    rows = np.random.default_rng(0).integers(-1, 51, (batch, count)).astype(np.int32)
    check(graph, [values(table.shape), values(shape, seed=1), rows])
    text = str(compiled(graph).loops[-1])
    assert f"in {batch} parallel" in text and f"in {count} ordered" in text
    assert f"in {width} vector" in text and text.index("if ") < text.index(" vector")


@pytest.mark.parametrize("width", [8, 10, 17, 33])
def test_no_lane_adds_twice(width: int) -> None:
    """Rows that do not fill vectors, of complex numbers in planes, added up from zero."""
    scalars = [param(k, (), F32) for k in range(4)]
    sums = tuple(elementwise(Op.ADD, scalars[k], scalars[k + 2]) for k in range(2))
    combiner = Graph(tuple(node.type for node in scalars), sums)
    updates = [param(k, (20, width), F32) for k in range(2)]
    where, zero = param(2, (20,), I32), full(0.0, (20, width), F32)
    place = [broadcast(where, (20, width), (0,)), iota((20, width), I32, 1)]
    results = scatter([zero, zero], updates, place, combiner, False)
    graph = Graph((*(node.type for node in updates), where.type), results)
    rows = np.random.default_rng(0).integers(0, 6, 20).astype(np.int32)
    check(graph, [*(values((20, width), seed=k) for k in range(2)), rows])


@pytest.mark.parametrize("count", [1, 3])
def test_a_scatter_that_is_written_out_adds_to_what_was_stored(count: int) -> None:
    """Its additions stand right behind the stores of what it adds to."""
    scalars = [param(k, (), F32) for k in range(4)]
    sums = tuple(elementwise(Op.ADD, scalars[k], scalars[k + 2]) for k in range(2))
    combiner = Graph(tuple(node.type for node in scalars), sums)
    table, update = param(0, (4,), F32), param(1, (count,), F32)
    place = elementwise(Op.MIN, iota((count,), I32, 0), full(1, (count,), I32))
    results = scatter([table, table], [update, update], [place], combiner, False)
    graph = Graph((table.type, update.type), results)
    check(graph, [values((4,)), values((count,), seed=1) + 1])


def test_update_slice_at_a_place_known_at_run_time() -> None:
    x, block = param(0, (10, 12), F32), param(1, (3, 4), F32)
    row, column = param(2, (), I32), param(3, (), I32)
    doubled = elementwise(Op.ADD, block, block)
    result = update_slice(x, doubled, [row, elementwise(Op.ADD, column, scalar(1, I32))])
    graph = Graph((x.type, block.type, row.type, column.type), (result,))
    check(graph, [values((10, 12)), values((3, 4)), np.int32(7), np.int32(2)])
