"""Contractions against the interpreter: every layout, odd sizes, prologues and epilogues."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.harness import TARGET, call, kernel_program, run_kernel
from tinyhlo.codegen.bodies import below
from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.contraction import planner as contraction_planner
from tinyhlo.codegen.contraction.layout import in_shape_of_sum, only_product
from tinyhlo.codegen.contraction.lower import lower_contraction
from tinyhlo.codegen.contraction.planner import split_depth
from tinyhlo.codegen.expressions import Apply, Expression, Load, Memory
from tinyhlo.codegen.llvm.kernel import render_kernel
from tinyhlo.codegen.loops import Loop, TileProduct
from tinyhlo.codegen.walks import loads_of
from tinyhlo.config import Config
from tinyhlo.ir import build
from tinyhlo.ir.dtypes import BF16, BY_NUMPY, F32, F64, I8, I32, DType
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.index import constant
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.compile import compile_program
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel, Launch
from tinyhlo.target import Target

Shape = tuple[int, ...]

AVX2 = named_target("x86-64-v3", threads=2)
AVX512 = named_target("x86-64-v4", threads=2)


def product(left: Node, left_axes: Shape, right: Node, right_axes: Shape, shape: Shape) -> Node:
    return build.elementwise(
        Op.MUL, build.broadcast(left, shape, left_axes), build.broadcast(right, shape, right_axes)
    )


def dot(left: Node, right: Node) -> Node:
    """(m, k) times (k, n)."""
    (m, k), (_, n) = left.shape, right.shape
    return build.reduce(Op.ADD, product(left, (0, 1), right, (1, 2), (m, k, n)), (1,))


def numbers(shape: Shape, dtype: DType, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    if dtype.is_float:
        return generator.standard_normal(shape).astype(dtype.numpy)
    return generator.integers(-1000, 1000, shape).astype(dtype.numpy)


def compare(graph: Graph, tiled: bool = True, tolerance: float = 5e-6) -> None:
    """The kernel gives what the interpreter gives; `tiled`: it is a packed product."""
    loops = lower_contraction(Kernel("kernel", graph), TARGET, Moves())
    assert (loops is not None) == tiled
    inputs = [numbers(t.shape, t.dtype, k) for k, t in enumerate(graph.params)]
    (got,) = run_kernel(graph, *inputs)
    (want,) = run_graph(graph, inputs)
    assert got.dtype == want.dtype and got.shape == want.shape
    if got.dtype.kind in "iu":
        assert (got == want).all()
        return
    got, want = got.astype(np.float64), want.astype(np.float64)
    assert np.abs(got - want).max() <= tolerance * max(1.0, np.abs(want).max())


SIZES = [(64, 64, 64), (50, 40, 70), (6, 300, 16), (7, 2000, 33), (100, 5000, 40), (130, 31, 9),
         (100, 40, 3), (5, 900, 5)]  # fmt: skip


@pytest.mark.parametrize(("m", "k", "n"), SIZES)
@pytest.mark.parametrize("turned", ["", "left", "right", "both"])
def test_matrix_product(m: int, k: int, n: int, turned: str) -> None:
    left = build.param(0, (k, m) if turned in ("left", "both") else (m, k), F32)
    right = build.param(1, (n, k) if turned in ("right", "both") else (k, n), F32)
    a: Node = build.permute(left, (1, 0)) if turned in ("left", "both") else left
    b: Node = build.permute(right, (1, 0)) if turned in ("right", "both") else right
    compare(Graph((left.type, right.type), (dot(a, b),)), is_tiled(n, turned))


def is_tiled(columns: int, turned: str, dtype: DType = F32) -> bool:
    """Rows in memory times columns that fill less than half a vector run along the rows."""
    return turned in ("left", "both") or dtype is not F32 or 8 * columns >= TARGET.vector_bytes


@pytest.mark.parametrize("dtype", [F64, I32, BY_NUMPY[np.dtype("uint8")]], ids=str)
def test_other_types(dtype: DType) -> None:
    left, right = build.param(0, (37, 65), dtype), build.param(1, (65, 45), dtype)
    compare(Graph((left.type, right.type), (dot(left, right),)), tolerance=1e-14)


NARROW = [("int8", "int32"), ("uint8", "int32"), ("int16", "int32"), ("uint8", "uint32"),
          ("int8", "int8"), ("uint16", "int16")]  # fmt: skip


@pytest.mark.parametrize(("operand", "result"), NARROW)
@pytest.mark.parametrize(("m", "k", "n"), [(37, 64, 45), (37, 65, 45), (50, 40, 3)])
@pytest.mark.parametrize("turned", [False, True])
def test_narrow_integers(operand: str, result: str, m: int, k: int, n: int, turned: bool) -> None:
    """Pairs of products, at their extremes too; of an odd depth the last is alone."""
    narrow, wide = BY_NUMPY[np.dtype(operand)], BY_NUMPY[np.dtype(result)]
    left = build.param(0, (m, k), narrow)
    right = build.param(1, (n, k) if turned else (k, n), narrow)
    b = build.permute(right, (1, 0)) if turned else right
    graph = Graph((left.type, right.type), (dot(build.cast(left, wide), build.cast(b, wide)),))
    compare(graph)
    extremes = np.iinfo(narrow.numpy).min, np.iinfo(narrow.numpy).max
    for x in extremes:
        for y in extremes:
            inputs = np.full(left.shape, x, narrow.numpy), np.full(right.shape, y, narrow.numpy)
            assert (run_kernel(graph, *inputs)[0] == run_graph(graph, inputs)[0]).all()


@pytest.mark.parametrize(("ci", "stride"), [(8, 1), (8, 2), (3, 1)])
def test_convolution_of_narrow_integers(ci: int, stride: int) -> None:
    narrow = BY_NUMPY[np.dtype("int8")]
    x, w = build.param(0, (2, 9, 11, ci), narrow), build.param(1, (3, 3, ci, 16), narrow)
    total = convolution(build.cast(x, I32), build.cast(w, I32), 1, stride)
    compare(Graph((x.type, w.type), (total,)))


def test_half_precision_is_packed_as_single() -> None:
    left, right = build.param(0, (37, 65), BF16), build.param(1, (65, 45), BF16)
    result = build.cast(dot(build.cast(left, F32), build.cast(right, F32)), BF16)
    compare(Graph((left.type, right.type), (result,)), tolerance=1e-2)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_epilogue(order: Shape) -> None:
    left, right = build.param(0, (33, 20), F32), build.param(1, (20, 47), F32)
    shape = tuple((33, 47)[axis] for axis in order)
    bias = build.param(2, (shape[1],), F32)
    total = build.permute(dot(left, right), order)
    shifted = build.elementwise(Op.ADD, total, build.broadcast(bias, shape, (1,)))
    result = build.elementwise(Op.MAX, shifted, build.full(0.0, shape, F32))
    compare(Graph((left.type, right.type, bias.type), (result,)))


def test_prologue() -> None:
    left, right = build.param(0, (33, 20), F32), build.param(1, (20, 47), F32)
    result = dot(build.elementwise(Op.TANH, left), build.elementwise(Op.MUL, right, right))
    compare(Graph((left.type, right.type), (result,)))


@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (1, 2, 0, 3)])
def test_batch(axes: Shape) -> None:
    """The batch axis first, or between the others in memory."""
    b, m, k, n = 5, 18, 24, 20
    left, right = build.param(0, (b, m, k), F32), build.param(1, (b, k, n), F32)
    shape = (b, m, k, n)
    total = build.reduce(Op.ADD, product(left, (0, 1, 2), right, (0, 2, 3), shape), (2,))
    order = [axis for axis in axes if axis != 3][:3]
    compare(Graph((left.type, right.type), (build.permute(total, order),)))


@pytest.mark.parametrize("b", [1, 3])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_a_factor_that_repeats_along_the_depth(b: int, turned: bool, dtype: DType) -> None:
    """The gradient of weights whose results were averaged over rows: one gradient for 20 rows."""
    rows, m, n = 20, 18, 40
    x, gradient = build.param(0, (b, rows, m), dtype), build.param(1, (b, n), dtype)
    factors = [build.cast(factor, F32) for factor in (x, gradient)]
    places: list[Shape] = [(0, 1, 2), (0, 3)]
    shape = (b, rows, m, n)
    if turned:
        places, shape = [(0, 1, 3), (0, 2)], (b, rows, n, m)
    total = build.reduce(
        Op.ADD, product(factors[0], places[0], factors[1], places[1], shape), (0, 1)
    )
    compare(Graph((x.type, gradient.type), (total,)))


def test_a_sum_of_rows_that_are_scaled_is_no_product() -> None:
    x, scale = build.param(0, (20, 64), F32), build.param(1, (20,), F32)
    scaled = product(x, (0, 1), scale, (0,), (20, 64))
    compare(Graph((x.type, scale.type), (build.reduce(Op.ADD, scaled, (1,)),)), tiled=False)


def convolution(x: Node, w: Node, pad: int, stride: int, apart: int = 1) -> Node:
    """NHWC times HWIO, by windows."""
    padded = build.pad(x, build.scalar(0.0, x.dtype), (0, pad, pad, 0), (0, pad, pad, 0))
    kh, kw, ci, co = w.shape
    windows = build.window(padded, (1, kh, kw, 1), (1, stride, stride, 1), (1, apart, apart, 1))
    n, h, wide, _ = windows.shape[:4]
    left = build.reshape(windows, (n, h, wide, ci, kh, kw))
    shape = (n, h, wide, co, ci, kh, kw)
    return build.reduce(
        Op.ADD, product(left, (0, 1, 2, 4, 5, 6), w, (5, 6, 4, 3), shape), (4, 5, 6)
    )


@pytest.mark.parametrize(("pad", "stride"), [(0, 1), (1, 1), (1, 2)])
@pytest.mark.parametrize(("ci", "co"), [(8, 16), (3, 20), (16, 5)])
def test_convolution(pad: int, stride: int, ci: int, co: int) -> None:
    x, w = build.param(0, (2, 9, 11, ci), F32), build.param(1, (3, 3, ci, co), F32)
    compare(Graph((x.type, w.type), (convolution(x, w, pad, stride),)))


def test_windows_that_lie_across_are_turned_when_staged() -> None:
    """NHWC to NCHW: columns are places, whose neighbours lie a channel apart in the image."""
    x, w = build.param(0, (2, 9, 11, 16), F32), build.param(1, (3, 3, 16, 8), F32)
    total = build.permute(convolution(x, w, 1, 1), (0, 3, 1, 2))
    compare(Graph((x.type, w.type), (total,)))


def test_padded_convolution_of_one_channel() -> None:
    """The staged box has an axis of one round around a guarded load."""
    x, w = build.param(0, (4, 12, 12, 1), F32), build.param(1, (3, 3, 1, 16), F32)
    compare(Graph((x.type, w.type), (convolution(x, w, 1, 1),)))


def test_convolution_weight_gradient() -> None:
    x, y = build.param(0, (4, 10, 12, 16), F32), build.param(1, (4, 10, 12, 8), F32)
    padded = build.pad(x, build.scalar(0.0, F32), (0, 1, 1, 0), (0, 1, 1, 0))
    windows = build.window(padded, (1, 10, 12, 1), (1, 1, 1, 1), (1, 1, 1, 1))
    left = build.reshape(windows, (4, 3, 3, 16, 10, 12))
    shape = (4, 3, 3, 16, 8, 10, 12)
    total = build.reduce(
        Op.ADD, product(left, (0, 1, 2, 3, 5, 6), y, (0, 5, 6, 4), shape), (0, 5, 6)
    )
    compare(Graph((x.type, y.type), (total,)), tolerance=1e-5)


@pytest.mark.parametrize(("m", "k", "n"), [(1, 100, 100), (100, 100, 1), (2, 2, 2), (100, 3, 50)])
def test_small_ones_take_the_general_way(m: int, k: int, n: int) -> None:
    left, right = build.param(0, (m, k), F32), build.param(1, (k, n), F32)
    compare(Graph((left.type, right.type), (dot(left, right),)), tiled=False, tolerance=1e-5)


@pytest.mark.parametrize("m", [1, 2, 3, 4, 8, 17])
@pytest.mark.parametrize(("k", "n"), [(1024, 520), (1031, 515)])
def test_few_rows_stream_the_matrix(m: int, k: int, n: int) -> None:
    """A matrix larger than the cache is read in place, sixteen rows side by side, for up to four
    rows eight; for one row four, each of its own quarter."""
    left, right = build.param(0, (m, k), F32), build.param(1, (k, n), F32)
    graph = Graph((left.type, right.type), (dot(left, right),))
    compare(graph)
    loops = lower_contraction(Kernel("kernel", graph), TARGET, Moves())
    assert loops is not None and "right in place" in loops.moves
    if k == 1024:
        deep = "4 deep apart" if m == 1 else "8 deep," if m <= 4 else "16 deep,"
        assert deep in " ".join(loops.moves)


@pytest.mark.parametrize(
    ("m", "k", "n", "moves"),
    [
        (20, 1000, 520, "10 deep, 100 steps; left in place; right in place"),
        (24, 1003, 1000, "right packed"),  # no steps of eight
        (32, 1040, 520, "16 deep, 65 steps; left in place; right in place"),
        (32, 1024, 520, "16 deep, 64 steps; left packed; right in place"),  # its rows share sets
        (32, 1040, 2048, "8 deep, 130 steps; left in place; right in place"),  # so do the matrix's
        (49, 700, 900, "14 deep, 50 steps; left in place; right in place"),
        (96, 1040, 515, "16 deep, 65 steps; left in place; right in place"),
        (97, 1024, 520, "right packed"),
        (32, 1031, 520, "right packed"),
    ],
)
def test_some_rows_stream_a_matrix_that_l2_does_not_hold(
    m: int, k: int, n: int, moves: str
) -> None:
    x, w = build.param(0, (m, k), F32), build.param(1, (k, n), F32)
    program = kernel_program(Graph((x.type, w.type), (dot(x, w),)))
    (kernel,) = (launch.kernel for launch in program.body if isinstance(launch, Launch))
    arrays = numbers((m, k), F32, 0), numbers((k, n), F32, 1)
    results = []
    for threads in (1, 2, 7):
        target = replace(TARGET, threads=threads, l2_bytes=1 << 18)
        loops = lower_contraction(kernel, target, Moves())
        assert loops is not None
        for move in moves.split("; "):
            assert move in "; ".join(loops.moves)
        results.append(
            call(compile_program(program, target, Config(verify=1)), program, *arrays)[0]
        )
    assert all(found.tobytes() == results[0].tobytes() for found in results)
    np.testing.assert_allclose(results[0], arrays[0] @ arrays[1], rtol=0, atol=k * 4e-6)


def test_rows_that_stream_share_columns_alone() -> None:
    """Each block of rows would read all of the matrix again; sums of a chunk stay in L2."""
    target = named_target("x86-64-v4", threads=2)
    for m, k, n, chunks in ((49, 512, 2048, 2), (96, 768, 3072, 4), (64, 4096, 11008, 6)):
        x, w = build.param(0, (m, k), F32), build.param(1, (k, n), F32)
        kernel = Kernel("kernel", Graph((x.type, w.type), (dot(x, w),)))
        loops = lower_contraction(kernel, target, Moves())
        assert loops is not None and f"parallel 1x1x{chunks} chunks" in loops.moves
        assert 4 * m * n <= chunks * target.l2_bytes // 2


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_number_of_threads_does_not_change_bits(threads: int) -> None:
    """Chunks are cut by the number of threads; sums are not."""
    x, w = build.param(0, (3, 30, 30, 24), F32), build.param(1, (3, 3, 24, 40), F32)
    graph = Graph((x.type, w.type), (convolution(x, w, 1, 1),))
    arrays = numbers((3, 30, 30, 24), F32, 0), numbers((3, 3, 24, 40), F32, 1)
    program = kernel_program(graph)
    one, many = (
        call(
            compile_program(program, replace(TARGET, threads=n), Config(verify=1)), program, *arrays
        )
        for n in (1, threads)
    )
    assert one[0].tobytes() == many[0].tobytes()


def test_windows_are_read_in_place_or_staged() -> None:
    """Padded ones from a box that is padded once, others where they lie."""
    x, w = build.param(0, (2, 30, 30, 16), F32), build.param(1, (3, 3, 16, 32), F32)
    forward = lower_contraction(
        Kernel("kernel", Graph((x.type, w.type), (convolution(x, w, 1, 1),))), TARGET, Moves()
    )
    assert forward is not None and "left staged" in forward.moves
    inside = lower_contraction(
        Kernel("kernel", Graph((x.type, w.type), (convolution(x, w, 0, 1),))), TARGET, Moves()
    )
    assert inside is not None and "left in place" in inside.moves


def run_as(kernel_graph: Graph, target: Target, *arrays: np.ndarray) -> tuple[str, ...]:
    """What was planned for a kernel, which gives what the interpreter gives."""
    program = kernel_program(kernel_graph)
    compiled = compile_program(program, target, Config(verify=1))
    (found,), (expected,) = call(compiled, program, *arrays), run_graph(kernel_graph, arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    return compiled.loops[0].moves


def test_windows_that_leave_the_cache_are_packed() -> None:
    """Widely dilated: a box of what a single row reads would be most of the image."""
    x, w = build.param(0, (1, 32, 32, 16), F32), build.param(1, (3, 3, 16, 16), F32)
    graph = Graph((x.type, w.type), (convolution(x, w, 16, 1, apart=16),))
    arrays = numbers(x.shape, F32, 0), numbers(w.shape, F32, 1)
    assert "left packed" in run_as(graph, replace(AVX2, l2_bytes=1 << 15), *arrays)


def test_blocks_hold_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a row of sums is that waits for the next step of the depth."""
    monkeypatch.setattr(contraction_planner, "MAX_DEPTH", 64)
    monkeypatch.setattr(contraction_planner, "SUMS_BYTES", 1 << 12)
    x, w = build.param(0, (40, 2052), F32), build.param(1, (16, 40, 5), F32)
    windows = build.window(x, (1, 5), (1, 1), (1, 1))
    left = build.reshape(windows, (40, 2048, 5))
    total = product(w, (0, 2, 3), left, (2, 1, 3), (16, 2048, 40, 5))
    graph = Graph((x.type, w.type), (build.reduce(Op.ADD, total, (2, 3)),))
    moves = run_as(graph, AVX2, numbers(x.shape, F32, 0), numbers(w.shape, F32, 1))
    assert "right in place" in moves and "block 8 rows, 50 deep, 4 steps" in moves


