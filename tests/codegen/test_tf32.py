"""Products of f32 by TF32: who gets it, what the loops are, and right numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jax
import pytest
from jax import lax

from tests.codegen.grid_programs import dot, of
from tests.codegen.test_grid_programs import AMD, NV
from tests.codegen.test_matrices import BF16, H200, at, step_of
from tests.codegen.tf32_programs import X3, conv
from tests.runtime.test_devices import missing, python
from tinyhlo.codegen.c.fragments import fragment_function
from tinyhlo.codegen.expressions import Load, Memory
from tinyhlo.codegen.grid.products.ahead import Shelf
from tinyhlo.codegen.grid.products.fragments import OF_F32, TF32
from tinyhlo.codegen.grid.products.tiles import Extents
from tinyhlo.codegen.grid.products.warps import COPIED, PADDING, tiles_of
from tinyhlo.codegen.grid.render import device_code
from tinyhlo.codegen.grid.statements import Fetch
from tinyhlo.codegen.loops import Assign
from tinyhlo.codegen.render import kernels_of
from tinyhlo.config import Config, from_environment
from tinyhlo.import_stablehlo import import_module
from tinyhlo.import_stablehlo.precision import Rounded, rounded_of
from tinyhlo.ir.dtypes import U32
from tinyhlo.ir.graph import Elementwise
from tinyhlo.ir.index import ZERO, Var, constant, index
from tinyhlo.ir.ops import MULTIPLICATIONS, Op
from tinyhlo.ir.simplify import simplify
from tinyhlo.schedule import schedule
from tinyhlo.target import Target

SQUARE = of(64, 64)


def text_of(function: Callable[..., Any], *shapes: jax.ShapeDtypeStruct) -> str:
    """StableHLO as for a GPU: on processors JAX refuses TF32."""
    return jax.jit(function).trace(*shapes).lower(lowering_platforms=("cuda",)).as_text()


def ops(text: str, rounded: Rounded) -> set[Op]:
    """What multiplies in a program."""
    nodes = import_module(text, rounded).graph.nodes()
    return {n.op for n in nodes if isinstance(n, Elementwise) and n.op in MULTIPLICATIONS}


def asking(precision: Any) -> Callable[..., jax.Array]:
    return lambda x, y: lax.dot(x, y, precision=precision)


ASKED = [
    (None, Op.MUL, Op.MUL_TF32),
    ("highest", Op.MUL, Op.MUL),
    ("high", Op.MUL_TF32, Op.MUL_TF32),
    ("tensorfloat32", Op.MUL_TF32, Op.MUL_TF32),
    ("TF32_TF32_F32", Op.MUL_TF32, Op.MUL_TF32),
    (X3, Op.MUL_TF32X3, Op.MUL_TF32X3),
    ("F32_F32_F32", Op.MUL, Op.MUL),
    (("default", "highest"), Op.MUL, Op.MUL),
    (("default", "high"), Op.MUL_TF32, Op.MUL_TF32),
]


@pytest.mark.parametrize(("precision", "asked", "allowed"), ASKED, ids=lambda each: str(each))
def test_who_gets_it(precision: Any, asked: Op, allowed: Op) -> None:
    """By what a program asks of each product, and by the user's word for those of default."""
    if isinstance(precision, str) and "_" in precision:
        precision = lax.DotAlgorithmPreset[precision]
    text = text_of(asking(precision), SQUARE, SQUARE)
    assert ops(text, Rounded.NONE) == {Op.MUL}
    assert ops(text, Rounded.TF32) == {asked}
    assert ops(text, Rounded.TF32_DEFAULT) == {allowed}


def test_products_of_one_program_differ() -> None:
    def mixed(x: jax.Array, y: jax.Array) -> jax.Array:
        return lax.dot(lax.dot(x, y, precision="high"), y, precision="highest")

    assert ops(text_of(mixed, SQUARE, SQUARE), Rounded.TF32) == {Op.MUL, Op.MUL_TF32}


def test_convolutions_and_gradients() -> None:
    image, taps = of(1, 8, 8, 16), of(3, 3, 16, 16)

    def gradients(x: jax.Array, w: jax.Array) -> Any:
        return jax.grad(lambda x, w: (conv(2)(x, w) ** 2).sum(), (0, 1))(x, w)

    with jax.default_matmul_precision("high"):
        text = text_of(gradients, image, taps)
    graph = import_module(text, Rounded.TF32).graph
    products = {n.op for n in graph.nodes() if isinstance(n, Elementwise) and len(n.shape) > 4}
    assert products & MULTIPLICATIONS == {Op.MUL_TF32}


