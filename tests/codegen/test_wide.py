"""Products whose items read and write four numbers at once: what is loaded so, the tiles, and what
a compiler makes of them. Right numbers: `grid_programs.py`, on emulated GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from tests.codegen.grid_programs import code_of, dot, of
from tests.codegen.test_grid_programs import METAL, NV
from tinyhlo.codegen.grid.products.tiles import WIDE, Extents, WideTile, choose_tile, soonest
from tinyhlo.ir.index import Index, Var, constant, index, substitute
from tinyhlo.target import Target

H200 = replace(NV, threads=132, l1_bytes=228 << 10)
LANES = 32


def kernels(function: Callable[..., Any], *shapes: Any, target: Target = H200) -> str:
    source = code_of((function, shapes), target).source
    return source[source.index("\nKERNEL(") :]


def at(place: Index, item: Var, number: int) -> int:
    return substitute(place, {item: constant(number)}).offset


@pytest.mark.parametrize("tile", WIDE, ids=str)
def test_each_sum_of_a_tile_is_one_items(tile: WideTile) -> None:
    item = Var("item", tile.items)
    found = Counter(
        (at(y, item, number), at(x, item, number))
        for number in range(tile.items)
        for y, x in tile.places(index(item))
    )
    assert set(found) == {(y, x) for y in range(tile.rows) for x in range(tile.columns)}
    assert set(found.values()) == {tile.slices}


@pytest.mark.parametrize("tile", WIDE, ids=str)
def test_tiles_fit(tile: WideTile) -> None:
    """Items have as many turns in the loads of an operand, or some have the only one; a step is
    long."""
    assert tile.fits(NV) and tile.depth % (8 * tile.slices) == 0
    for lines in (tile.rows, tile.columns):
        fours = lines * tile.depth // 4
        assert fours % tile.items == 0 or fours < tile.items
    assert tile.sums * tile.depth // tile.slices >= 256
    assert tile.shape[0] % 4 == tile.shape[1] % 8 == 0
    assert tile.sums % (4 * tile.slices) == 0


@pytest.mark.parametrize("tile", WIDE, ids=str)
def test_half_a_warp_reads_128_bytes_at_once(tile: WideTile) -> None:
    """Lanes beside each other, or two apart, read the same 16 bytes; no bank is read twice."""
    item = Var("item", tile.items)
    squares = tile.square(tile.slice_of(index(item))[1])
    for side in squares:
        own = [at(side, item, lane) for lane in range(LANES)]
        for half in (own[:16], own[16:]):
            assert any(all(half[k] == half[k ^ bit] for k in range(16)) for bit in (1, 2))
            assert max(half) - min(half) < 8


def test_all_is_read_and_written_by_fours() -> None:
    text = kernels(dot, of(4096, 4096), of(4096, 4096))
    assert "x0[" not in text and "x1[" not in text and "y0[" not in text
    assert text.count("BARRIER") == 1  # a step
    # 4 of shared memory a depth, of 64 multiply-adds; 2 of memory a step, one of them ahead
    assert text.count("load_4(") == 4 + 2 * 2
    assert text.count("store_4(y0") == 16
    assert "KERNEL(256, 2)" in text


def test_what_is_no_run_of_four_is_read_by_itself() -> None:
    text = kernels(dot, of(256, 251), of(251, 256))
    assert "load_4(left" not in text and "load_4(right" in text and "store_4(y0" in text
    text = kernels(dot, of(256, 252), of(252, 255))
    assert "load_4(left" in text and "load_4(right" not in text and "store_4(y0" not in text
    text = kernels(lambda x, y: jnp.tanh(x) @ y, of(256, 256), of(256, 256))
    assert "load_4(right" in text and "x1[" not in text


def test_windows_are_read_by_fours_where_channels_lie_side_by_side() -> None:
    def last(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    text = kernels(last, of(8, 28, 28, 64), of(3, 3, 64, 64))
    assert "x0[" not in text and "x1[" not in text
    first = kernels(
        lambda x, w: lax.conv(x, w, (1, 1), "SAME"), of(8, 64, 28, 28), of(64, 64, 3, 3)
    )
    assert "load_4(left" in first and "x1[" not in first  # the weights alone


def test_devices_and_types_without() -> None:
    shapes = of(512, 512), of(512, 512)
    assert "_4(" not in kernels(dot, *shapes, target=METAL)
    assert "_4(" not in kernels(dot, *shapes, target=replace(NV, features="fp64 mma"))
    integers = of(512, 512, dtype="i4"), of(512, 512, dtype="i4")
    assert "_4(" not in kernels(dot, *integers)
    assert "_4(" not in kernels(dot, of(7, 512), of(512, 512))


def test_tiles_fill_a_device() -> None:
    """Its multiprocessors have work of much the same length, in one dispatch where that will do."""

    def chosen(*extents: int) -> tuple[WideTile, int]:
        tile = soonest(WIDE, Extents(*extents), 1, 2048, H200)
        assert tile is not None
        parts = tile.parts(Extents(*extents), H200)
        return tile, parts * tile.count(Extents(*extents))

    assert chosen(1, 4096, 4096, 4096)[0].rows == 128
    for size in (256, 512, 1024):
        tile, groups = chosen(1, size, size, size)
        assert tile.parts(Extents(1, size, size, size), H200) == 1
        assert groups > 0.9 * 132 and groups / 132 / -(-groups // 132) > 0.9
    tile, groups = chosen(1, 64, 64, 1 << 16)
    assert groups > 0.9 * 16 and choose_tile(Extents(1, 64, 64, 64), 4, 1, METAL) is not None


def test_the_depth_of_a_step_is_shared_by_slices_that_add_up_in_order() -> None:
    text = kernels(dot, of(1024, 1024), of(1024, 1024))
    assert "4 slices" in str(soonest(WIDE, Extents(1, 1024, 1024, 1024), 1, 2048, H200))
    assert text.count("BARRIER") == 1 + 2 * 4
    adds = [
        line.split("+ ")[1] for line in text.splitlines() if " = sum0" in line and "+ a" in line
    ]
    assert len(adds) == 3


@pytest.mark.parametrize("tile", WIDE, ids=str)
def test_nvrtc_keeps_sums_in_registers(tile: WideTile, monkeypatch: pytest.MonkeyPatch) -> None:
    core = pytest.importorskip("cuda.core")
    monkeypatch.setattr("tinyhlo.codegen.grid.products.wide.WIDE", (tile,))
    source = code_of((dot, (of(1024, 1024), of(1024, 1024))), H200).source
    options = core.ProgramOptions(arch="sm_90", std="c++17", ptxas_options=["-v"])
    log = Log()
    assert core.Program(source, "c++", options).compile("cubin", logs=log).code
    assert "bytes spill stores" not in log.text.replace(" 0 bytes spill stores", "")


class Log:
    text = ""

    def write(self, text: str) -> None:
        self.text += text