def test_so_do_blocks_of_columns_for_many_threads() -> None:
    """Columns in rows of one vector each, of which a tile has two."""
    x, w = build.param(0, (8, 2048), F32), build.param(1, (48, 2048, 16), F32)
    total = build.reduce(Op.ADD, product(x, (1, 2), w, (0, 2, 3), (48, 8, 2048, 16)), (2,))
    target = replace(named_target("x86-64-v4", threads=64), fmas=2)
    kernel = Kernel("kernel", Graph((x.type, w.type), (total,)))
    loops = lower_contraction(kernel, target, Moves())
    assert loops is not None and "tile 8x32" in loops.moves
    assert ", -" not in str(loops)  # the least of a place and the last one


def few_columns(depth: int, columns: int) -> Graph:
    """130 rows in memory times a matrix of few columns."""
    x, w = build.param(0, (130, depth), F32), build.param(1, (depth, columns), F32)
    return Graph((x.type, w.type), (dot(x, w),))


@pytest.mark.parametrize("depth", [1024, 512, 500])
def test_rows_that_share_sets_of_the_cache_stay_in_it(depth: int) -> None:
    """Those of 4096 bytes share one, those of 2048 two: a tile has as many rows as these hold."""
    graph = few_columns(depth, 8)
    moves = run_as(graph, AVX2, *(numbers(t.shape, F32, k) for k, t in enumerate(graph.params)))
    assert ("tile 7x8" if depth == 1024 else "tile 13x8") in moves


