"""Tiles of products: where they store sums, which rows they have, how they read computed ones."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.harness import run_kernel
from tests.codegen.test_contraction import compare, convolution, dot, numbers
from tinyhlo.codegen.bodies import below
from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.contraction.lower import lower_contraction
from tinyhlo.codegen.contraction.tiles import POINTERS, even_rows, tile_slots
from tinyhlo.codegen.loops import LoopProgram, Store, TileProduct
from tinyhlo.ir import build
from tinyhlo.ir.dtypes import F32, I8, I32, DType
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

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
