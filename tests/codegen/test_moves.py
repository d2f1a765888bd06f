"""What the heuristics do with typical kernels, as printed loops and counts."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.native import check, compiled, run_native, target
from tests.schedule.graphs import F32, add, mul, normal, over_rows, softmax
from tinyhlo.codegen.bodies import nest_of
from tinyhlo.codegen.expressions import Load, Memory, literal
from tinyhlo.codegen.loops import Axis, Body, Loop, Store
from tinyhlo.codegen.lowering.fused import lower_fused
from tinyhlo.codegen.lowering.kernel import lower_kernel
from tinyhlo.codegen.moves.basic import collapse
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.ir.build import (
    broadcast,
    elementwise,
    flip,
    full,
    gather,
    iota,
    pad,
    param,
    permute,
    reduce,
    reshape,
    scalar,
    window,
)
from tinyhlo.ir.dtypes import F64, I32, DType
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.index import Var, index
from tinyhlo.ir.joining import join, part
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel

LANES = target(2).vector_bytes // 4


def over_pairs(x: Node, axis: int) -> Node:
    """Rows of an array, repeated for those of another of 300 and 400."""
    return broadcast(x, (300, 400, x.shape[1]), (1 - axis, 2))


def moves_of(graph: Graph) -> tuple[str, ...]:
    (loops,) = compiled(graph).loops
    return loops.moves


def test_elementwise_runs_as_one_vector_loop() -> None:
    x = param(0, (64, 3, 50), F32)
    assert moves_of(Graph((x.type,), (add(x, x),))) == (f"vector ijk {LANES}",)


def test_large_elementwise_runs_in_parallel_strips() -> None:
    x = param(0, (1 << 20,), F32)
    vector, parallel, *_ = moves_of(Graph((x.type,), (mul(x, x),)))
    assert vector == f"vector i {LANES}" and parallel.startswith("parallel i/")


@pytest.mark.parametrize("cut", ["outer", "inner"])
def test_part_of_a_range_is_not_collapsed_with_another(cut: str) -> None:
    i, j = Var("i", 10), Var("j", 3)
    y = Memory("y0", F32, 30)
    inner = Loop(j, Axis.SERIAL, (Store(y, index(i) * 3 + index(j), literal(1, F32)),))
    whole = Loop(i, Axis.SERIAL, (inner,))
    (loop,) = collapse((whole,))
    assert isinstance(loop, Loop) and loop.var.extent == 30
    part = (
        replace(whole, count=5)
        if cut == "outer"
        else replace(whole, body=(replace(inner, count=2),))
    )
    assert str(collapse((part,))[0]) == str(part)


def test_as_many_loops_are_collapsed_as_every_index_walks_as_one() -> None:
    """Of f32[2,2,2,2,2] into another order of its first two axes: the other three."""
    axes = [Var(name, 2) for name in "ijklm"]
    i, j, *others = map(index, axes)
    inner = others[0] * 4 + others[1] * 2 + others[2]
    memories = Memory("y0", F32, 32), Memory("x0", F32, 32)
    value = Load(memories[1], j * 16 + i * 8 + inner)
    body: Body = (Store(memories[0], i * 16 + j * 8 + inner, value),)
    for var in reversed(axes):
        body = (Loop(var, Axis.SERIAL, body),)
    found = nest_of(collapse(body)[0])
    assert [(loop.var.name, loop.var.extent) for loop in found] == [("i", 2), ("j", 2), ("klm", 8)]
    (store,) = found[-1].body
    assert isinstance(store, Store) and isinstance(store.value, Load)
    assert [str(place) for place in (store.index, store.value.index)] == [
        "i*16 + j*8 + klm",
        "i*8 + j*16 + klm",
    ]


def test_doubles_are_shared_from_half_as_many_on() -> None:
    graphs = (
        Graph((x.type,), (flip(x, (0,)),))
        for x in (param(0, (40_000,), F64), param(0, (40_000,), F32))
    )
    doubles, floats = (moves_of(graph) for graph in graphs)
    assert any(move.startswith("parallel") for move in doubles)
    assert not any(move.startswith("parallel") for move in floats)


@pytest.mark.parametrize("outer", [(2,), (7,), (31,), (3, 2), (2, 3, 4)])
def test_few_turns_share_the_strips_of_the_loop_inside(outer: tuple[int, ...]) -> None:
    """Of images in a batch: enough pieces for many threads, of equal size."""
    x = param(0, (*outer, 90, 80, 9), F32)
    graph = Graph((x.type,), (flip(x, (len(outer), len(outer) + 1)),))
    (loops,) = compiled(graph).loops
    (pieces,) = loops.body
    assert isinstance(pieces, Loop) and pieces.axis is Axis.PARALLEL
    assert 32 <= pieces.var.extent <= 2 * 32
    check(graph, [np.arange(x.type.size, dtype=np.float32).reshape(x.shape)])


def test_lines_from_beyond_the_cache_are_work() -> None:
    """Diagonals of matrices: as many elements shared by all threads, or not."""

    def diagonals(count: int) -> Graph:
        x = param(0, (count, 33, 33), F32)
        places = [iota((count, 33), I32, axis) for axis in (0, 1, 1)]
        return Graph((x.type,), (gather(x, places),))

    assert "parallel i" in moves_of(diagonals(1000))
    assert "parallel i" not in moves_of(diagonals(100))  # all of it lies in the second cache
    check(diagonals(1000), [np.arange(33 * 33000, dtype=np.float32).reshape(1000, 33, 33)])


def test_what_lies_across_and_is_padded_with_gaps_is_gathered_in_lanes() -> None:
    """A vector's places are compared with their bounds at once."""
    x = param(0, (8, 5, 12, 9), F32)
    padded = pad(permute(x, (3, 0, 2, 1)), scalar(0.0, F32), (1,) * 4, (2,) * 4, (0, 0, 1, 0))
    graph = Graph((x.type,), (padded,))
    wide = named_target("x86-64-v4", threads=1)
    loops = choose_moves(lower_kernel(Kernel("padded", graph), wide), wide)
    assert "vector l 8" in loops.moves
    check(graph, [normal(*x.shape)])