@pytest.mark.parametrize(("depth", "tile"), [(1024, "tile 8x16"), (1000, "tile 16x16")])
def test_so_do_those_of_which_vectors_are_written(depth: int, tile: str) -> None:
    graph = few_columns(depth, 10)
    compare(graph, tolerance=1e-4)
    loops = lower_contraction(Kernel("kernel", graph), AVX512, Moves())
    assert loops is not None and tile in loops.moves


@pytest.mark.parametrize("dots", [(), ("bf16 bf16",)])
def test_few_columns_of_windows_that_are_multiplied_in_groups_are_no_rows(
    dots: tuple[str, ...],
) -> None:
    x, w = build.param(0, (1, 18, 66, 8), BF16), build.param(1, (3, 3, 8, 4), BF16)
    graph = Graph((x.type, w.type), (convolution(*(build.cast(v, F32) for v in (x, w)), 1, 1),))
    loops = lower_contraction(Kernel("kernel", graph), replace(AVX512, dots=dots), Moves())
    assert loops is not None and ("tile 4x" in loops.moves[-1]) == (not dots)


@pytest.mark.parametrize(
    ("target", "columns", "tiled"),
    [(AVX2, 4, False), (AVX2, 5, True), (AVX512, 7, False), (AVX512, 8, True)],
)
def test_columns_that_leave_half_of_a_vector_idle(
    target: Target, columns: int, tiled: bool
) -> None:
    """They are summed in lanes along the rows; half of a vector of AVX-512 takes half as long."""
    graph = few_columns(256, columns)
    assert (lower_contraction(Kernel("kernel", graph), target, Moves()) is not None) == tiled


