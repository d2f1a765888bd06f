"""Rows of a few elements: one iteration a row, in lanes, choices between elements made."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.harness import TARGET
from tests.codegen.harness import check as check_kernel
from tests.codegen.native import check, compiled, run_native
from tests.schedule.graphs import F32, add, matmul, mul, over_rows, softmax
from tinyhlo.codegen.lowering.fused import lower_fused
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.ir.build import (
    broadcast,
    elementwise,
    flip,
    full,
    iota,
    pad,
    param,
    permute,
    reduce,
    scalar,
    scatter,
    where,
)
from tinyhlo.ir.dtypes import F16, I8, I32, DType
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel

WIDTHS = [2, 3, 4, 5, 7]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def rotated(x: Node) -> Node:
    """Each row (a, b, c) becomes (-c, a, b), chosen by the position in it."""
    place = iota(x.shape, I32, 1)
    first = elementwise(Op.LT, place, broadcast(scalar(1, I32), x.shape))
    moved = pad(x, scalar(0.0, F32), (0, 1), (0, -1), (0, 0))
    total = over_rows(reduce(Op.ADD, x, (1,)), x.shape)
    return where(first, elementwise(Op.NEG, total), moved)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("rows", [8, 33, 1000])
def test_right_for_every_width(rows: int, width: int) -> None:
    x, b = param(0, (rows, width), F32), param(1, (width,), F32)
    given = [normal(rows, width), normal(width)]
    bias = broadcast(b, x.shape, (1,))
    for y in (softmax(x), mul(add(x, bias), bias), add(flip(x, (1,)), bias), rotated(x)):
        check(Graph((x.type, b.type), (y,)), given, rtol=1e-4)


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_run_in_lanes(width: int) -> None:
    if width * F32.itemsize >= TARGET.vector_bytes:
        pytest.skip("such a row fills vectors of its own")
    x = param(0, (4096, width), F32)
    for y in (softmax(x), rotated(x)):
        (loops,) = compiled(Graph((x.type,), (y,))).loops
        assert width == 2 or any(move.startswith("write out") for move in loops.moves)
        assert any(move.startswith("vector i") for move in loops.moves)
        assert width == 2 or " reduce" not in str(loops)


@pytest.mark.parametrize("width", [9, 16, 31])
def test_many_rows_of_some_vectors_run_in_lanes_where_they_are_folded(width: int) -> None:
    fits = width < 4 * TARGET.short_lanes(32)
    for rows, folded in ((1030, fits), (100, False)):
        x = param(0, (rows, width), F32)
        graph = Graph((x.type,), (softmax(x),))
        (loops,) = compiled(graph).loops
        assert (" reduce" not in str(loops)) == folded
        check(graph, [normal(rows, width)], rtol=1e-4)


def test_few_rows_run_in_lanes_where_they_are_folded_again_and_again() -> None:
    """Forty softmaxes in a loop: compiling each element is paid by the first thousand rows."""
    x = param(0, (40, TARGET.short_lanes(32)), F32)
    kernel = Kernel("k", Graph((x.type,), (softmax(x),)))
    for runs, folded in ((1, True), (1000, False)):
        loops = choose_moves(lower_fused(kernel), TARGET, runs)
        assert (" reduce" in str(loops)) == folded


def test_a_choice_by_position_costs_nothing() -> None:
    x = param(0, (4096, 3), F32)
    (loops,) = compiled(Graph((x.type,), (rotated(x),))).loops
    assert "where(" not in str(loops) and "?" not in str(loops)


def test_products_with_small_matrices() -> None:
    a, b = param(0, (500, 3), F32), param(1, (3, 4), F32)
    check(Graph((a.type, b.type), (matmul(a, b),)), [normal(500, 3), normal(3, 4)], rtol=1e-4)


def test_rows_with_sums_in_two_short_loops() -> None:
    """Rows of 4 x 2 sums over 3: each of the eight has a register of its own."""
    a, b = param(0, (60, 4, 3), F32), param(1, (60, 3, 2), F32)
    shape = (60, 4, 2, 3)
    left = broadcast(a, shape, (0, 1, 3))
    right = broadcast(permute(b, (0, 2, 1)), shape, (0, 2, 3))
    product = reduce(Op.ADD, mul(left, right), (3,))
    graph = Graph((a.type, b.type), (permute(product, (0, 2, 1)),))
    for result in (graph, Graph((a.type, b.type), (product,))):
        check(result, [normal(60, 4, 3), normal(60, 3, 2)], rtol=1e-4)


def test_rows_written_over_what_they_are_made_of() -> None:
    x = param(0, (77, 3), F32)
    check_kernel(softmax(x), inputs=(normal(77, 3),), in_place=((0, 0),))


def test_the_same_bits_on_any_number_of_threads() -> None:
    value = normal(100_001, 3)
    x = param(0, value.shape, F32)
    graph = Graph((x.type,), (softmax(x),))
    one, two = (run_native(graph, [value], threads)[0] for threads in (1, 2))
    assert one.tobytes() == two.tobytes()


def test_short_reduces_that_choose_by_position_are_written_out() -> None:
    """As `jnp.select` has them: the first of three conditions that holds."""
    x = param(0, (4096,), F32)
    shape = (3, 4096)
    place = iota(shape, I32, 0)
    wide = broadcast(x, shape, (1,))
    held = [full(float(k), shape, F32) for k in range(4)]
    value = where(elementwise(Op.LT, place, full(2, shape, I32)), mul(wide, held[2]), held[3])
    (loops,) = compiled(Graph((x.type,), (reduce(Op.MAX, value, (0,)),))).loops
    assert " reduce" not in str(loops) and "where(" not in str(loops), str(loops)


@pytest.mark.parametrize(
    ("processor", "extent", "lanes"),
    [("x86-64-v4", 16, 16), ("x86-64-v4", 12, 8), ("x86-64-v4", 8, 8), ("x86-64-v3", 12, 8)],
)
def test_a_loop_runs_in_the_widest_vectors_that_it_fills(
    processor: str, extent: int, lanes: int
) -> None:
    x = param(0, (extent,), F32)
    kernel = Kernel("more", Graph((x.type,), (add(x, x),)))
    loops = choose_moves(lower_fused(kernel), named_target(processor, threads=2))
    assert loops.moves == (f"vector i {lanes}",)
    check(Graph((x.type,), (add(x, x), reduce(Op.ADD, x, (0,)))), [normal(extent)], rtol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "width", "lanes"),
    [(F32, 4, 4), (F32, 2, 2), (F16, 8, 8), (I8, 8, 8), (F32, 3, 3)],
)
def test_rows_that_are_added_one_by_one_are_a_vector(dtype: DType, width: int, lanes: int) -> None:
    """Rows that updates meet in order, however short."""
    table, rows = param(0, (50, width), dtype), param(1, (40, width), dtype)
    place = param(2, (40,), I32)
    p, q = (param(k, (), dtype) for k in (0, 1))
    combiner = Graph((p.type, q.type), (elementwise(Op.ADD, p, q),))
    places = [broadcast(place, rows.shape, (0,)), iota(rows.shape, I32, 1)]
    (result,) = scatter([table], [rows], places, combiner, False)
    graph = Graph((table.type, rows.type, place.type), (result,))
    rng = np.random.default_rng(width)
    given = [rng.integers(-9, 9, node.shape).astype(dtype.numpy) for node in (table, rows)]
    given.append(rng.integers(0, 50, 40).astype(np.int32))
    check(graph, given)
    (loops,) = compiled(graph).loops
    found = [move for move in loops.moves if move.startswith("vector")]
    assert found[-1:] == [f"vector j {lanes}"]