def test_rows_of_two_vectors_leave_no_loop() -> None:
    x = param(0, (300, 2 * LANES), F32)
    y = param(1, (400, 2 * LANES), F32)
    graph = Graph((x.type, y.type), (mul(over_pairs(x, 1), over_pairs(y, 0)),))
    assert f"vector k {2 * LANES}" in moves_of(graph)
    random = np.random.default_rng(0)
    check(graph, [random.standard_normal(v.shape).astype(np.float32) for v in (x, y)])


def test_softmax_rows_are_parallel_and_their_columns_vectors() -> None:
    x = param(0, (512, 1024), F32)
    moves = moves_of(Graph((x.type,), (softmax(x),)))
    assert moves[-1] == "parallel i"
    assert len([m for m in moves if m.startswith("vector j")]) == 3


def test_sum_over_rows_walks_memory_in_order() -> None:
    x = param(0, (300, 200), F32)
    graph = Graph((x.type,), (reduce(Op.ADD, x, (0,)),))
    (vector,) = [m for m in moves_of(graph) if m.startswith("vector")]
    assert vector.startswith("vector i ")  # the result's axis, unit stride, not the summed one
    value = np.random.default_rng(0).standard_normal((300, 200)).astype(np.float32)
    check(graph, [value], atol=1e-4)


def test_a_sum_over_turned_axes_walks_along_memory() -> None:
    x = param(0, (8, 40, 50), F32)
    y = permute(x, (0, 2, 1))
    graph = Graph((x.type,), (reduce(Op.ADD, mul(y, y), (0, 1, 2)),))
    assert moves_of(graph)[0] == "interchange i k j"
    (loops,) = compiled(graph).loops
    assert re.search(r"for (ikj|ijk) in .* of 16000 reduce", str(loops))
    check(graph, [np.random.default_rng(0).standard_normal((8, 40, 50)).astype(np.float32)])