def test_depths_of_several_axes_run_along_memory() -> None:
    """Where few columns are summed in lanes along rows."""
    x, w = build.param(0, (99, 8, 32), F32), build.param(1, (8, 32, 3), F32)
    total = build.reduce(Op.ADD, product(x, (0, 2, 3), w, (2, 3, 1), (99, 3, 8, 32)), (2, 3))
    graph = Graph((x.type, w.type), (total,))
    assert lower_contraction(Kernel("kernel", graph), AVX2, Moves()) is None
    across = build.permute(build.param(0, (8, 99, 32), F32), (1, 0, 2))
    total = build.reduce(Op.ADD, product(across, (0, 2, 3), w, (2, 3, 1), (99, 3, 8, 32)), (2, 3))
    compare(Graph((across.inputs[0].type, w.type), (total,)), tolerance=1e-4)


def test_images_of_one_channel_are_staged_in_lanes() -> None:
    x, w = build.param(0, (2, 28, 28, 1), F32), build.param(1, (3, 3, 1, 16), F32)
    graph = Graph((x.type, w.type), (convolution(x, w, 1, 1),))
    compare(graph)
    loops = lower_contraction(Kernel("kernel", graph), AVX2, Moves())
    assert loops is not None and "left staged" in loops.moves
    assert "in 30 vector 8" in str(loops)


@pytest.mark.parametrize("stride", [1, 2])
def test_images_of_a_gradient_of_weights_are_turned_when_staged(stride: int) -> None:
    """A tile walks along places: each of a channel's rows is a run of memory then. The windows'
    three rows are not cut in two blocks of two."""
    size = 28 // stride
    x, dy = build.param(0, (4, 28, 28, 64), F32), build.param(1, (4, size, size, 64), F32)
    zero, sides = build.scalar(0.0, F32), (0, 1, 1, 0)
    windows = build.window(
        build.pad(x, zero, sides, sides), (1, 3, 3, 1), (1, stride, stride, 1), (1, 1, 1, 1)
    )
    left = build.reshape(windows, (4, size, size, 64, 3, 3))
    shape = (4, size, size, 64, 3, 3, 64)
    total = build.reduce(
        Op.ADD, product(left, (0, 1, 2, 3, 4, 5), dy, (0, 1, 2, 6), shape), (0, 1, 2)
    )
    graph = Graph((x.type, dy.type), (build.permute(total, (1, 2, 0, 3)),))
    loops = lower_contraction(
        Kernel("kernel", graph), named_target("x86-64-v4", threads=2), Moves()
    )
    assert loops is not None and "left staged" in loops.moves
    (tile,) = (s for s in below(loops.body) if isinstance(s, TileProduct))
    assert tile.left_step.coefficient(tile.depth[-1]) == 1
    compare(graph, tolerance=2e-5)


