"""Reduces across rows: which order the loops take, and that every shape is right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.native import compiled, run_native, target
from tests.schedule.graphs import F32, add, mul
from tinyhlo.codegen.lowering.fused import lower_fused
from tinyhlo.codegen.moves import columns
from tinyhlo.codegen.moves.basic import collapse, join
from tinyhlo.codegen.moves.columns import by_rows
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.ir import joining
from tinyhlo.ir.build import (
    broadcast,
    cast,
    elementwise,
    full,
    iota,
    pad,
    param,
    reduce,
    slice_,
    where,
)
from tinyhlo.ir.dtypes import BOOL, BY_NUMPY, I32
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel

TINY_CACHE = replace(target(2), l2_bytes=1 << 10)  # so that small arrays are large


def graph_of(*results: Node, shape: tuple[int, ...], dtype: object = F32) -> Graph:
    return Graph((param(0, shape, dtype).type,), results)  # type: ignore[arg-type]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def check(graph: Graph, value: np.ndarray, threads: int = 2) -> None:
    for got, want in zip(
        run_native(graph, [value], threads), run_graph(graph, [value]), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


# rows, columns: strips of rows with a rest, fewer columns than lanes, more than a turn's
SHAPES = [(700, 500), (1030, 333), (40000, 9), (60000, 16), (40, 9000), (50, 4100), (33, 12289)]
SHAPES += [(512, 4500), (2048, 96), (4096, 130), (8192, 16)]  # four rows at a time


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("op", [Op.ADD, Op.MAX])
def test_columns_of_any_shape(shape: tuple[int, int], op: Op) -> None:
    x = param(0, shape, F32)
    check(graph_of(reduce(op, mul(x, x), (0,)), shape=shape), normal(*shape))


def test_rows_are_walked_in_the_order_of_memory() -> None:
    x = param(0, (4096, 512), F32)
    (loops,) = compiled(graph_of(reduce(Op.ADD, x, (0,)), shape=x.shape)).loops
    assert "rows outside i" in loops.moves
    many_columns = param(0, (512, 9000), F32)
    (loops,) = compiled(graph_of(reduce(Op.ADD, many_columns, (0,)), shape=(512, 9000))).loops
    assert "rows outside i" in loops.moves
    short = param(0, (8, 512), F32)
    wide = param(0, (400, 9000), F32)
    for other in (short, wide):
        (loops,) = compiled(graph_of(reduce(Op.ADD, other, (0,)), shape=other.shape)).loops
        assert "rows outside i" not in loops.moves


# whole strips, what is left of them, rows that are parts of vectors, two arrays
NARROW = [(40000, 3), (33333, 7), (25001, 16), (20000, 25), (9001, 40), (6000, 64), (4000, 48)]


@pytest.mark.parametrize("shape", NARROW)
@pytest.mark.parametrize("op", [Op.ADD, Op.MIN])
def test_threads_share_the_rows_of_few_columns(shape: tuple[int, int], op: Op) -> None:
    x = param(0, shape, F32)
    graph = graph_of(reduce(op, x, (0,)), shape=shape)
    (loops,) = compiled(graph).loops
    assert "strips around i" in loops.moves and "parallel i" not in str(loops)
    check(graph, normal(*shape))


@pytest.mark.parametrize("dtype", ["bfloat16", "float64", "int32", "bool"])
def test_few_columns_of_other_types(dtype: str) -> None:
    shape, kind = (30011, 5), BY_NUMPY[np.dtype(dtype)]
    x = param(0, shape, kind)
    op = Op.OR if kind is BOOL else Op.ADD
    value = cast(x, F32) if dtype == "bfloat16" else x
    graph = graph_of(reduce(op, value, (0,)), shape=shape, dtype=kind)
    check(graph, (normal(*shape) * 3).astype(dtype))


def test_few_columns_with_one_number_each() -> None:
    """What all rows read is no row of memory: columns stay as they are."""
    shape = (20000, 25)
    x, mean = param(0, shape, F32), param(1, (25,), F32)
    apart = add(x, broadcast(mean, shape, (1,)))
    graph = Graph((x.type, mean.type), (reduce(Op.ADD, mul(apart, apart), (0,)),))
    (loops,) = compiled(graph).loops
    assert "strips around i" in loops.moves and "for i in 25 vector" in str(loops)
    values = [normal(*shape), normal(25)]
    (got,), (want,) = run_native(graph, values), run_graph(graph, values)
    np.testing.assert_allclose(got, want, rtol=1e-4)


@pytest.mark.parametrize("axis", [0, 1])
def test_few_columns_and_their_numbers(axis: int) -> None:
    """Terms that ask for their row or column, or lie behind a border."""
    shape = (20000, 5)
    x = param(0, shape, F32)
    place = iota(shape, I32, axis)
    counted = mul(x, cast(place, F32))
    chosen = where(elementwise(Op.LT, place, full(3, shape, I32)), x, full(0, shape, F32))
    padded = pad(x, full(1, (), F32), (1, 2), (2, 0), (0, 0))
    results = (reduce(Op.ADD, term, (0,)) for term in (counted, chosen, padded))
    for result in results:
        value = np.random.default_rng(0).integers(-3, 4, shape).astype(np.float32)
        check(graph_of(result, shape=shape), value)


def test_rows_of_two_arrays_are_added_one_by_one() -> None:
    """Two streams of memory as they are."""
    x, y = (param(k, (64, 48), F32) for k in (0, 1))
    kernel = Kernel("sums", Graph((x.type, y.type), (reduce(Op.ADD, mul(x, y), (0,)),)))
    body = by_rows(collapse(join(lower_fused(kernel).body)), TINY_CACHE, [])
    assert "of 64 ordered:" in str(replace(lower_fused(kernel), body=body))


@pytest.mark.parametrize("shape", [(64, 130), (96, 40), (200, 65), (20, 3, 80)])
def test_several_reduces_of_columns_are_passes_of_their_own(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As normalising by batches does; what one finds the others read from scratch."""
    monkeypatch.setattr(columns, "is_far", lambda columns, target: True)
    x = param(0, shape, F32)
    axes, kept = tuple(range(len(shape) - 1)), (len(shape) - 1,)
    mean = elementwise(Op.DIV, reduce(Op.ADD, x, axes), full(9.0, shape[-1:], F32))
    apart = elementwise(Op.SUB, x, broadcast(mean, shape, kept))
    spread = add(reduce(Op.ADD, mul(apart, apart), axes), reduce(Op.MAX, apart, axes))
    graph = graph_of(mul(apart, broadcast(spread, shape, kept)), spread, shape=shape)
    moves = [move for loops in compiled(graph).loops for move in loops.moves]
    assert sum(move.startswith("rows outside") for move in moves) == 2
    check(graph, normal(*shape))