def test_a_turned_result_does_not_keep_sums_out_of_vectors() -> None:
    """Rows are read along memory, their few sums stored across it."""
    x, w = param(0, (40, 50, 64), F32), param(1, (40,), F32)
    scaled = mul(x, broadcast(w, (40, 50, 64), (0,)))
    graph = Graph((x.type, w.type), (permute(reduce(Op.ADD, scaled, (0,)), (1, 0)),))
    moves = moves_of(graph)
    assert moves[0] == "interchange j i" and any(m.startswith("vector i ") for m in moves)
    generator = np.random.default_rng(0)
    check(graph, [generator.normal(size=t.shape).astype("f4") for t in graph.params], atol=1e-4)


def test_results_stored_across_do_not_keep_what_they_cost_out_of_vectors() -> None:
    """However many loops stand around the one that stores them."""
    x, y = param(0, (8, 30, 8, 128), F32), param(1, (8, 30), F32)
    terms = elementwise(Op.TANH, add(x, broadcast(y, x.shape, (0, 1))))
    graph = Graph((x.type, y.type), (permute(reduce(Op.MAX, terms, (2,)), (2, 0, 1)),))
    loops = choose_moves(lower_fused(Kernel("k", graph)), named_target("x86-64-v4", threads=2))
    assert "vector i 64" in loops.moves
    check(graph, [normal(*n.shape) for n in (x, y)], atol=1e-5)


def test_what_a_sum_reads_counts_more_than_what_is_stored_of_it() -> None:
    """x lies along i, results and their factors across it."""
    x, y, w = (
        param(k, shape, F32) for k, shape in enumerate([(50, 64, 100), (50, 100), (64, 100)])
    )
    terms = mul(permute(x, (2, 1, 0)), broadcast(permute(y, (1, 0)), (100, 64, 50), (0, 2)))
    scale = permute(w, (1, 0))
    graph = Graph((x.type, y.type, w.type), (mul(reduce(Op.ADD, terms, (2,)), scale),))
    assert any(move.startswith("vector i ") for move in moves_of(graph))
    check(graph, [normal(*n.shape) for n in (x, y, w)], atol=1e-4)


def test_a_loop_in_between_may_be_the_better_one() -> None:
    """Rows of x lie along j, of w along i; a result is stored for every three products."""
    x, w = param(0, (8, 3, 4096), F32), param(1, (3, 32), F32)
    shape = (32, 8, 4096, 3)
    factors = broadcast(permute(w, (1, 0)), shape, (0, 3)), broadcast(x, (32, *x.shape), (1, 2, 3))
    terms = mul(factors[0], permute(factors[1], (0, 1, 3, 2)))
    graph = Graph((x.type, w.type), (reduce(Op.ADD, terms, (3,)),))
    loops = choose_moves(lower_fused(Kernel("k", graph)), target(2))
    assert any(move.startswith(("vector k ", "vector jk ")) for move in loops.moves)


@pytest.mark.parametrize("depth", [(), (5,)])
def test_sums_run_in_lanes_whatever_lies_along_them(depth: tuple[int, ...]) -> None:
    """One by one, each addition waits for the one before."""
    x, y = param(0, (40, *depth, 30, 32), F32), param(1, (40, *depth, 32, 30), F32)
    rank = len(x.shape)
    turned = permute(y, (*range(rank - 2), rank - 1, rank - 2))
    graph = Graph((x.type, y.type), (reduce(Op.ADD, mul(x, turned), range(1, rank)),))
    assert any(move.startswith("vector ") for move in moves_of(graph))
    check(graph, [normal(*n.shape) for n in (x, y)], atol=1e-4)