@pytest.mark.parametrize(("m", "k", "n"), [*SIZES, (250, 300, 70), (64, 1030, 48)])
@pytest.mark.parametrize("turned", ["", "left", "right"])
@pytest.mark.parametrize("dtype", [F32, I8])
def test_operands_that_are_packed_first(
    m: int, k: int, n: int, turned: str, dtype: DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contraction_planner, "SHARED_WORK", 0)
    monkeypatch.setattr(contraction_planner, "MAX_DEPTH", 100)
    monkeypatch.setattr(contraction_planner, "SHARED_RIGHT_BYTES", 1 << 13)
    left = build.param(0, (k, m) if turned == "left" else (m, k), dtype)
    right = build.param(1, (n, k) if turned == "right" else (k, n), dtype)
    bias = build.param(2, (n,), dtype)
    a: Node = build.permute(left, (1, 0)) if turned == "left" else left
    b: Node = build.permute(right, (1, 0)) if turned == "right" else right
    result = build.elementwise(Op.ADD, dot(a, b), build.broadcast(bias, (m, n), (1,)))
    compare(Graph((left.type, right.type, bias.type), (result,)), is_tiled(n, turned, dtype))


@pytest.mark.parametrize(
    ("columns", "op", "written"),
    [
        (7, Op.SIN, "for lane in 7: for r in 8 vector 8:"),
        (7, Op.ABS, "for r in 8: for lane in 7 vector 4:"),
        (12, Op.SIN, "for r in 4: for v in 2: for lane in 8 vector 8:"),
    ],
)
def test_columns_that_fill_no_vector(columns: int, op: Op, written: str) -> None:
    """They are packed and written in shorter ones; a few dear ones by vectors along the rows."""
    x, w = build.param(0, (2, 16, 16, 16), F32), build.param(1, (3, 3, 16, columns), F32)
    graph = Graph((x.type, w.type), (build.elementwise(op, convolution(x, w, 1, 1)),))
    compare(graph, tolerance=1e-4)
    loops = lower_contraction(Kernel("kernel", graph), AVX2, Moves())
    assert loops is not None and written in " ".join(str(loops).split())


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("co", [2, 3, 6])
@pytest.mark.parametrize("ci", [3, 16, 37])
def test_few_channels_of_windows_are_rows(ci: int, co: int, stride: int) -> None:
    """Places are columns: the image is turned as it is staged, by whole vectors of channels."""
    x, w = build.param(0, (2, 19, 45, ci), F32), build.param(1, (3, 3, ci, co), F32)
    graph = Graph((x.type, w.type), (build.elementwise(Op.SIN, convolution(x, w, 1, stride)),))
    tiled = co > 2 or stride == 1
    compare(graph, tiled=tiled, tolerance=1e-4)
    if tiled:
        loops = lower_contraction(Kernel("kernel", graph), AVX2, Moves())
        assert loops is not None and (f"tile {co}x" in loops.moves[-1]) == (stride == 1)
        assert ("for square in 6" in str(loops)) == (ci >= 8 and stride == 1)


@pytest.mark.parametrize("co", [1, 2, 3])
def test_few_channels_of_images_that_lie_by_channels(co: int) -> None:
    x, w = build.param(0, (2, 8, 19, 45), F32), build.param(1, (3, 3, 8, co), F32)
    image = build.permute(x, (0, 2, 3, 1))
    total = build.permute(convolution(image, w, 0, 1), (0, 3, 1, 2))
    compare(Graph((x.type, w.type), (total,)), tiled=co > 1)


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("channels", [2, 3, 4])
def test_vectors_run_along_the_longer_side_of_a_short_innermost_axis(
    channels: int, across: bool
) -> None:
    """An image (row, channel, column) resized along its columns, channels last in the result; the
    weights of one column lie `across` memory or side by side."""
    image = build.param(0, (20, channels, 50), F32)
    weights = build.param(1, (50, 40) if across else (40, 50), F32)
    turned = build.permute(weights, (1, 0)) if across else weights
    shape = (20, channels, 40, 50)
    total = build.reduce(Op.ADD, product(image, (0, 1, 3), turned, (2, 3), shape), (3,))
    graph = Graph((image.type, weights.type), (build.permute(total, (0, 2, 1)),))
    compare(graph)
    assert number_of_columns(graph) == 40


@pytest.mark.parametrize(("dtype", "depth"), [(F32, 16), (F64, 50)])
def test_four_columns_stay_columns_where_that_costs_less(dtype: DType, depth: int) -> None:
    """They fill a vector, which is stored whole."""
    image = build.param(0, (20, 4, depth), dtype)
    weights = build.param(1, (40, depth), dtype)
    total = build.reduce(
        Op.ADD, product(image, (0, 1, 3), weights, (2, 3), (20, 4, 40, depth)), (3,)
    )
    graph = Graph((image.type, weights.type), (build.permute(total, (0, 2, 1)),))
    compare(graph)
    assert number_of_columns(graph) == 20 * 4


def number_of_columns(graph: Graph) -> int:
    found = only_product(Kernel("kernel", graph), TARGET)
    assert found is not None
    c = found[1].contraction
    return c.extent(c.n)


@pytest.mark.parametrize(("n", "lanes"), [(9, 16), (8, 8), (5, 8), (4, 4)])
def test_few_columns_are_multiplied_by_shorter_vectors(n: int, lanes: int) -> None:
    """Where rows do not lie in memory as such, or vectors would run along them."""
    left, right = build.param(0, (40, 900), F32), build.param(1, (40, n), F32)
    graph = Graph((left.type, right.type), (dot(build.permute(left, (1, 0)), right),))
    compare(graph)
    target = named_target("x86-64-v4", threads=2)
    loops = lower_contraction(Kernel("kernel", graph), target, Moves())
    assert loops is not None
    (product,) = (s for s in below(loops.body) if isinstance(s, TileProduct))
    assert product.lanes == lanes