@pytest.mark.parametrize("op", [Op.ADD, Op.MAX])
def test_a_sum_of_joined_arrays_goes_on_from_part_to_part(
    op: Op, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "is_far", lambda columns, target: True)
    x = param(0, (300, 65), F32)
    upper, lower = slice_(x, (0, 0), (200, 65)), slice_(x, (20, 0), (300, 65))
    joined = joining.join([mul(upper, upper), x, lower], 0)
    graph = graph_of(mul(reduce(op, joined, (0,)), full(9.0, (65,), F32)), shape=x.shape)
    moves = [move for loops in compiled(graph).loops for move in loops.moves]
    assert sum(move.startswith("rows outside") for move in moves) == 3
    check(graph, normal(*x.shape))


@pytest.mark.parametrize(("rows", "passes"), [(1500, 2), (100, 0)])
def test_so_are_those_that_only_the_second_cache_does_not_hold(rows: int, passes: int) -> None:
    x = param(0, (rows, 700), F32)
    most = broadcast(reduce(Op.MAX, x, (0,)), x.shape, (1,))
    total = reduce(Op.ADD, elementwise(Op.EXP, elementwise(Op.SUB, x, most)), (0,))
    kernel = Kernel("sums", Graph((x.type,), (elementwise(Op.LOG, total),)))
    moves = choose_moves(lower_fused(kernel), named_target("x86-64-v4", threads=2)).moves
    assert sum(move.startswith("rows outside") for move in moves) == passes