def test_other_types_are_what_they_are() -> None:
    for dtype in (BF16, "f2", "i4"):
        program = text_of(asking("high"), of(64, 64, dtype=dtype), of(64, 64, dtype=dtype))
        assert ops(program, Rounded.TF32_DEFAULT) == {Op.MUL}


def test_devices_and_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rounded_of(NV, False) is Rounded.TF32 and rounded_of(NV, True) is Rounded.TF32_DEFAULT
    assert rounded_of(AMD, True) is Rounded.NONE
    assert Config().tf32 == 0
    monkeypatch.setenv("TINYHLO_TF32", "1")
    assert from_environment().tf32 == 1


def source_of(text: str, target: Target, rounded: Rounded) -> str:
    module = import_module(text, rounded)
    plan = schedule(simplify(module.graph), module.name, module.aliases, target)
    source = device_code(kernels_of(plan.body), target).source
    return source[source.index("\nKERNEL(") :]


def kernels(function: Callable[..., Any], *shapes: jax.ShapeDtypeStruct) -> str:
    return source_of(text_of(function, *shapes), H200, Rounded.TF32_DEFAULT)


def test_without_it_programs_are_as_they_were() -> None:
    """A device that has none; products that are not asked."""
    text = text_of(dot, of(512, 512), of(512, 512))
    high = text_of(asking("high"), of(512, 512), of(512, 512))
    for target in (NV, AMD):
        assert "tf32" not in source_of(text, target, rounded_of(target, False))
    assert source_of(text, AMD, Rounded.NONE) == source_of(high, AMD, rounded_of(AMD, True))


def test_small_products_and_those_of_a_column() -> None:
    assert "tf32(" not in kernels(dot, of(8, 4096), of(4096, 512))
    assert "tf32(" not in kernels(dot, of(4096, 4096), of(4096, 1))


@pytest.mark.parametrize(
    ("function", "loads", "words"),
    [(dot, 16, 64), (lambda x, y: x @ y.T, 32, 0), (lambda x, y: x.T @ y, 0, 128)],
    ids=["as they are", "rows and rows", "columns of both"],
)
def test_runs_are_copied_steps_ahead(function: Callable[..., Any], loads: int, words: int) -> None:
    """What lies along the depth is loaded by matrices, anything else word by word."""
    step = step_of(kernels(function, of(4096, 4096), of(4096, 4096)))
    assert step.count("copy_4(left") == 8 and step.count("copy_4(right") == 4
    assert step.count("load_matrices(") == loads and "turned" not in step
    assert step.count(" = left_v") + step.count(" = right_v") == words
    assert step.count("round_tf32(") == 4 * loads + words
    assert step.count("mma_tf32(") == 4 * 32 and step.count("BARRIER") == 1


def test_three_products_of_two_parts() -> None:
    step = step_of(kernels(asking(lax.DotAlgorithmPreset[X3]), of(4096, 4096), of(4096, 4096)))
    products = step.count("mma_tf32(")
    assert products % 3 == 0 and "round_tf32" not in step
    assert step.count("mma_tf32(sum0_") * 16 == products  # 64 sums, 4 of each product


def test_windows_are_copied_with_their_borders() -> None:
    step = step_of(kernels(conv(1), of(8, 56, 56, 64), of(3, 3, 64, 64)))
    assert "copy_4(left" in step and "copy_4(right" in step and "x0[" not in step


@pytest.mark.parametrize(
    ("extents", "tile", "parts"),
    [
        (Extents(1, 4096, 4096, 4096), (256, 128), 1),
        (Extents(1, 1024, 1024, 1024), (128, 64), 1),
        (Extents(1, 256, 256, 256), (32, 32), 1),
    ],
)
def test_tiles(extents: Extents, tile: tuple[int, int], parts: int) -> None:
    """Twice the bytes in twice the time: those of 16 bits."""
    tiles = tiles_of(TF32, COPIED)
    assert all(tile.stages(H200) >= 3 and tile.depth == 16 for tile in tiles)
    found = min(tiles, key=lambda each: each.time(extents, H200))
    assert (found.rows, found.columns) == tile
    assert found.parts(extents, H200) == parts
    slow = tiles_of(OF_F32[Op.MUL_TF32X3], COPIED)[0].time(extents, H200)
    assert slow < tiles[0].time(extents, H200) < 3 * slow  # in what it multiplies meanwhile