def test_sums_over_two_axes_wait_for_themselves_as_well() -> None:
    """Lanes run along the results, and rows of x are turned in registers."""
    x, y, w = (
        param(0, (7, 128, 64, 16), F32),
        param(1, (16, 7, 128, 64), F32),
        param(2, (16, 7), F32),
    )
    scaled = mul(y, broadcast(w, y.shape, (0, 1)))
    terms = mul(permute(x, (3, 0, 1, 2)), scaled)
    graph = Graph((x.type, y.type, w.type), (reduce(Op.ADD, terms, (0, 1)),))
    loops = choose_moves(lower_fused(Kernel("k", graph)), named_target("x86-64-v4", threads=2))
    assert "vector ij 16" in loops.moves and "sums k 8" in loops.moves
    check(graph, [normal(*n.shape) for n in (x, y, w)], atol=1e-4)


def test_a_loop_of_one_vector_goes_inside_of_the_one_that_threads_share() -> None:
    x, y = param(0, (40, 16, 128, 8), F32), param(1, (40, 128), F32)
    terms = elementwise(
        Op.TANH, add(permute(x, (3, 2, 0, 1)), broadcast(y, (8, 128, 40, 16), (2, 1)))
    )
    graph = Graph((x.type, y.type), (reduce(Op.MAX, terms, (3,)),))
    loops = choose_moves(lower_fused(Kernel("k", graph)), named_target("x86-64-v4", threads=2))
    (outermost,) = (s for s in loops.body if isinstance(s, Loop))
    assert outermost.axis is Axis.PARALLEL
    check(graph, [normal(*n.shape) for n in (x, y)], atol=1e-5)


def test_a_small_factor_does_not_decide_along_what_sums_run() -> None:
    """w lies along the innermost loop, which is short; what it multiplies along the outermost."""
    x, w = param(0, (50, 3, 64, 128), F32), param(1, (64, 3), F32)
    factors = permute(x, (3, 1, 0, 2)), broadcast(permute(w, (1, 0)), (128, 3, 50, 64), (1, 3))
    graph = Graph((x.type, w.type), (reduce(Op.ADD, mul(*factors), (3,)),))
    assert any(move.startswith("vector i ") for move in moves_of(graph))
    check(graph, [normal(50, 3, 64, 128), normal(64, 3)], atol=1e-4)


def test_a_full_sum_is_the_same_on_any_number_of_threads() -> None:
    x = param(0, (1000, 1000), F32)
    graph = Graph((x.type,), (reduce(Op.ADD, x, (0, 1)),))
    value = np.random.default_rng(0).standard_normal((1000, 1000)).astype(np.float32)
    one, two = (run_native(graph, [value], threads) for threads in (1, 2))
    np.testing.assert_allclose(one[0], value.sum(dtype=np.float64), rtol=1e-4)
    assert one[0].tobytes() == two[0].tobytes()


def test_sums_of_one_row_share_a_loop() -> None:
    x = param(0, (32, 100), F32)
    first, second = reduce(Op.ADD, x, (1,)), reduce(Op.ADD, mul(x, x), (1,))
    graph = Graph((x.type,), (mul(over_rows(first, x.shape), over_rows(second, x.shape)),))
    (loops,) = compiled(graph).loops
    assert str(loops).count(" reduce") == 1


def test_sums_that_fill_no_vector_stand_side_by_side_in_one() -> None:
    """Neither factor lies along both axes: the lanes of the outer loop wait for no addition."""
    x, y = param(0, (40, 24, 36), F32), param(1, (36, 24, 40), F32)
    total = reduce(Op.ADD, mul(x, permute(y, (2, 1, 0))), (2,))
    graph = Graph((x.type, y.type), (total,))
    assert any(move.startswith("vector i ") for move in moves_of(graph))
    random = np.random.default_rng(0)
    check(graph, [random.standard_normal(n.shape).astype(np.float32) for n in (x, y)], atol=1e-5)


