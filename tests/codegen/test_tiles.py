"""Tiles of products: where they store sums, which rows they have, how they read computed ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.harness import run_kernel
from tests.codegen.test_contraction import compare, convolution, dot, numbers, product
from tinyhlo.codegen.bodies import below
from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.contraction.cut import at_most
from tinyhlo.codegen.contraction.lower import lower_contraction
from tinyhlo.codegen.contraction.tiles import POINTERS, even_rows, tile_slots
from tinyhlo.codegen.loops import Loop, LoopProgram, Store, TileProduct
from tinyhlo.ir import build
from tinyhlo.ir.dtypes import BF16, F32, F64, I8, I32, DType
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.index import constant
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

AVX2 = named_target("x86-64-v3", threads=1)
AVX512 = named_target("x86-64-v4", threads=1)


def lowered(graph: Graph, target: Target = AVX512) -> LoopProgram:
    loops = lower_contraction(Kernel("kernel", graph), target, Moves())
    assert loops is not None
    return loops


def tile_of(loops: LoopProgram) -> TileProduct:
    (found,) = (s for s in below(loops.body) if isinstance(s, TileProduct))
    return found


def matrices(m: int, k: int, n: int, dtype: DType = F32) -> tuple[Node, Node]:
    return build.param(0, (m, k), dtype), build.param(1, (k, n), dtype)


@pytest.mark.parametrize(("m", "n"), [(64, 35), (50, 33), (64, 64), (30, 100), (7, 97)])
@pytest.mark.parametrize("processor", ["x86-64-v4", "x86-64-v3"])
def test_sums_that_are_results_are_stored_by_the_product(m: int, n: int, processor: str) -> None:
    """Where columns fill no whole vectors the last one overlaps its neighbour, in memory too."""
    x, w = matrices(m, 48, n)
    graph = Graph((x.type, w.type), (dot(x, w),))
    compare(graph)
    loops = lowered(graph, named_target(processor, threads=1))
    product = tile_of(loops)
    assert product.tile == loops.writes[0] and product.tile_row == n
    assert not any(isinstance(s, Store) and s.memory == product.tile for s in below(loops.body))


def test_sums_that_are_changed_are_stored_after_the_product() -> None:
    x, w = matrices(50, 48, 33)
    graph = Graph((x.type, w.type), (build.elementwise(Op.ABS, dot(x, w)),))
    compare(graph)
    assert tile_of(lowered(graph)).tile.name == "tile"


@pytest.mark.parametrize("channels", [3, 4, 5])
def test_rows_that_lie_side_by_side_are_stored_together(channels: int) -> None:
    """Few channels of an image are rows of tiles: its places lie across, but whole vectors of both
    are written."""
    x, w = build.param(0, (2, 32, 32, 16), F32), build.param(1, (3, 3, 16, channels), F32)
    graph = Graph((x.type, w.type), (convolution(x, w, 1, 1),))
    compare(graph)
    loops = lowered(graph)
    assert loops.moves[-1].startswith(f"tile {channels}x")
    bodies = [each.body for each in below(loops.body) if isinstance(each, Loop)]
    assert channels in (
        sum(isinstance(s, Store) and s.memory == loops.writes[0] for s in body) for body in bodies
    )


@pytest.mark.parametrize(
    ("most", "positions", "run", "rows"),
    [
        (29, 512, 16, 16),  # a row of the image
        (29, 3600, 30, 15),  # half of one
        (29, 1152, 12, 24),  # two
        (14, 784, 14, 14),
        (14, 98, 7, 14),
        (29, 997, 997, 29),  # a prime: any number overlaps
        (6, 7 * 11, 11, 6),
    ],
)
def test_rows_that_are_even_with_an_image(most: int, positions: int, run: int, rows: int) -> None:
    assert even_rows(most, positions, run) == rows


@pytest.mark.parametrize(("size", "rows"), [(16, 16), (12, 24), (30, 15)])
def test_tiles_of_windows_are_even_with_the_image(size: int, rows: int) -> None:
    """Then one pointer leads to all of their rows."""
    x, w = build.param(0, (2, size, size, 16), F32), build.param(1, (3, 3, 16, 8), F32)
    graph = Graph((x.type, w.type), (convolution(x, w, 1, 1),))
    compare(graph)
    loops = lowered(graph)
    assert loops.moves[-1] == f"tile {rows}x8"
    starts = tile_of(loops).left_rows
    assert len({start - start.offset for start in starts}) == 1


def test_pointers_that_find_no_register_are_loaded() -> None:
    near, far = (tile_slots(29, 1, 64, AVX512, pointers=count) for count in (1, 29))
    assert far > near + 64 * (29 - POINTERS) // 2
    assert tile_slots(8, 2, 64, AVX512, pointers=8) < 1.1 * tile_slots(8, 2, 64, AVX512)


@pytest.mark.parametrize(("m", "k", "n"), [(64, 64, 64), (33, 100, 70), (40, 128, 12)])
def test_left_operands_that_are_computed_are_staged_as_memory_has_them(
    m: int, k: int, n: int
) -> None:
    x, w = matrices(m, k, n)
    graph = Graph((x.type, w.type), (dot(build.elementwise(Op.ABS, x), w),))
    compare(graph)
    assert "left staged" in lowered(graph).moves


def test_large_ones_are_packed() -> None:
    """A copy of all of it would leave the cache before it is read."""
    x, w = matrices(1000, 1000, 64)
    graph = Graph((x.type, w.type), (dot(build.elementwise(Op.ABS, x), w),))
    assert "left packed" in lowered(graph).moves


@pytest.mark.parametrize(("m", "k", "n"), [(64, 64, 64), (33, 101, 70), (10, 1028, 40)])
def test_bytes_get_their_bias_as_they_are_staged(m: int, k: int, n: int) -> None:
    x, w = matrices(m, k, n, I8)
    wide = (build.cast(each, I32) for each in (x, w))
    graph = Graph((x.type, w.type), (dot(*wide),))
    loops = lowered(graph)
    assert "left staged" in loops.moves
    arrays = numbers((m, k), I8, 0), numbers((k, n), I8, 1)
    (got,), (want,) = run_kernel(graph, *arrays), run_graph(graph, arrays)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("dtype", [F32, F64])
def test_vectors_that_overlap_hold_the_last_columns(channels: int, dtype: DType) -> None:
    """Gradients of weights: 9 to 45 columns, of which the last vector begins at a place known."""
    x, dy = build.param(0, (8, channels, 8, 15), dtype), build.param(1, (8, 32, 8, 15), dtype)
    padded = build.pad(x, build.scalar(0.0, dtype), (0, 0, 1, 1), (0, 0, 1, 1))
    windows = build.window(padded, (1, 1, 8, 15), (1, 1, 1, 1), (1, 1, 1, 1))
    places = build.reshape(windows, (8, channels, 3, 3, 8, 15))
    shape = (32, channels, 3, 3, 8, 8, 15)
    terms = product(dy, (4, 0, 5, 6), places, (4, 1, 2, 3, 5, 6), shape)
    compare(Graph((x.type, dy.type), (build.reduce(Op.ADD, terms, (4, 5, 6)),)), tolerance=2e-5)


def test_a_place_beyond_the_last_is_the_last() -> None:
    assert at_most(constant(16), 14) == constant(14)
    assert at_most(constant(3), 14) == constant(3)


def by_channels(image: tuple[int, ...], weights: tuple[int, ...], stride: int) -> Graph:
    """NCHW by OIHW."""
    x, w = build.param(0, image, F32), build.param(1, weights, F32)
    nhwc, hwio = build.permute(x, (0, 2, 3, 1)), build.permute(w, (2, 3, 1, 0))
    total = convolution(nhwc, hwio, weights[-1] // 2, stride)
    return Graph((x.type, w.type), (build.permute(total, (0, 3, 1, 2)),))


@pytest.mark.parametrize(
    ("image", "weights", "stride", "rows"),
    [
        ((4, 16, 28, 28), (32, 16, 5, 5), 2, "14x32"),
        ((2, 16, 14, 14), (20, 16, 3, 3), 1, "7x24"),
        ((2, 16, 8, 8), (16, 16, 3, 3), 1, ""),
    ],
)
def test_short_rows_of_images_by_channels_are_rows_of_tiles(
    image: tuple[int, ...], weights: tuple[int, ...], stride: int, rows: str
) -> None:
    """As columns each place would be packed for itself; channels are, though they lie across."""
    graph = by_channels(image, weights, stride)
    compare(graph, tolerance=2e-5)
    loops = lowered(graph)
    assert "left staged" in loops.moves and loops.moves[-1].startswith(f"tile {rows}")


def test_so_are_those_that_are_multiplied_in_groups() -> None:
    """Whatever their length; channels are the innermost axis of the depth, of which groups are."""
    x, w = build.param(0, (2, 16, 20, 20), BF16), build.param(1, (24, 16, 3, 3), BF16)
    nhwc, hwio = build.permute(x, (0, 2, 3, 1)), build.permute(w, (2, 3, 1, 0))
    total = convolution(build.cast(nhwc, F32), build.cast(hwio, F32), 1, 1)
    graph = Graph((x.type, w.type), (build.permute(total, (0, 3, 1, 2)),))
    compare(graph, tolerance=1e-4)
    moves = lowered(graph, replace(AVX512, dots=("bf16 bf16",))).moves
    assert {"left staged", "2 bf16 at once"} <= {*moves}


def test_few_windows_of_many_channels_stay_columns() -> None:
    """All weights would be packed for them."""
    graph = by_channels((1, 16, 7, 7), (128, 16, 3, 3), 2)
    compare(graph, tolerance=2e-5)
    assert "left in place" in lowered(graph).moves


def test_windows_of_one_place_are_none() -> None:
    """Both axes of the image are one run of columns."""
    graph = by_channels((2, 16, 14, 14), (32, 16, 1, 1), 1)
    compare(graph, tolerance=2e-5)
    loops = lowered(graph, AVX2)
    assert "left in place" in loops.moves and loops.moves[-1].startswith("tile 4x24")


def test_rows_of_an_image_fill_the_registers_of_avx2() -> None:
    """14 of them: 13 would begin anywhere in a row of the image, and 7 are half as many sums."""
    loops = lowered(by_channels((4, 64, 14, 14), (64, 64, 3, 3), 1), AVX2)
    assert loops.moves[-1].startswith("tile 14x8")


def test_places_of_what_is_no_image_stay_columns() -> None:
    """Products over two axes, by short rows of another two."""
    x, y = build.param(0, (20, 6, 8), F32), build.param(1, (6, 8, 30, 9), F32)
    shape = (20, 30, 9, 6, 8)
    terms = product(x, (0, 3, 4), y, (3, 4, 1, 2), shape)
    graph = Graph((x.type, y.type), (build.reduce(Op.ADD, terms, (3, 4)),))
    compare(graph)
    assert tile_of(lowered(graph)).left == lowered(graph).reads[0]


def test_operands_that_were_rounded_are_staged_rounded() -> None:
    x, w = matrices(40, 64, 48)
    rounded = [build.cast(build.cast(each, BF16), F32) for each in (x, w)]
    graph = Graph((x.type, w.type), (dot(*rounded),))
    plain = replace(AVX512, dots=())
    assert "left staged" in lowered(graph, plain).moves
    compare(graph)