@pytest.mark.parametrize(
    ("n", "lanes", "vectors"),
    [(16, 16, 1), (17, 8, 3), (24, 8, 3), (25, 16, 2), (33, 8, 5), (40, 8, 5), (72, 8, 3)],
)
@pytest.mark.parametrize("turned", [False, True])
def test_odd_numbers_of_half_vectors(n: int, lanes: int, vectors: int, turned: bool) -> None:
    """Where two take as long as a whole one, columns of which they fill more have no others."""
    left, right = build.param(0, (90, 300), F32), build.param(1, (300, n), F32)
    if turned:
        right = build.param(1, (n, 300), F32)
    other = build.permute(right, (1, 0)) if turned else right
    graph = Graph((left.type, right.type), (dot(left, other),))
    compare(graph)
    target = named_target("x86-64-v4", threads=1)
    for each, width in ((target, lanes), (replace(target, fmas=2), 16), (AVX2, 8)):
        loops = lower_contraction(Kernel("kernel", graph), each, Moves())
        assert loops is not None
        (product,) = (s for s in below(loops.body) if isinstance(s, TileProduct))
        assert product.lanes == width
        assert each is not target or len(product.right_vectors) == vectors


@pytest.mark.parametrize("n", [2, 3, 5])
def test_few_columns_of_a_wide_matrix_are_packed(n: int) -> None:
    """Vectors along the depth would collect what lies rows apart, for every row anew."""
    left, wide = build.param(0, (60, 256), F32), build.param(1, (256, 100), F32)
    columns = build.strided(wide, (0, 7), (256, n), (1, 1))
    compare(Graph((left.type, wide.type), (dot(left, columns),)), tiled=True)
    narrow = build.param(1, (256, n), F32)
    graph = Graph((left.type, narrow.type), (dot(left, narrow),))
    compare(graph, tiled=is_tiled(n, "") and n > 2)


def gram(rows: int, columns: int) -> Graph:
    x = build.param(0, (rows, columns), F32)
    return Graph((x.type,), (dot(build.permute(x, (1, 0)), x),))


@pytest.mark.parametrize(("rows", "columns"), [(20000, 4), (16000, 100), (8000, 250)])
def test_few_sums_of_a_long_depth_are_shared_by_depth(rows: int, columns: int) -> None:
    """Each part multiplies its own rows, whatever the number of threads."""
    graph = gram(rows, columns)
    compare(graph, tolerance=2e-5)
    loops = lower_contraction(Kernel("kernel", graph), TARGET, Moves())
    assert loops is not None and "parts of the depth" in loops.moves[0]
    program, x = kernel_program(graph), numbers((rows, columns), F32, 3)
    one, many = (
        call(compile_program(program, replace(TARGET, threads=n), Config(verify=1)), program, x)
        for n in (1, 3)
    )
    assert one[0].tobytes() == many[0].tobytes()


@pytest.mark.parametrize(("rows", "columns"), [(3000, 100), (8000, 500)])
def test_short_depths_and_many_sums_are_not(rows: int, columns: int) -> None:
    loops = lower_contraction(Kernel("kernel", gram(rows, columns)), TARGET, Moves())
    assert loops is not None and "chunks" in loops.moves[0]


def test_nan_stays_in_its_row() -> None:
    left, right = build.param(0, (20, 20), F32), build.param(1, (20, 20), F32)
    a, b = numbers((20, 20), F32, 0), numbers((20, 20), F32, 1)
    a[7, 3] = np.nan
    (got,) = run_kernel(Graph((left.type, right.type), (dot(left, right),)), a, b)
    assert np.isnan(got).all(axis=1).tolist() == [k == 7 for k in range(20)]


def test_split_depth() -> None:
    """(axis cut in parts, parts, positions a step)."""
    assert split_depth([512]) == (0, 1, 512)
    assert split_depth([4096]) == (0, 4, 1024)
    assert split_depth([8, 56, 56]) == (1, 4, 784)
    assert split_depth([4099]) == (0, 1, 4099)


def test_printed_form() -> None:
    left, right = build.param(0, (1024, 1024), F32), build.param(1, (1024, 1024), F32)
    graph = Graph((left.type, right.type), (dot(left, right),))
    text = str(lower_contraction(Kernel("kernel", graph), AVX2, Moves()))
    assert "parallel 1x16x43 chunks" in text and "right packed once" in text
    assert "left packed once" in text and "1024 deep" in text  # its rows share cache sets
    assert "left[k1*4 + tile*4112 + 3]" in text  # rows of a tile lie side by side, tiles apart
    assert "y0[" in text and "= 4x24 of" in text and "tile:" not in text  # as sums are the result
    packing_right, packing_left, product = [x for x in text.splitlines() if " parallel:" in x]
    assert packing_right.split()[1:4] == ["k1", "in", "1024"]  # whole rows
    assert packing_left.split()[1:4] == ["tile", "in", "256"]
    assert product.split()[3] == "688"  # chunks, for two threads: a slow one takes fewer


def test_pieces_of_columns_do_not_overlap_where_that_is_possible() -> None:
    left, right = build.param(0, (1024, 256), F32), build.param(1, (256, 1024), F32)
    graph = Graph((left.type, right.type), (dot(left, right),))
    program = lower_contraction(
        Kernel("kernel", graph), named_target("x86-64-v4", threads=2), Moves()
    )
    assert program is not None and "parallel 1x2x8 chunks" in program.moves  # of 128 columns


def test_what_lies_across_is_packed_for_many_columns() -> None:
    for columns, use in ((16, "left in place"), (512, "left packed")):
        left, right = build.param(0, (128, 96), F32), build.param(1, (128, columns), F32)
        product = dot(build.permute(left, (1, 0)), right)
        graph = Graph((left.type, right.type), (product,))
        loops = lower_contraction(Kernel("kernel", graph), TARGET, Moves())
        assert loops is not None and use in loops.moves
        compare(graph)