def test_a_dear_value_of_each_row_is_computed_in_vectors_before_them() -> None:
    x, scale = param(0, (64, 40), F32), param(1, (64,), F32)
    dear = over_rows(elementwise(Op.LOG1P, elementwise(Op.EXP, scale)), x.shape)
    graph = Graph((x.type, scale.type), (mul(mul(x, x), dear),))
    loops = choose_moves(lower_fused(Kernel("k", graph)), named_target("x86-64-v3", threads=2))
    first, rows = (s for s in loops.body if isinstance(s, Loop))
    assert first.width == 8 and "log1p" in str(loops)
    assert rows.width == 1 and "before each0" in loops.moves
    check(graph, [normal(64, 40), normal(64)])


def test_sums_of_short_sums_run_in_lanes() -> None:
    x = param(0, (40, 100, 3), F32)
    roots = elementwise(Op.SQRT, reduce(Op.ADD, mul(x, x), (2,)))
    graph = Graph((x.type,), (reduce(Op.ADD, roots, (1,)),))
    loops = choose_moves(lower_fused(Kernel("k", graph)), named_target("x86-64-v3", threads=2))
    assert loops.moves[0] == "write out k 3" and "for j in 100 reduce 8" in str(loops)
    check(graph, [normal(40, 100, 3)], rtol=1e-4)


def test_a_residual_of_neighbours_side_by_side_runs_in_lanes() -> None:
    """Their maximum is written out where the loop that reduces it is made."""
    x = param(0, (64, 64), F32)
    turned = [
        join([part(x, axis, at, 64), part(x, axis, 0, at)], axis)
        for at in (1, 63)
        for axis in (0, 1)
    ]
    rows = join([reshape(each, (1, 64, 64)) for each in turned], 0)
    value = elementwise(Op.ABS, elementwise(Op.SUB, reduce(Op.MAX, rows, (0,)), x))
    graph = Graph((x.type,), (reduce(Op.MAX, value, (0, 1)),))
    (loops,) = compiled(graph).loops
    assert "for j in 62 reduce " in str(loops)
    check(graph, [normal(64, 64)])


@pytest.mark.parametrize("op", [Op.ADD, Op.MAX])
@pytest.mark.parametrize("dtype", [F32, F64, I32])
@pytest.mark.parametrize("shape", [(240, 60), (37, 33), (16, 64), (50, 97)])
def test_rows_are_summed_as_many_at_a_time_as_there_are_lanes(
    shape: tuple[int, int], dtype: DType, op: Op
) -> None:
    x, w = param(0, shape, dtype), param(1, (shape[1],), dtype)
    terms = mul(x, broadcast(w, shape, (1,)))
    graph = Graph((x.type, w.type), (reduce(op, terms, (1,)),))
    loops = choose_moves(lower_fused(Kernel("k", graph)), named_target("x86-64-v4", threads=2))
    assert f"rows i {64 // dtype.itemsize}" in loops.moves
    random = np.random.default_rng(0)
    arrays = [random.integers(-9, 9, n.shape).astype(dtype.numpy) for n in (x, w)]
    check(graph, arrays)


@pytest.mark.parametrize(
    ("height", "width", "parts"),
    [(6004, 64, 4), (6003, 50, 3), (6008, 61, 4), (6001, 60, 0), (4096, 300, 0)],
)
@pytest.mark.parametrize("op", [Op.ADD, Op.MAX])
def test_short_rows_beyond_the_cache_are_taken_from_several_parts(
    height: int, width: int, parts: int, op: Op
) -> None:
    """Those of 6,001 are no equal parts, and those of 300 not short."""
    x, w, bias = param(0, (height, width), F32), param(1, (width,), F32), param(2, (height,), F32)
    y = add(reduce(op, mul(x, broadcast(w, x.shape, (1,))), (1,)), bias)
    graph = Graph((x.type, w.type, bias.type), (y,))
    loops = choose_moves(lower_fused(Kernel("k", graph)), named_target("x86-64-v4", threads=2))
    assert (f"apart i {parts}" in loops.moves) == (parts > 0)
    assert ("rows i 2" in loops.moves) == (parts > 0)
    check(graph, [normal(*n.shape) for n in (x, w, bias)], atol=1e-4)