@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize("along", [True, False])
def test_loads_give_a_warp_its_fragments(side: str, along: bool) -> None:
    """A word is a number; where lines are across, each load of a warp is from 32 banks."""
    lines, runs, padding = (32, 2, 0) if along else (8, 8, PADDING)
    memory = Memory("operand", U32, lines * (runs * 4 + padding), local=True)
    shelf = Shelf(side, memory, lines, runs, along, constant(16), 1, TF32, padding)
    home = {
        shelf.place(constant(y), constant(x)).offset + k: (y, x * 4 + k)
        for y in range(lines)
        for x in range(runs)
        for k in range(4)
    }
    lane = Var("lane", 32)
    load = shelf.load(0, 0, ZERO, index(lane))
    for k in range(4):
        places = [TF32.left(index(lane))[k]] if side == "a" else [TF32.right(index(lane))[k % 2]]
        banks: set[int] = set()
        for number in range(32):
            beside = at(places[0][0], lane, number) + 16 + (k // 2 * 8 if side == "b" else 0)
            depth = at(places[0][1], lane, number)
            if isinstance(load, Fetch):  # lane l gets of row l // 4 its word l % 4
                giver = k * 8 + number // 4
                place = at(load.index, lane, giver) + number % 4
            else:
                assert isinstance(load, Assign)
                value = load.values[k]
                assert isinstance(value, Load)
                place = at(value.index, lane, number)
                banks.add(place % 32)
            assert home[place] == ((beside, depth) if along else (depth, beside))
        assert along or len(banks) == 32


def test_functions() -> None:
    assert "m16n8k8.row.col.f32.tf32.tf32.f32" in fragment_function("mma_tf32")
    assert "cvt.rna.tf32.f32" in fragment_function("round_tf32")
    assert "FUNCTION void split_tf32(u32& small" in fragment_function("split_tf32")


TO_NVRTC: dict[str, tuple[Callable[..., Any], tuple[jax.ShapeDtypeStruct, ...]]] = {
    "1024": (dot, (of(1024, 1024), of(1024, 1024))),
    "4096": (dot, (of(4096, 4096), of(4096, 4096))),
    "4096, all turned": (lambda x, y: x.T @ y.T, (of(4096, 4096), of(4096, 4096))),
    "4096, in three": (
        asking(lax.DotAlgorithmPreset[X3]),
        (of(4096, 4096), of(4096, 4096)),
    ),
    "3x3": (conv(1), (of(8, 56, 56, 64), of(3, 3, 64, 64))),
    "3x3, channels first": (conv(1, "NCHW"), (of(8, 64, 56, 56), of(64, 64, 3, 3))),
}


@pytest.mark.parametrize("title", TO_NVRTC)
def test_nvrtc_takes_it(title: str) -> None:
    core = pytest.importorskip("cuda.core")
    function, shapes = TO_NVRTC[title]
    module = import_module(text_of(function, *shapes), Rounded.TF32_DEFAULT)
    plan = schedule(simplify(module.graph), module.name, module.aliases, H200)
    source = device_code(kernels_of(plan.body), H200).source
    for arch in ("sm_80", "sm_90"):
        options = core.ProgramOptions(arch=arch, std="c++17")
        assert core.Program(source, "c++", options).compile("cubin").code


def test_on_a_device() -> None:
    if missing("NV"):
        pytest.skip(missing("NV"))
    done = python("-m", "tests.codegen.tf32_programs", "NV", JAX_PLATFORMS="cpu")
    assert done.returncode == 0, done.stderr
    wrong = json.loads(done.stdout.splitlines()[-1])
    assert not wrong, "\n".join(f"{title}: {text}" for title, text in wrong.items())


def test_per_function() -> None:
    """As an option of one function, on the device."""
    if missing("NV"):
        pytest.skip(missing("NV"))
    code = """if True:
    import jax, numpy as np
    x = np.random.default_rng(0).normal(size=(64, 64)).astype("f4")
    exact = x.astype("f8") @ x
    for options in ({}, {"tinyhlo_tf32": "1"}):
        y = jax.jit(lambda x: x @ x, compiler_options=options)(x)
        print(np.abs(y - exact).max() / np.abs(exact).max() < 1e-5)
    """
    done = python("-c", code, TINYHLO_DEVICE="NV", JAX_PLATFORMS="tiny")
    assert done.stdout.split() == ["True", "False"], done.stderr