@pytest.mark.parametrize(("columns", "depth"), [(32, (4, 100)), (14, (1, 100)), (5, (3, 40))])
def test_vectors_along_any_axis_of_the_depth_fill_a_panel(
    columns: int, depth: tuple[int, int]
) -> None:
    """einsum bdf,dfam->bm over d and f, f the longer and the one along memory."""
    d, f = depth
    left, right = build.param(0, (8, f, d, 7), F32), build.param(1, (columns, d, 8, f), F32)
    turned = build.permute(left, (0, 3, 1, 2)), build.permute(right, (2, 0, 3, 1))
    shape = (8, 7, columns, f, d)
    factors = (
        build.broadcast(turned[0], shape, (0, 1, 3, 4)),
        build.broadcast(turned[1], shape, (0, 2, 3, 4)),
    )
    product = build.reduce(Op.ADD, build.elementwise(Op.MUL, *factors), (3, 4))
    graph = Graph((left.type, right.type), (product,))
    loops = lower_contraction(
        Kernel("kernel", graph), named_target("x86-64-v3", threads=2), Moves()
    )
    assert loops is not None and "right packed" in loops.moves
    assert re.search(rf"for k\d in {f} vector 8:\n( +t0.*\n)? +right", str(loops))
    compare(graph)


@pytest.mark.parametrize(("size", "stride", "width"), [(16, 1, 8), (7, 1, 4), (16, 2, 8)])
def test_windows_that_lie_along_the_depth_are_turned_as_they_are_packed(
    size: int, stride: int, width: int
) -> None:
    """The gradient of a convolution's weights, NCHW: columns are channels and offsets of windows,
    of which three are neighbours in memory, and the depth runs along rows of images."""
    x = build.param(0, (4, 8, size, size), F32)
    places, behind = (size - 1) // stride + 1, 2 - stride
    windows = build.window(
        build.pad(x, build.scalar(0.0, F32), (0, 0, 1, 1), (0, 0, behind, behind)),
        (1, 1, places, places), (1, 1, 1, 1), (1, 1, stride, stride),
    )  # fmt: skip
    right = build.reshape(windows, (4, 8, 3, 3, places, places))
    dy = build.param(1, (4, 24, places, places), F32)
    shape = (24, 8, 3, 3, 4, places, places)
    factors = product(dy, (4, 0, 5, 6), right, (4, 1, 2, 3, 5, 6), shape)
    graph = Graph((x.type, dy.type), (build.reduce(Op.ADD, factors, (4, 5, 6)),))
    loops = lower_contraction(Kernel("kernel", graph), AVX2, Moves())
    assert loops is not None and "right packed" in loops.moves
    assert re.search(rf"for k6 in {places} vector {width}:", str(loops))
    compare(graph, tolerance=1e-5)


@pytest.mark.parametrize("computed", [False, True])
def test_joined_axes_that_lie_in_order_are_one_run(computed: bool) -> None:
    """x.reshape(24, -1) @ y.reshape(40, -1).T of arguments with two axes more is the product of
    what lies there."""
    x, y = build.param(0, (24, 60, 8), F32), build.param(1, (40, 60, 8), F32)
    right = build.elementwise(Op.MUL, y, y) if computed else y
    flat = build.reshape(right, (40, 480))
    total = dot(build.reshape(x, (24, 480)), build.permute(flat, (1, 0)))
    graph = Graph((x.type, y.type), (total,))
    loops = lower_contraction(Kernel("kernel", graph), AVX2, Moves())
    assert loops is not None and "left in place" in loops.moves
    assert "for k1 in 480 vector 8:" in str(loops)
    compare(graph, tolerance=1e-5)


@pytest.mark.parametrize(("processor", "together"), [("x86-64-v3", 24), ("x86-64-v4", 16)])
def test_what_is_turned_as_it_is_packed_fills_lines(processor: str, together: int) -> None:
    """Not all 48 columns of a panel where 16 do: LLVM takes 9 ms for the shuffles of those.
    Threads share the pieces of columns, however few panels those have."""
    left, right = build.param(0, (512, 768), F32), build.param(1, (768, 768), F32)
    graph = Graph((left.type, right.type), (dot(left, build.permute(right, (1, 0))),))
    loops = lower_contraction(Kernel("kernel", graph), named_target(processor, threads=2), Moves())
    text = str(loops)
    assert text.count(" right[k") == together
    assert re.search("for piece in [1-9][0-9] parallel:", text)


def test_costly_epilogues_are_loops() -> None:
    left, right = build.param(0, (64, 64), F32), build.param(1, (64, 64), F32)
    value = dot(left, right)
    for _ in range(10):
        value = build.elementwise(Op.SIN, value)
    text = str(
        lower_contraction(Kernel("kernel", Graph((left.type, right.type), (value,))), AVX2, Moves())
    )
    assert "for r in 6:" in text and "unroll" not in text


def test_loads_of_shared_parts_are_found_once() -> None:
    """A value that doubles at each level has one load, found in a time that does not."""
    memory = Memory("x", F32, 8)
    value: Expression = Load(memory, constant(0))
    for _ in range(60):
        value = Apply(Op.ADD, (value, value), F32)
    assert loads_of(value) == [Load(memory, constant(0))]


