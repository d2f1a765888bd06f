"""Depths that groups of neighbours do not divide: zeros fill the box that is staged."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.harness import assert_close, run_kernel
from tests.codegen.test_contraction import convolution
from tests.codegen.test_dots import extremes, matrices, moves
from tinyhlo.ir import build
from tinyhlo.ir.dtypes import BF16, F32, I8, I16, I32, U8, DType
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.interpreter import run_graph


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


def test_windows_along_the_depth_are_packed() -> None:
    """Beside a row of a window lies another's, which zeros would have to stand for."""
    x, w = build.param(0, (2, 8, 9, 11), BF16), build.param(1, (3, 3, 8, 16), BF16)
    image = build.permute(build.cast(x, F32), (0, 2, 3, 1))
    graph = Graph((x.type, w.type), (convolution(image, build.cast(w, F32), 1, 1),))
    assert "left packed" in moves(graph) or " 72 deep" in moves(graph)