def test_small_images_of_an_array_beyond_the_last_cache_too() -> None:
    x = param(0, (64, 32, 256), F32)
    kernel = Kernel("sums", Graph((x.type,), (reduce(Op.ADD, x, (1,)),)))
    for bytes_, turned in ((1 << 20, True), (32 << 20, False)):
        there = replace(target(2), l3_bytes=bytes_)
        moves = choose_moves(lower_fused(kernel), there).moves
        assert ("rows outside j" in moves) == turned


@pytest.mark.parametrize("columns_", [8192, 9000, 20_011])
def test_many_columns_of_few_far_rows_are_taken_in_parts(
    columns_: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "is_far", lambda columns, target: True)
    x = param(0, (40, columns_), F32)
    mean = elementwise(Op.DIV, reduce(Op.ADD, x, (0,)), full(40.0, x.shape[1:], F32))
    apart = elementwise(Op.SUB, x, broadcast(mean, x.shape, (1,)))
    for result in (reduce(Op.MAX, x, (0,)), reduce(Op.ADD, mul(apart, apart), (0,))):
        graph = graph_of(result, shape=x.shape)
        (loops,) = compiled(graph).loops
        assert loops.moves[0] == f"parts i {columns.PART}" and "parallel i_part" in loops.moves
        check(graph, normal(*x.shape))


def test_no_column_is_computed_twice_where_results_lie_over_operands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(columns, "is_far", lambda columns, target: True)
    x, y = param(0, (9000,), F32), param(1, (40, 9000), F32)
    kernel = Kernel("sums", Graph((x.type, y.type), (add(x, reduce(Op.ADD, y, (0,))),)))
    for places, parts in (((), True), (((0, 0),), False)):
        loops = choose_moves(replace(lower_fused(kernel), in_place=places), target(2))
        assert (f"parts i {columns.PART}" in loops.moves) == parts


def test_a_sum_over_a_middle_axis_and_what_follows() -> None:
    x = param(0, (6, 200, 700), F32)
    mean = mul(reduce(Op.ADD, x, (1,)), reduce(Op.MAX, x, (1,)))
    check(graph_of(elementwise(Op.EXP, elementwise(Op.NEG, mul(mean, mean))), shape=x.shape),
          normal(6, 200, 700))  # fmt: skip


def test_sums_over_two_leading_axes_in_one_pass() -> None:
    x = param(0, (16, 100, 300), F32)
    first, second = reduce(Op.ADD, x, (0, 1)), reduce(Op.ADD, mul(x, x), (0, 1))
    graph = graph_of(first, add(first, second), shape=x.shape)
    assert len(compiled(graph).loops) == 1
    check(graph, normal(16, 100, 300))


def test_integers_wrap() -> None:
    value = np.random.default_rng(0).integers(-(2**31), 2**31, (500, 700)).astype(np.int32)
    x = param(0, value.shape, I32)
    graph = graph_of(reduce(Op.ADD, x, (0,)), shape=value.shape, dtype=BY_NUMPY[value.dtype])
    check(graph, value)


def test_a_nan_in_a_column_stays() -> None:
    value = normal(900, 400)
    value[800, 3] = np.nan
    x = param(0, value.shape, F32)
    check(graph_of(reduce(Op.MAX, x, (0,)), shape=value.shape), value)


def test_the_same_bits_on_any_number_of_threads() -> None:
    value = normal(3000, 200)
    x = param(0, value.shape, F32)
    graph = graph_of(reduce(Op.ADD, x, (0,)), shape=value.shape)
    one, two = (run_native(graph, [value], threads)[0] for threads in (1, 2))
    assert one.tobytes() == two.tobytes()


def test_the_moved_loops_in_print() -> None:
    x = param(0, (64, 24), F32)
    kernel = Kernel("sums", graph_of(reduce(Op.ADD, x, (0,)), shape=x.shape))
    program = lower_fused(kernel)
    moves: list[str] = []
    narrow = replace(TINY_CACHE, vector_bytes=32)
    body = by_rows(collapse(join(program.body)), narrow, moves)
    text = str(replace(program, body=body))
    assert "for j_strip in 4 parallel:" in text and "for j in 4 ordered:" in text
    assert all(f"x0[i + j*24 + j_strip*384{row}]" in text for row in ("", " + 96", " + 192"))
    assert choose_moves(program, narrow).moves[0] == "rows outside i"
