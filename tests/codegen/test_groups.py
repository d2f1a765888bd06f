"""Depths that groups of neighbours do not divide: zeros fill the box that is staged."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.harness import assert_close, run_kernel
from tests.codegen.test_contraction import convolution, product
from tests.codegen.test_dots import WIDE, extremes, matrices, moves
from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.contraction.lower import lower_contraction
from tinyhlo.ir import build
from tinyhlo.ir.dtypes import BF16, F32, I8, I16, I32, U8, DType
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op
from tinyhlo.schedule.program import Kernel


def convolved(channels: int, dtype: DType, sums: DType, skipped: int = 0) -> Graph:
    """3x3, of some of the channels of an image."""
    x = build.param(0, (2, 9, 11, channels + 2 * skipped), dtype)
    w = build.param(1, (3, 3, channels, 16), dtype)
    start, stop = (0, 0, 0, skipped), (*x.shape[:3], skipped + channels)
    image = build.cast(build.slice_(x, start, stop), sums)
    return Graph((x.type, w.type), (convolution(image, build.cast(w, sums), 1, 1),))


@pytest.mark.parametrize("channels", [3, 5, 15])
@pytest.mark.parametrize("dtype", [I8, U8, I16])
def test_odd_channels_of_integers_are_staged(channels: int, dtype: DType) -> None:
    graph = convolved(channels, dtype, I32)
    group = 4 if "4 ui8 by i8 at once" in moves(graph) else 2
    deep = 9 * (channels + -channels % group)
    assert f" {deep} deep" in moves(graph) and "left staged" in moves(graph)
    inputs = [extremes(t.shape, dtype, k) for k, t in enumerate(graph.params)]
    (got,), (want,) = run_kernel(graph, *inputs), run_graph(graph, inputs)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("channels", [3, 5, 15])
@pytest.mark.parametrize("skipped", [0, 1, 2])
def test_what_lies_beside_a_slice_is_not_multiplied(channels: int, skipped: int) -> None:
    """No zero of a group is made of a number that is none."""
    graph = convolved(channels, BF16, F32, skipped)
    assert f" {9 * (channels + 1)} deep" in moves(graph) and "left staged" in moves(graph)
    generator = np.random.default_rng(0)
    inputs = [generator.standard_normal(t.shape).astype(BF16.numpy) for t in graph.params]
    inputs[0][..., :skipped] = np.nan
    inputs[0][..., skipped + channels :] = np.inf
    (got,), (want,) = run_kernel(graph, *inputs), run_graph(graph, inputs)
    assert np.isfinite(got).all()
    assert_close(got, want, 1e-5)


@pytest.mark.parametrize(("depth", "filled"), [(5, 8), (43, 44), (333, 336), (1031, 516)])
def test_products_of_odd_depth(depth: int, filled: int) -> None:
    """Of a long depth every step is whole groups."""
    graph = matrices(40, depth, 50, U8, I8, I32)
    assert f" {filled} deep" in moves(graph) and "left staged" in moves(graph)
    inputs = [extremes(t.shape, t.dtype, k) for k, t in enumerate(graph.params)]
    (got,), (want,) = run_kernel(graph, *inputs), run_graph(graph, inputs)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("n", "deep"), [(40, 36), (2000, 28)])
def test_many_columns_are_not_multiplied_by_zeros(n: int, deep: int) -> None:
    x, w = build.param(0, (16, 9, 3), I8), build.param(1, (9, 3, n), I8)
    left, right = build.cast(x, I32), build.cast(w, I32)
    factors = product(left, (0, 2, 3), right, (2, 3, 1), (16, n, 9, 3))
    graph = Graph((x.type, w.type), (build.reduce(Op.ADD, factors, (2, 3)),))
    assert f" {deep} deep" in moves(graph)


@pytest.mark.parametrize(("dtype", "staged"), [(I8, True), (BF16, False)])
def test_groups_of_channels(dtype: DType, staged: bool) -> None:
    """A group's neighbours in the image are the next group's: integers are multiplied by zero."""
    x, w = build.param(0, (2, 9, 11, 27), dtype), build.param(1, (3, 3, 3, 9, 16), dtype)
    sums = I32 if dtype is I8 else F32
    windows = build.window(build.cast(x, sums), (1, 3, 3, 1), (1, 1, 1, 1), (1, 1, 1, 1))
    left = build.reshape(windows, (2, 7, 9, 3, 9, 3, 3))
    shape = (2, 7, 9, 3, 16, 9, 3, 3)
    factors = product(left, (0, 1, 2, 3, 5, 6, 7), build.cast(w, sums), (3, 6, 7, 5, 4), shape)
    graph = Graph((x.type, w.type), (build.reduce(Op.ADD, factors, (5, 6, 7)),))
    assert ("left staged" in moves(graph)) == staged
    if staged:
        inputs = [extremes(t.shape, dtype, k) for k, t in enumerate(graph.params)]
        (got,), (want,) = run_kernel(graph, *inputs), run_graph(graph, inputs)
        np.testing.assert_array_equal(got, want)
    else:
        assert_close_to_float(graph)


def assert_close_to_float(graph: Graph) -> None:
    generator = np.random.default_rng(0)
    inputs = [generator.standard_normal(t.shape).astype(BF16.numpy) for t in graph.params]
    (got,), (want,) = run_kernel(graph, *inputs), run_graph(graph, inputs)
    assert_close(got, want, 1e-5)


@pytest.mark.parametrize(("padding", "stride"), [(0, 1), (2, 1), (2, 2)])
def test_places_that_are_divided_out_are_packed_by_vectors_along_the_rows(
    padding: int, stride: int
) -> None:
    """A window of one channel, whose columns are no pairs: no row of a tile is written out."""
    x, w = build.param(0, (2, 21, 24, 1), BF16), build.param(1, (5, 5, 1, 32), BF16)
    total = convolution(build.cast(x, F32), build.cast(w, F32), padding, stride)
    graph = Graph((x.type, w.type), (total,))
    loops = lower_contraction(Kernel("kernel", graph), WIDE, Moves())
    assert loops is not None and "left packed" in loops.moves
    text = str(loops)
    assert " vector 8:" in text and text.count(" left[group") == 2  # a pair
    assert_close_to_float(graph)


@pytest.mark.parametrize("dtype", [I8, BF16])
def test_images_by_channels_in_groups(dtype: DType) -> None:
    """3x3, NCHW, two groups of eight channels: each has them innermost in its box."""
    sums = I32 if dtype is I8 else F32
    x, w = build.param(0, (2, 16, 12, 20), dtype), build.param(1, (2, 16, 8, 3, 3), dtype)
    windows = build.window(build.cast(x, sums), (1, 1, 3, 3), (1, 1, 1, 1), (1, 1, 1, 1))
    left, shape = build.reshape(windows, (2, 2, 8, 10, 18, 3, 3)), (2, 2, 16, 10, 18, 8, 3, 3)
    factors = product(left, (0, 1, 5, 3, 4, 6, 7), build.cast(w, sums), (1, 2, 5, 6, 7), shape)
    graph = Graph((x.type, w.type), (build.reduce(Op.ADD, factors, (5, 6, 7)),))
    assert "left staged" in moves(graph)
    if dtype is BF16:
        assert_close_to_float(graph)
        return
    inputs = [extremes(t.shape, dtype, k) for k, t in enumerate(graph.params)]
    (got,), (want,) = run_kernel(graph, *inputs), run_graph(graph, inputs)
    np.testing.assert_array_equal(got, want)