@pytest.mark.parametrize(
    ("height", "bytes_", "together"), [(6000, 32 << 20, 2), (6000, 1 << 20, 0)]
)
def test_longer_rows_that_a_cache_holds_share_the_last_step_of_extremes(
    height: int, bytes_: int, together: int
) -> None:
    x = param(0, (height, 160), F32)
    here = replace(named_target("x86-64-v4", threads=2), l3_bytes=bytes_)
    for op, rows in ((Op.MAX, together), (Op.ADD, 0)):
        graph = Graph((x.type,), (reduce(op, x, (1,)),))
        loops = choose_moves(lower_fused(Kernel("k", graph)), here)
        assert (f"rows i {rows}" in loops.moves) == (rows > 0)


@pytest.mark.parametrize(("height", "width"), [(240, 64), (4096, 256)])
def test_rows_in_the_cache_and_longer_ones_are_taken_as_they_lie(height: int, width: int) -> None:
    x = param(0, (height, width), F32)
    graph = Graph((x.type,), (reduce(Op.ADD, x, (1,)),))
    loops = choose_moves(lower_fused(Kernel("k", graph)), named_target("x86-64-v4", threads=2))
    assert not any(move.startswith("apart") for move in loops.moves)


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize(("columns", "rows"), [(2, 8), (3, 4), (4, 4), (5, 2), (7, 2)])
@pytest.mark.parametrize(("height", "depth"), [(200, 100), (37, 33), (5, 64)])
def test_rows_times_few_columns(
    height: int, depth: int, columns: int, rows: int, dtype: DType
) -> None:
    """As many rows at a time as fill a vector with their sums; columns lie side by side then."""
    x, w = param(0, (height, depth), dtype), param(1, (depth, columns), dtype)
    bias = param(2, (columns,), dtype)
    shape = (height, depth, columns)
    y = reduce(Op.ADD, mul(broadcast(x, shape, (0, 1)), broadcast(w, shape, (1, 2))), (1,))
    y = elementwise(Op.MAX, add(y, broadcast(bias, y.shape, (1,))), full(0.0, y.shape, dtype))
    graph = Graph((x.type, w.type, bias.type), (y,))
    loops = lower_kernel(Kernel("k", graph), target := named_target("x86-64-v4", threads=2))
    loops = choose_moves(loops, target)
    lanes = 64 // dtype.itemsize
    short = columns > 4 and depth < 4 * lanes  # which tiles multiply
    rows = rows if 2 * columns < lanes and not short else 0  # others fill half a vector
    found = [move for move in loops.moves if move.startswith("rows")]
    assert found == ([f"rows i {rows}"] if 0 < rows <= height else [])
    assert bool(found and height >= 4 * rows) == ("local columns" in str(loops))
    check(graph, [normal(*n.shape).astype(dtype.numpy) for n in (x, w, bias)], atol=1e-5)


def test_what_surrounds_a_long_sum_does_not_make_it_collect_columns() -> None:
    """Three arrays along the results: read once each, while the matrix is read fifty times."""
    x, w, rest = (
        param(0, (50, 100), F32),
        param(1, (100,), F32),
        [param(k, (50,), F32) for k in (2, 3)],
    )
    total = reduce(Op.ADD, mul(x, broadcast(w, x.shape, (1,))), (1,))
    y = elementwise(Op.ADD, mul(rest[0], rest[1]), total)
    graph = Graph((x.type, w.type, *(r.type for r in rest)), (y,))
    loops = choose_moves(lower_fused(Kernel("k", graph)), named_target("x86-64-v4", threads=2))
    assert loops.moves == ("vector j 64", "rows i 16")
    check(graph, [normal(50, 100), normal(100), normal(50), normal(50)], rtol=1e-5)


