"""Products by instructions for matrices: what a warp holds, and what they are used for. Right
numbers: `grid_programs.py`, on emulated GPUs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import jax.numpy as jnp
import pytest

from tests.codegen.grid_programs import code_of, dot, of, wide
from tests.codegen.test_grid_programs import AMD, NV
from tinyhlo.codegen.c.fragments import fragment_function
from tinyhlo.codegen.expressions import Memory
from tinyhlo.codegen.grid.products.ahead import Shelf
from tinyhlo.codegen.grid.products.fragments import FRAGMENTS, WGMMA, Fragment
from tinyhlo.codegen.grid.products.tiles import Extents
from tinyhlo.codegen.grid.products.warpgroups import Lines
from tinyhlo.codegen.grid.products.warps import COPIED, tiles_of
from tinyhlo.codegen.grid.statements import Fetch
from tinyhlo.ir.dtypes import U32
from tinyhlo.ir.index import ZERO, Index, Var, constant, index, substitute
from tinyhlo.target import Target

H200 = replace(NV, threads=132, asked_bytes=227 << 10, l1_bytes=228 << 10)
HOPPER = replace(H200, features=f"{NV.features} wgmma")
MFMA = replace(AMD, features="fp64 mfma", threads=128)
BF16, F16, F32 = jnp.bfloat16, "f2", "f4"


def at(place: Index, lane: Var, number: int) -> int:
    return substitute(place, {lane: constant(number)}).offset


@pytest.mark.parametrize("fragment", FRAGMENTS.values(), ids=FRAGMENTS)
def test_a_warp_holds_all_of_a_fragment(fragment: Fragment) -> None:
    """Each sum once, each word as often as any other one."""
    lane = Var("lane", fragment.lanes)
    shapes = (
        (fragment.left, fragment.rows, fragment.depth // 2),
        (fragment.right, fragment.columns, fragment.depth // 2),
        (fragment.sums, fragment.rows, fragment.columns),
    )
    for places, rows, columns in shapes:
        found = Counter(
            (at(row, lane, number), at(column, lane, number))
            for number in range(fragment.lanes)
            for row, column in places(index(lane))
        )
        assert set(found) == {(r, c) for r in range(rows) for c in range(columns)}
        assert len(set(found.values())) == 1
        assert places is not fragment.sums or set(found.values()) == {1}


def kernels(target: Target, dtype: object, *shape: int, function: object = wide) -> str:
    rows, depth, columns = shape
    program = (function, (of(rows, depth, dtype=dtype), of(depth, columns, dtype=dtype)))
    source = code_of(program, target).source  # type: ignore[arg-type]
    return source[source.index("\nKERNEL(") :]


def test_16_bit_floats_alone() -> None:
    """f32 is f32; integers have other instructions."""
    assert "mma_bf16(sum0" in kernels(NV, BF16, 64, 64, 64)
    assert "mma_f16(sum0" in kernels(NV, F16, 64, 64, 64)
    assert "mma_" not in kernels(NV, F32, 64, 64, 64, function=dot)
    assert "mma_" not in kernels(NV, "i1", 64, 64, 64)
    assert "mma_" not in kernels(replace(NV, features="fp64"), BF16, 64, 64, 64)
    assert "mma_" not in kernels(NV, BF16, 8, 512, 64)  # a row of fragments would be half empty


def test_operands_that_are_computed_in_more_than_16_bits() -> None:
    def scaled(x: jnp.ndarray, y: jnp.ndarray) -> jnp.ndarray:
        return (x.astype("f4") * 3) @ y.astype("f4")

    assert "mma_" not in kernels(NV, BF16, 64, 64, 64, function=scaled)


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_what_another_kernel_computed_is_stored_in_16_bits(dtype: object) -> None:
    """A product of a product, or of dear work, takes it as it is; nothing is kept wider."""

    def layers(x: jnp.ndarray, v: jnp.ndarray, w: jnp.ndarray) -> jnp.ndarray:
        return jnp.tanh(x @ v) @ w

    square = of(128, 128, dtype=dtype)
    text = code_of((layers, (square, square, square)), NV).source
    assert text.count("AWAIT_COPIES") == 2 * 2 + 1  # both products', and the definition


def test_runs_are_loaded_by_one_instruction() -> None:
    """Of the left operand along the depth, of the right one along the columns, two rows."""
    text = kernels(MFMA, BF16, 4096, 4096, 4096)
    assert text.count("load_4(left") == text.count("load_4(right") == 2 * 2
    assert "x0[" not in text and "x1[" not in text
    odd = kernels(MFMA, BF16, 64, 64, 61)
    assert "load_4(left" in odd and "load_4(right" not in odd and "x1[" in odd


def test_a_stage_or_two() -> None:
    """Two where several groups find room on a multiprocessor, with one barrier a step."""
    large = replace(MFMA, l1_bytes=228 << 10)
    assert kernels(large, BF16, 4096, 4096, 4096).count("BARRIER") == 1
    assert kernels(MFMA, BF16, 4096, 4096, 4096).count("BARRIER") == 2


def step_of(text: str) -> str:
    """What a kernel does in each step."""
    return text[text.index("ROLLED for") :].partition("\n  }\n")[0]


def test_runs_are_copied_steps_ahead() -> None:
    """Past registers, and both operands as they lie in memory; one barrier a step."""
    text = kernels(NV, BF16, 4096, 4096, 4096)
    step = step_of(text)
    assert "load_4" not in text and "x0[" not in text and "x1[" not in text
    assert "copy_4(left" in step and "copy_4(right" in step and "left0_0" not in text
    assert step.count("END_COPIES") == step.count("AWAIT_COPIES") == step.count("BARRIER") == 1
    assert step.count("load_matrices(a") == step.count("load_matrices_turned(b") > 0
    behind = int(step.partition("AWAIT_COPIES(")[2].partition(")")[0])
    assert text.count("END_COPIES") == behind + 1 + 1  # of the first steps, and in the loop


def test_what_is_no_run_passes_through_registers() -> None:
    """An operand alone, when the other one is copied, into the same places."""
    step = step_of(kernels(NV, BF16, 64, 512, 61))
    assert "copy_4(left" in step and "copy_4(right" not in step and "x1[" in step
    assert "load_matrices_turned(b" in step and "END_COPIES" in step
    few = step_of(kernels(NV, BF16, 64, 64, 61))
    assert "load_matrices(a" in few and "copy_4(" not in few  # no step is so far ahead

    def positive(x: jnp.ndarray, y: jnp.ndarray) -> jnp.ndarray:
        return wide(jnp.maximum(x, 0), jnp.maximum(y, 0))

    text = kernels(NV, BF16, 64, 64, 64, function=positive)
    assert "COPIES" not in text and step_of(text).count("BARRIER") == 1


def test_stages_beyond_what_kernels_have_by_themselves() -> None:
    """The launch asks for them; without that, tiles are smaller or steps shorter."""
    program = (wide, (of(4096, 4096, dtype=BF16), of(4096, 4096, dtype=BF16)))
    code = code_of(program, H200)
    ((dispatch,),) = (kernel.dispatches for kernel in code.kernels.values())
    assert NV.group_bytes < dispatch.asked_bytes <= H200.asked_bytes
    assert f"ASKED({dispatch.asked_bytes});" in code.source and "SHARED u32" not in code.source
    ((dispatch,),) = (kernel.dispatches for kernel in code_of(program, NV).kernels.values())
    assert dispatch.asked_bytes == 0


@pytest.mark.parametrize(
    ("extents", "tile", "parts"),
    [
        (Extents(1, 4096, 4096, 4096), (256, 128), 1),
        (Extents(1, 1024, 1024, 1024), (128, 64), 1),  # a group for each multiprocessor
        (Extents(1, 256, 256, 256), (32, 32), 1),
        (Extents(1, 128, 128, 65536), (32, 64), 16),
    ],
)
def test_tiles(extents: Extents, tile: tuple[int, int], parts: int) -> None:
    """Large ones load less, small ones are more; a depth is shared where that alone helps."""
    tiles = tiles_of(FRAGMENTS["mma"], COPIED)
    assert all(tile.stages(H200) >= 3 for tile in tiles)
    found = min(tiles, key=lambda each: each.time(extents, H200))
    assert (found.rows, found.columns) == tile
    assert found.parts(extents, H200) == parts


def test_steps_are_as_deep_as_it_pays() -> None:
    """64, unless much of that would be zeros."""
    for depth, steps in ((1024, 16), (96, 3), (40, 2)):
        assert f"step_{steps} < {steps};" in kernels(H200, BF16, 1024, depth, 1024)


def test_neighbours_are_stored_together() -> None:
    assert kernels(NV, BF16, 64, 64, 64).count("store_2(y0[") > 0
    assert "store_2" not in kernels(NV, BF16, 64, 64, 61)  # no even places
    assert "store_2" not in kernels(replace(NV, device="CL"), F32, 64, 64, 64, function=dot)


@pytest.mark.parametrize("runs", [4, 8, 16])
def test_neighbours_are_in_different_banks(runs: int) -> None:
    """Eight runs of a line, and those below each other, cover all banks of shared memory, for any
    eight that items store or load at once; each run has a place of its own."""
    lines = 32
    memory = Memory("left", U32, lines * runs * 4, local=True)
    shelf = Shelf("a", memory, lines, runs, True, ZERO, 1, FRAGMENTS["mma"])
    place = [
        [shelf.place(constant(y), constant(x)).offset for x in range(runs)] for y in range(lines)
    ]
    flat = [word for line in place for word in line]
    assert sorted(flat) == list(range(0, lines * runs * 4, 4))
    stored = (flat[k : k + 8] for k in range(0, len(flat), 8))
    loaded = ([place[y + k][x] for k in range(8)] for y in range(0, lines, 8) for x in range(runs))
    for eight in (*stored, *loaded):
        assert len({word // 4 % 8 for word in eight}) == 8


@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize("along", [True, False])
def test_loads_give_a_warp_its_fragments(side: str, along: bool) -> None:
    """The word of each lane, from the row that the instruction takes it from, is what `left` and
    `right` say."""
    mma = FRAGMENTS["mma"]
    memory = Memory("operand", U32, 16 * 2 * 4, local=True)
    shelf = Shelf(side, memory, 16, 2, along, ZERO, 1, mma)
    lane = Var("lane", 32)
    load = shelf.load(0, 0, ZERO, index(lane))
    assert isinstance(load, Fetch)
    home = {  # where a run is: its line, and which one it is there
        shelf.place(constant(y), constant(x)).offset: (y, x) for y in range(16) for x in range(2)
    }
    for number in range(32):
        for k in range(4):
            words = mma.left(index(lane)) if side == "a" else mma.right(index(lane))
            row, word = words[k] if side == "a" else words[k % 2]
            beside = at(row, lane, number) + (0 if side == "a" else k // 2 * 8)
            depth = at(word, lane, number) * 2
            for half in range(2):
                if along:  # lane l gets of row l // 4 its numbers l % 4 * 2 and the next
                    giver, number_in_run = number // 4, number % 4 * 2 + half
                else:  # turned: of rows l % 4 * 2 and the next, number l // 4
                    giver, number_in_run = number % 4 * 2 + half, number // 4
                line, run = home[at(load.index, lane, k * 8 + giver)]
                got = (line, run * 8 + number_in_run)
                assert got == ((beside, depth + half) if along else (depth + half, beside))


def test_indices_of_32_bits_where_they_suffice() -> None:
    assert "i64" not in kernels(NV, F32, 512, 512, 512, function=dot)
    large = (lambda x: x + 1, (of(1 << 31, dtype="i1"),))
    assert "const i64 item" in code_of(large, NV).source


def test_functions_of_every_instruction() -> None:
    for name in ("mma", "mfma", "wmma"):
        for dtype in ("bf16", "f16"):
            assert f"FUNCTION void {name}_{dtype}(f32& c0" in fragment_function(f"{name}_{dtype}")


def test_matrices_that_a_group_shares() -> None:
    """Four instructions a step, whose operands no register holds: rows and columns as they lie;
    one barrier a step, and what was copied is shown to them before it."""
    text = kernels(HOPPER, BF16, 4096, 4096, 4096)
    step = step_of(text)
    assert step.count("wgmma_bf16_10(") == 4 and "load_matrices" not in text
    assert step.count("BARRIER") == step.count("SHOW_COPIES") == 1
    assert step.index("SHOW_COPIES") < step.index("BARRIER") < step.index("copy_4(")
    assert "AWAIT_PRODUCTS(1);" in step
    behind = text[text.index(step) + len(step) :]
    assert behind.index("wgmma_sums(") < behind.index("BARRIER") < behind.index("load_4(given0")
    assert behind.count("BARRIER") == 2 and behind.count("store_4(y0") == 1

    def turned(x: jnp.ndarray, y: jnp.ndarray) -> jnp.ndarray:
        return wide(x.T, y.T)

    assert "wgmma_f16_01(" in kernels(HOPPER, F16, 4096, 4096, 4096, function=turned)


def test_where_a_group_shares_no_matrices() -> None:
    """Small products; operands that are no runs in memory; devices without the instruction."""

    def positive(x: jnp.ndarray, y: jnp.ndarray) -> jnp.ndarray:
        return wide(jnp.maximum(x, 0), y)

    assert "wgmma" not in kernels(HOPPER, BF16, 256, 256, 256)
    assert "mma_bf16(" in kernels(HOPPER, BF16, 4096, 4096, 4096, function=positive)
    assert "wgmma" not in kernels(H200, BF16, 4096, 4096, 4096)
    assert "wgmma" not in kernels(HOPPER, F32, 4096, 4096, 4096, function=dot)


@pytest.mark.parametrize("along", [True, False])
def test_lines_of_matrices_that_a_group_shares(along: bool) -> None:
    """Where PTX says: 128 bytes a line, bits 4 to 6 of an address changed by bits 7 to 9; the
    depth of an instruction is 16."""
    rows, depth = 128, 64
    memory = Memory("staged", U32, rows * depth // 2, local=True)
    lines, runs = (rows, depth // 8) if along else (depth, rows // 8)
    shelf = Lines("a", memory, lines, runs, along, constant(64), 0, WGMMA)
    for row in range(rows):
        for k in range(depth):
            line, number = (row, k) if along else (k, row)
            word = shelf.place(constant(line), constant(number // 8)).offset
            found = word * 4 + number % 8 * 2
            block, line, number = (0, row, k) if along else (row // 64, k, row % 64)
            plain = block * 8192 + line * 128 + number * 2
            assert found == plain ^ (plain >> 7 & 7) << 4
    starts = [shelf.part(k).offset * 4 for k in range(4)]
    assert starts == [8192 + k * (32 if along else 16 * 128) for k in range(4)]


def test_tiles_that_run_at_once_are_beside_each_other() -> None:
    """The first of them have eight columns, and as many rows as there are."""
    text = kernels(HOPPER, BF16, 4096, 4096, 4096)
    assert "tile_512 % 8u" in text.replace("(u32)", "") and "tile_512 / 8u" in text.replace(
        "(u32)", ""
    )


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_nvrtc_takes_matrices_that_a_group_shares(dtype: object) -> None:
    core = pytest.importorskip("cuda.core")
    program = (wide, (of(4096, 4096, dtype=dtype), of(4096, 4096, dtype=dtype)))
    options = core.ProgramOptions(arch="sm_90a", std="c++17")
    assert core.Program(code_of(program, HOPPER).source, "c++", options).compile("cubin").code
