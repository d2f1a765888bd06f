"""Operands that lie across are turned around in squares: whole lines are read and written."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.harness import check as check_kernel
from tests.codegen.native import check, compiled
from tests.schedule.graphs import F32, add, mul
from tinyhlo.codegen.loops import Axis, Body, Loop, Store
from tinyhlo.codegen.lowering.fused import lower_fused
from tinyhlo.codegen.moves import turned
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.ir.build import broadcast, cast, elementwise, flip, param, permute, reshape, slice_
from tinyhlo.ir.dtypes import BF16, BOOL, F16, F64, I8, DType
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.joining import join, nth
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel

SHAPES = [
    ((64, 48), (1, 0)),
    ((67, 33), (1, 0)),  # blocks overlap
    ((4, 100), (1, 0)),  # fewer rows than lanes
    ((9, 5), (1, 0)),
    ((130, 14), (1, 0)),  # bytes in half a register
    ((11, 130), (1, 0)),
    ((3, 40, 70), (0, 2, 1)),
    ((17, 5, 23), (2, 1, 0)),
    ((2, 19, 6, 21), (3, 0, 2, 1)),
]


def numbers(shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    values = np.random.default_rng(sum(shape)).standard_normal(shape) * 50
    return (values > 0 if dtype is BOOL else values).astype(dtype.numpy)


@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16, I8, BOOL], ids=str)
@pytest.mark.parametrize(("shape", "order"), SHAPES)
def test_transposes(shape: tuple[int, ...], order: tuple[int, ...], dtype: DType) -> None:
    x = param(0, shape, dtype)
    check(Graph((x.type,), (permute(x, order),)), [numbers(shape, dtype)])


@pytest.mark.parametrize("dtype", [F32, F64, F16, I8, BOOL], ids=str)
@pytest.mark.parametrize("count", range(2, 10))
def test_rows_of_a_few(count: int, dtype: DType) -> None:
    """Planes become rows, rows of pixels columns of them, and images are turned by a quarter."""
    planes, pixels = param(0, (count, 37, 70), dtype), param(1, (37, 70, count), dtype)
    two = param(2, (2, count, 20, 33), dtype)
    results = (
        permute(planes, (2, 1, 0)),
        permute(planes, (1, 2, 0)),
        permute(pixels, (1, 0, 2)),
        flip(permute(pixels, (1, 0, 2)), (0,)),
        flip(permute(pixels, (1, 0, 2)), (1, 2)),
        permute(two, (3, 2, 1, 0)),
    )
    given = (planes, pixels, two)
    graph = Graph(tuple(x.type for x in given), results)
    check(graph, [numbers(x.shape, dtype) for x in given])


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_planes_that_become_rows_are_turned(count: int) -> None:
    x = param(0, (count, 512, 300), F32)
    (loops,) = compiled(Graph((x.type,), (permute(x, (2, 1, 0)),))).loops
    assert any(move.startswith("turn ") and " j " in move for move in loops.moves)


@pytest.mark.parametrize("dtype", [F32, F64, F16, I8, BOOL], ids=str)
@pytest.mark.parametrize(("shape", "order"), [*SHAPES, ((150, 270), (1, 0))])
def test_transposes_of_many_pages(
    shape: tuple[int, ...], order: tuple[int, ...], dtype: DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turned, "has_many_pages", lambda load, column, target: True)
    test_transposes(shape, order, dtype)


def test_of_many_pages_more_than_a_line_is_read_at_a_time() -> None:
    def turns(*shape: int) -> list[str]:
        x = param(0, shape, F32)
        graph = Graph((x.type,), (permute(x, (1, 0)),))
        there = replace(named_target("x86-64-v4", threads=2), l3_bytes=32 << 20)
        moves = choose_moves(lower_fused(Kernel("turned", graph)), there).moves
        return [move for move in moves if move.startswith("turn ")]

    assert turns(8192, 4096) == ["turn i 64 x j 64"]
    assert turns(1024, 1024) == turns(128, 65536) == ["turn i 16 x j 64"]


@pytest.mark.parametrize(
    ("extent", "size"), [(32003, 64), (1000, 64), (96, 48), (40, 40), (67, 24), (9, 8)]
)
def test_blocks_are_as_wide_as_little_overlap_allows(extent: int, size: int) -> None:
    """A divisor is not worth blocks of 8 columns."""
    assert turned.size_of(extent, 64, 8) == size


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("shape", [(64, 48), (67, 33)])
def test_quarter_turns(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    """What is read backwards is turned as well."""
    x = param(0, shape, F32)
    graph = Graph((x.type,), (flip(permute(x, (1, 0)), axes),))
    check(graph, [numbers(shape, F32)])
    (loops,) = compiled(graph).loops
    assert any(move.startswith("turn ") for move in loops.moves)
    assert all(loop.axis is Axis.VECTOR for loop in innermost_loops(loops.body))


def test_operands_of_one_kernel_lie_as_they_like() -> None:
    """Along, across, and across in another type; two results."""
    x, y, z = param(0, (50, 70), F32), param(1, (70, 50), F32), param(2, (50, 70), I8)
    total = add(permute(x, (1, 0)), mul(y, cast(permute(z, (1, 0)), F32)))
    inputs = [numbers(n.shape, n.dtype) for n in (x, y, z)]
    graph = Graph((x.type, y.type, z.type), (total, mul(total, y)))
    check(graph, inputs)
    (loops,) = compiled(graph).loops
    assert any(move.startswith("turn ") for move in loops.moves)


def test_squares_side_by_side_in_one_kernel() -> None:
    """Each has scratch of its own."""
    x, y = param(0, (16, 16), F32), param(1, (16, 8), F32)
    inputs = numbers(x.shape, F32), numbers(y.shape, F32)
    check_kernel(permute(x, (1, 0)), permute(y, (1, 0)), inputs=inputs)


@pytest.mark.parametrize("dtype", [F32, F64, BF16, I8], ids=str)
@pytest.mark.parametrize("shape", [(64, 48), (67, 33), (9, 5), (4, 100), (130, 14)])
@pytest.mark.parametrize("both", [False, True])
def test_pairs(shape: tuple[int, int], dtype: DType, both: bool) -> None:
    """Complex matrices: parts that lie in turns, into such or not."""
    rows, columns = shape
    x = param(0, (rows, columns, 2), dtype)
    parts = [permute(nth(x, 2, k), (1, 0)) for k in (0, 1)]
    result = add(*parts)
    if both:
        result = join([reshape(each, (columns, rows, 1)) for each in (parts[0], result)], 2)
    graph = Graph((x.type,), (result,))
    check(graph, [numbers(x.shape, dtype)])
    kernel = Kernel("pairs", graph)
    target = named_target("x86-64-v4", threads=1)
    moves = choose_moves(lower_fused(kernel), target).moves
    assert min(shape) < 14 or any(move.startswith("turn") for move in moves)


def test_complex_matrices_side_by_side() -> None:
    """Each row of two numbers lies in one of two places."""
    x, y = (param(n, (48, 64, 2), F32) for n in (0, 1))
    result = join([permute(each, (1, 0, 2)) for each in (x, y)], 0)
    check(Graph((x.type, y.type), (result,)), [numbers(x.shape, F32) for _ in range(2)])
    kernel = Kernel("joined", Graph((x.type, y.type), (result,)))
    target = named_target("x86-64-v4", threads=1)
    moves = choose_moves(lower_fused(kernel), target).moves
    assert any(move.startswith("turn ") for move in moves), moves


def test_what_is_written_in_place_is_computed_once() -> None:
    x, y = param(0, (37, 21), F32), param(1, (21, 37), F32)
    result = add(permute(x, (1, 0)), y)
    inputs = (numbers(x.shape, F32), numbers(y.shape, F32))
    check_kernel(result, inputs=inputs, in_place=((0, 1),))


@pytest.mark.parametrize("dtype", [F32, F64, BF16, I8, BOOL], ids=str)
def test_reads_and_writes_are_whole_lines(dtype: DType) -> None:
    """Every loop that touches an argument runs in lanes along its memory."""
    x = param(0, (256, 512), dtype)
    (loops,) = compiled(Graph((x.type,), (permute(x, (1, 0)),))).loops
    innermost = list(innermost_loops(loops.body))
    assert len(innermost) == 2 and all(loop.axis is Axis.VECTOR for loop in innermost)
    fill, copy = innermost
    assert fill.var.extent * dtype.itemsize >= 64 and copy.var.extent * dtype.itemsize >= 256
    (store,) = (s for s in copy.body if isinstance(s, Store))
    assert store.index.coefficient(copy.var) == 1 and not store.memory.local


def test_no_loop_around_squares_runs_in_lanes() -> None:
    """Rows of a few elements, turned, around them a loop that would fill vectors."""
    x, y = param(0, (100, 64, 6), F64), param(1, (6, 64), F64)
    sines = elementwise(Op.SIN, permute(x, (1, 2, 0)))
    result = add(sines, broadcast(permute(y, (1, 0)), sines.shape, (0, 1)))
    check(Graph((x.type, y.type), (result,)), [numbers(x.shape, F64), numbers(y.shape, F64)])


@pytest.mark.parametrize("columns", [5, 20, 200])
def test_overlapping_blocks_of_few_rows_are_of_one_thread(columns: int) -> None:
    """Threads share the columns' blocks; of many rows, whose blocks overlap once, the rows'."""
    x = param(0, (50_000, columns), F32)
    (loops,) = compiled(Graph((x.type,), (permute(x, (1, 0)),))).loops
    (outermost,) = loops.body
    assert isinstance(outermost, Loop) and outermost.axis is Axis.PARALLEL
    assert outermost.var.name == ("i_blockj_block_piece" if columns == 200 else "j_block")


def test_rows_of_few_bytes_are_turned() -> None:
    x = param(0, (2000, 14), I8)
    (loops,) = compiled(Graph((x.type,), (permute(x, (1, 0)),))).loops
    assert any(move.startswith("turn i 8") for move in loops.moves), loops.moves


def test_a_slice_is_turned_within_its_bounds() -> None:
    x = param(0, (40, 60), F32)
    cut = slice_(x, (3, 7), (36, 52), (1, 1))
    check(Graph((x.type,), (permute(cut, (1, 0)),)), [numbers(x.shape, F32)])


def test_blocks_are_turned_outside_of_loops_that_they_do_not_depend_on() -> None:
    x, y = param(0, (16, 32, 20), F32), param(1, (64, 16, 32), F32)
    shape = (16, 20, 64, 32)
    turned_x = broadcast(permute(x, (0, 2, 1)), shape, (0, 1, 3))
    result = mul(turned_x, broadcast(permute(y, (1, 0, 2)), shape, (0, 2, 3)))
    graph = Graph((x.type, y.type), (result,))
    text = str(choose_moves(lower_fused(Kernel("k", graph)), named_target("x86-64-v4", threads=2)))
    assert text.index("turned0[") < text.index("for k in 64") < text.index("y0[")
    check(graph, [numbers(x.shape, F32), numbers(y.shape, F32)])


def innermost_loops(body: Body):  # type: ignore[no-untyped-def]
    for statement in body:
        if isinstance(statement, Loop):
            inner = [s for s in statement.body if isinstance(s, Loop)]
            yield from innermost_loops(statement.body) if inner else [statement]