def test_a_sum_of_three_does_not_decide_how_the_row_beside_it_runs() -> None:
    """What is stored of a row of 300 lies side by side; the sum that chooses does not."""
    x, few = param(0, (64, 300), F32), param(1, (64, 3), F32)
    rest = [param(k, (64,), F32) for k in range(2, 8)]
    total = reduce(Op.ADD, few, (1,))
    for each in rest:
        total = elementwise(Op.ADD, total, each)
    chosen = elementwise(Op.MAX, x, broadcast(total, x.shape, (0,)))
    graph = Graph((x.type, few.type, *(r.type for r in rest)), (chosen, total))
    loops = choose_moves(lower_fused(Kernel("k", graph)), named_target("x86-64-v4", threads=2))
    assert any(re.fullmatch("vector [jk] .*", move) for move in loops.moves)
    assert not any(move.startswith("vector i") for move in loops.moves)
    check(graph, [normal(*n.shape) for n in (x, few, *rest)], rtol=1e-5)


def test_sums_of_few_columns_do_not_wait_for_themselves() -> None:
    """A vector of columns is one sum after another: eight side by side, and what is left over."""
    x, w = param(0, (67,), F32), param(1, (67, 8), F32)
    graph = Graph((x.type, w.type), (reduce(Op.ADD, mul(broadcast(x, (67, 8), (0,)), w), (0,)),))
    loops = choose_moves(lower_fused(Kernel("k", graph)), named_target("x86-64-v3", threads=2))
    assert loops.moves == ("vector i 8", "sums j 8")
    text = str(loops)
    assert "for j_turn in 8 reduce:" in text
    assert "add0_7 += (x0[j_turn*8 + 7] * x1[i + j_turn*64 + 56])" in text
    assert "add0_2 += (x0[66] * x1[i + 528])" in text and "add0_3 += add0_7" in text
    check(graph, [normal(67), normal(67, 8)])


@pytest.mark.parametrize(("depth", "lanes"), [(1024, 8), (1000, 16)])
def test_lanes_that_share_a_set_of_the_cache_are_no_more_than_its_ways(
    depth: int, lanes: int
) -> None:
    """Rows of 1024 floats lie 4096 bytes apart: a line of each would evict those before it."""
    x, y = param(0, (64, depth), F32), param(1, (depth, 64), F32)
    total = reduce(Op.ADD, mul(x, permute(y, (1, 0))), (1,))
    kernel = Kernel("sums", Graph((x.type, y.type), (total,)))
    there = named_target("x86-64-v4", threads=2)
    assert f"vector i {lanes}" in choose_moves(lower_fused(kernel), there).moves


@pytest.mark.parametrize(("taps", "channels", "inside"), [(3, 32, 1), (10, 32, 0), (3, 8, 0)])
def test_taps_of_a_window_stay_inside_channels(taps: int, channels: int, inside: int) -> None:
    """They are written out, and channels run in lanes."""
    x, w = param(0, (30, 50, channels), F32), param(1, (taps, channels), F32)
    windows = window(permute(x, (0, 2, 1)), (1, 1, taps), (1, 1, 1), (1, 1, 1))
    count = windows.shape[2]
    apart = reshape(windows, (30, channels, count, taps))
    shape = (30, count, channels, taps)
    weights = broadcast(permute(w, (1, 0)), shape, (2, 3))
    product = mul(permute(apart, (0, 2, 1, 3)), weights)
    graph = Graph((x.type, w.type), (reduce(Op.ADD, product, (2, 3)),))
    assert any(m.startswith("interchange") for m in moves_of(graph)) != bool(inside)
    generator = np.random.default_rng(0)
    check(graph, [generator.normal(size=t.shape).astype("f4") for t in graph.params], atol=1e-4)