@pytest.mark.parametrize("processor", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(("m", "k", "n"), [(512, 512, 512), (256, 768, 768), (784, 1152, 512)])
def test_pieces_of_columns_overlap_little(processor: str, m: int, k: int, n: int) -> None:
    """What a large product computes twice is under a tenth."""
    left, right = build.param(0, (m, k), F32), build.param(1, (k, n), F32)
    graph = Graph((left.type, right.type), (dot(left, right),))
    loops = lower_contraction(Kernel("kernel", graph), named_target(processor, threads=1), Moves())
    assert loops is not None and "right packed once" in loops.moves
    inside = [s for s in below(loops.body) if isinstance(s, Loop)]
    (chunk,) = (loop for loop in inside if loop.var.name == "chunk")
    (*_, panel) = (loop for loop in inside if loop.var.name == "panel")
    rows, columns = (int(loops.moves[k].split("x")[1].split()[0]) for k in (0, -1))
    pieces, panels = chunk.var.extent // rows, panel.var.extent
    assert n <= pieces * panels * columns < 1.1 * n


@pytest.mark.parametrize(
    "m, k, n, tile",
    [
        (49, 512, 512, "7x32"),  # 7 of 7 rows, where 4 of 13 would be 52
        (200, 200, 200, "20x16"),  # 5 a thread of 13 vectors: 29 rows, four times, would be 116
        (512, 512, 512, "4x64"),
        (8, 512, 512, "4x64"),
    ],
)
def test_tiles_compute_little_beyond_the_edges(m: int, k: int, n: int, tile: str) -> None:
    x, w = build.param(0, (m, k), F32), build.param(1, (k, n), F32)
    graph = Graph((x.type, w.type), (dot(x, w),))
    target = named_target("x86-64-v4", threads=2)
    loops = lower_contraction(Kernel("kernel", graph), target, Moves())
    assert loops is not None and loops.moves[-1] == f"tile {tile}"


@pytest.mark.parametrize(
    "m, k, n, right, tile, fetched",
    [
        (512, 512, 512, "packed", "6x64", 4 * 64),
        (1024, 1024, 1024, "packed once", "6x64", 4 * 64),
        (500, 500, 500, "packed", "6x64", 4 * 64),  # rows are no whole lines
        (256, 256, 256, "in place", "14x32", 8 * 256),
        (8, 512, 512, "in place", "8x32", 8 * 512),
        (64, 64, 64, "in place", "4x64", 0),  # L1 holds all of it
        (256, 64, 512, "packed", "4x64", 0),  # L1 holds a panel for all rows
        (8, 1024, 1024, "in place", "4x64", 2 * 64),  # read once, whole rows side by side
    ],
)
def test_two_wide_multiply_adds_a_cycle_outrun_the_caches(
    m: int, k: int, n: int, right: str, tile: str, fetched: int
) -> None:
    """Then tiles are larger, and right operands in L2 read where they lie, but asked for early."""
    x, w = build.param(0, (m, k), F32), build.param(1, (k, n), F32)
    target = named_target("cooperlake", threads=2)
    kernel = Kernel("kernel", Graph((x.type, w.type), (dot(x, w),)))
    loops = lower_contraction(kernel, target, Moves())
    assert loops is not None and loops.moves[-1] == f"tile {tile}"
    assert f"right {right}" in loops.moves
    assert f"left in place{' once' * right.endswith('once')}" in loops.moves
    (found,) = (s for s in below(loops.body) if isinstance(s, TileProduct))
    assert found.fetched == fetched


@pytest.mark.parametrize(("m", "k", "n"), [(40, 256, 64), (64, 511, 96), (256, 300, 500)])
@pytest.mark.parametrize("threads", [1, 2])
def test_products_whose_right_operand_is_fetched_early(
    m: int, k: int, n: int, threads: int
) -> None:
    """What lies beyond its end is asked for too, and not read; results are those without."""
    x, w = build.param(0, (m, k), F32), build.param(1, (k, n), F32)
    program = kernel_program(Graph((x.type, w.type), (dot(x, w),)))
    arrays = numbers((m, k), F32, 0), numbers((k, n), F32, 1)
    fast = replace(TARGET, threads=threads, fmas=16, l1_bytes=1 << 12)  # no panel stays there
    (kernel,) = (launch.kernel for launch in program.body if isinstance(launch, Launch))
    loops = lower_contraction(kernel, fast, Moves())
    assert loops is not None
    assert all(s.fetched for s in below(loops.body) if isinstance(s, TileProduct))
    early, plain = (
        call(compile_program(program, target, Config(verify=1)), program, *arrays)
        for target in (fast, replace(TARGET, threads=threads))
    )
    assert early[0].tobytes() == plain[0].tobytes()


@pytest.mark.parametrize(("k", "points"), [(64, 2), (63, 1)])
def test_a_jump_is_shared_by_two_points_of_the_depth(k: int, points: int) -> None:
    x, w = build.param(0, (64, k), F32), build.param(1, (k, 64), F32)
    kernel = Kernel("kernel", Graph((x.type, w.type), (dot(x, w),)))
    target = named_target("x86-64-v4", threads=1)
    loops = lower_contraction(kernel, target, Moves())
    assert loops is not None and loops.moves[-1] == "tile 4x64"
    text = str(render_kernel(loops, target, "kernel", False, {}))
    assert text.count("call <16 x float> @llvm.fma.v16f32(") == 16 * points
    assert re.search(rf"icmp ult i64 %\w+, {k // points}$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("m", "k", "rows", "points"),
    [
        (30, 8, 15, 8),  # of 15 sums what eight points read finds room beside them
        (392, 8, 28, 2),  # of 28 what two do: a loop of four turns
        (392, 9, 28, 1),
    ],
)
def test_a_short_depth_is_written_out_where_registers_hold_it(
    m: int, k: int, rows: int, points: int
) -> None:
    """Given more, LLVM keeps sums in memory: an image of one channel took a third longer, and twice
    as long to compile."""
    x, w = build.param(0, (m, k), F32), build.param(1, (k, 16), F32)
    kernel = Kernel("kernel", Graph((x.type, w.type), (dot(x, w),)))
    target = named_target("x86-64-v4", threads=1)
    loops = lower_contraction(kernel, target, Moves())
    assert loops is not None and loops.moves[-1] == f"tile {rows}x16"
    text = str(render_kernel(loops, target, "kernel", False, {}))
    assert text.count("call <16 x float> @llvm.fma.v16f32(") == rows * points


def test_results_that_are_permuted_and_then_split_are_products() -> None:
    """Channels last, then heads: the loops run over the axes before they were split."""
    w, x = build.param(0, (32, 48), F32), build.param(1, (4, 48, 64), F32)
    shape = (32, 4, 64, 48)
    total = build.reduce(Op.ADD, product(w, (0, 3), x, (1, 3, 2), shape), (3,))
    heads = build.reshape(build.permute(total, (1, 2, 0)), (4, 64, 4, 8))
    result = build.elementwise(Op.MUL, heads, build.full(0.5, heads.shape, F32))
    graph = Graph((w.type, x.type), (result,))
    kernel = in_shape_of_sum(Kernel("kernel", graph))
    loops = lower_contraction(kernel, TARGET, Moves())
    assert loops is not None
    inputs = [numbers(t.shape, t.dtype, k) for k, t in enumerate(graph.params)]
    (got,), (want,) = run_kernel(graph, *inputs), run_graph(graph, inputs)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
