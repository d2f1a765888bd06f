"""Products of matrices by AMX: right numbers on any machine, with `amx.c` in place of the
instructions; the instructions themselves on a machine that has them; what they are used for."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import jax
import numpy as np
import pytest

from tests.codegen.native import run_program, target
from tests.codegen.test_contraction import convolution, dot
from tests.codegen.test_dots import extremes, matrices
from tests.codegen.test_row_chain import attention, causal, graph_of
from tests.codegen.test_targets import code
from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.contraction import planner
from tinyhlo.codegen.printer import format_program
from tinyhlo.codegen.render import kernels_of, loops_of
from tinyhlo.errors import TinyhloError
from tinyhlo.import_stablehlo import import_module
from tinyhlo.import_stablehlo.precision import rounded_of
from tinyhlo.ir import build
from tinyhlo.ir.dtypes import BF16, F32, I8, I16, I32, U8, DType
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.joining import join
from tinyhlo.ir.ops import Op
from tinyhlo.runtime import core, jit, object_code
from tinyhlo.runtime.processors import (
    AMX,
    PROCESSORS,
    cpu_target,
    host_features,
    named_target,
    target_of,
)
from tinyhlo.schedule import Program, schedule
from tinyhlo.target import Target

T = TypeVar("T")
SAPPHIRE = named_target("sapphirerapids", threads=2)
COMPILER = shutil.which("cc")
SOURCE = Path(__file__).with_name("amx.c")
NAMES = ("ldtilecfg", "tilerelease", "tilezero", "tileloadd64", "tilestored64")
PRODUCTS = ("tdpbf16ps", "tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud")
INSTRUCTION = re.compile(rf"@llvm\.x86\.({'|'.join((*NAMES, *PRODUCTS))})\b")
WIDE = pytest.mark.skipif(target(2).vector_bytes < 64, reason="no vectors of 64 bytes")
BYTES = [(I8, I8), (I8, U8), (U8, I8), (U8, U8)]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if COMPILER is None:
        pytest.skip("no C compiler")
    path = tmp_path_factory.mktemp("amx") / "amx.so"
    subprocess.run([COMPILER, "-O2", "-shared", "-fPIC", SOURCE, "-o", path], check=True)
    return ctypes.CDLL(str(path))


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch, library: ctypes.CDLL) -> Iterator[Target]:
    """This machine with matrices: their instructions are calls of `amx.c`."""
    symbols = [f"amx_{name}" for name in (*NAMES, *PRODUCTS)]
    found = {name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in symbols}
    imports = jit.imports()
    monkeypatch.setattr(jit, "imports", lambda: imports | found)
    monkeypatch.setattr(
        object_code,
        "compile_text",
        lambda text, target: jit.compile_text(INSTRUCTION.sub(r"@amx_\1", text), target),
    )
    yield replace(target(2), vector_bytes=64, matrices=SAPPHIRE.matrices)
    assert not library.amx_held(), "a kernel keeps its matrices"


@pytest.fixture
def native() -> Target:
    """A machine that has them."""
    try:
        return cpu_target("sapphirerapids", threads=2)
    except TinyhloError as error:
        pytest.skip(str(error))


@pytest.fixture(params=["emulated", "native"])
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Target:
    """Products of any size are of matrices."""
    monkeypatch.setattr(planner.Planner, "fills_matrices", lambda self: True)
    return request.getfixturevalue(request.param)


def check(graph: Graph, where: Target, *inputs: np.ndarray) -> None:
    """Integers to the bit, floats but for the order of a sum."""
    program = schedule(graph, "test", (), where)
    assert "hold matrices" in printed(program, where)
    (got,), (want,) = run_program(program, graph, inputs, where), run_graph(graph, list(inputs))
    if want.dtype.kind in "iu":
        np.testing.assert_array_equal(got, want)
    else:
        wide = want.astype(np.float64)
        rounding = 2**-8 if got.dtype == BF16.numpy else 1e-6
        np.testing.assert_allclose(
            got.astype(np.float64), wide, rtol=rounding, atol=1e-6 * np.abs(wide).max()
        )


def printed(program: Program, where: Target) -> str:
    """The loops of all kernels."""
    kernels = kernels_of(program.body)
    loops = (loops_of(kernel, where, runs, Moves()) for kernel, runs in kernels.items())
    return "\n".join(map(format_program, loops))


SHAPES = [(64, 64, 64), (33, 43, 50), (8, 100, 40), (17, 1030, 70), (100, 32, 7), (48, 6, 16)]


@pytest.mark.parametrize(("left", "right"), BYTES)
@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
def test_bytes(left: DType, right: DType, m: int, k: int, n: int, where: Target) -> None:
    graph = matrices(m, k, n, left, right, I32)
    check(graph, where, extremes((m, k), left, 0), extremes((k, n), right, 1))


def normal(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.standard_normal(shape).astype(BF16.numpy) for shape in shapes]


@pytest.mark.parametrize("turned", ["", "left", "right", "both"])
@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
def test_bf16(m: int, k: int, n: int, turned: str, where: Target) -> None:
    """Either operand may lie along the depth or across."""
    x = build.param(0, (k, m) if turned in ("left", "both") else (m, k), BF16)
    w = build.param(1, (n, k) if turned in ("right", "both") else (k, n), BF16)
    left = build.permute(x, (1, 0)) if turned in ("left", "both") else x
    right = build.permute(w, (1, 0)) if turned in ("right", "both") else w
    total = dot(build.cast(left, F32), build.cast(right, F32))
    check(Graph((x.type, w.type), (total,)), where, *normal(x.shape, w.shape))


@WIDE
def test_rounded_results_with_work_behind_them(where: Target) -> None:
    x, w, b = (build.param(k, s, BF16) for k, s in enumerate([(70, 96), (96, 80), (80,)]))
    total = build.cast(dot(build.cast(x, F32), build.cast(w, F32)), BF16)
    bias = build.expand(build.reshape(b, (1, 80)), (70, 80))
    result = build.elementwise(Op.MAX, total, bias)
    check(Graph((x.type, w.type, b.type), (result,)), where, *normal(x.shape, w.shape, b.shape))


def test_infinities_stay_in_their_row(where: Target) -> None:
    graph = matrices(40, 50, 40, BF16, BF16, F32)
    x, w = normal((40, 50), (50, 40))
    x[3, 1], w[:, 5] = np.inf, 0
    program = schedule(graph, "test", (), where)
    (got,) = run_program(program, graph, (x, w), where)
    assert np.isfinite(np.delete(got, 3, axis=0)).all()
    assert np.isnan(got[3, 5]) and np.isinf(np.delete(got[3], 5)).all()


@pytest.mark.parametrize("first", [1, 3, 94])
def test_what_is_joined_along_the_depth(first: int, where: Target) -> None:
    """Of a group, some members lie beside each other in one part, others in the next."""
    x, w = build.param(0, (95, 13), I8), build.param(1, (1024, 95), U8)
    parts = [build.slice_(w, (0, a), (1024, b)) for a, b in ((first, 95), (0, first))]
    left = build.permute(build.cast(x, I32), (1, 0))
    right = build.permute(build.cast(join(parts, 1), I32), (1, 0))
    graph = Graph((x.type, w.type), (dot(left, right),))
    check(graph, where, extremes(x.shape, I8, 0), extremes(w.shape, U8, 1))


@pytest.mark.parametrize(("pad", "stride"), [(0, 1), (1, 1), (1, 2)])
@pytest.mark.parametrize(("ci", "co"), [(3, 16), (8, 40), (32, 5), (64, 16)])
@pytest.mark.parametrize("dtype", [I8, BF16])
def test_convolutions(pad: int, stride: int, ci: int, co: int, dtype: DType, where: Target) -> None:
    x, w = build.param(0, (2, 9, 11, ci), dtype), build.param(1, (3, 3, ci, co), dtype)
    wide = F32 if dtype is BF16 else I32
    total = convolution(build.cast(x, wide), build.cast(w, wide), pad, stride)
    graph = Graph((x.type, w.type), (total,))
    if dtype is BF16:
        check(graph, where, *normal(x.shape, w.shape))
    else:
        check(graph, where, extremes(x.shape, I8, 0), extremes(w.shape, I8, 1))


@pytest.mark.parametrize("order", ["rows", "panels"])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("depth", ["1024", "512", "256"])
@pytest.mark.parametrize("turned", [False, True])
def test_blocks(
    order: str, packed: bool, depth: str, turned: bool, where: Target,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Several steps of the depth, whose sums wait in memory, several blocks and chunks."""
    monkeypatch.setattr(planner, "SHARED_WORK", 0)
    asked = {"order": order, "packed": "once" if packed else "twice", "depth": depth}
    choose = Moves.choose

    def chosen(moves: Moves, decision: str, answers: Mapping[str, T]) -> T:
        first = asked.get(decision, "")
        found = choose(moves, decision, answers)
        return answers.get(first, found)

    monkeypatch.setattr(Moves, "choose", chosen)
    near = replace(where, l2_bytes=1 << 16)
    m, k, n = 150, 1024, 170
    x, w = build.param(0, (k, m) if turned else (m, k), I8), build.param(1, (k, n), U8)
    left = build.permute(x, (1, 0)) if turned else x
    graph = Graph((x.type, w.type), (dot(build.cast(left, I32), build.cast(w, I32)),))
    check(graph, near, extremes(x.shape, I8, 0), extremes(w.shape, U8, 1))


# queries, keys, depth, columns: whole tiles, edges everywhere, several blocks and steps, few rows
ATTENTION = [(64, 64, 32, 32), (37, 53, 22, 19), (130, 100, 16, 40), (9, 700, 8, 8), (64, 31, 6, 7)]


@WIDE
@pytest.mark.parametrize(("q", "k", "d", "e"), ATTENTION)
@pytest.mark.parametrize("function", [attention, causal], ids=["plain", "causal"])
def test_attention(
    q: int, k: int, d: int, e: int, function: Callable[..., jax.Array], where: Target
) -> None:
    shapes = [(2, 3, q, d), (2, 3, k, d), (2, 3, k, e)]
    if function is causal:
        shapes = [(b, n, h, last) for b, h, n, last in shapes]
    inputs = normal(*shapes)
    graph = graph_of(function, *inputs)
    there = replace(where, l3_bytes=0)  # scores so few would be written to one and read again
    program = schedule(graph, "test", (), there)
    text = printed(program, there)
    assert len(kernels_of(program.body)) == 1 and text.count("hold matrices") == 1
    (got,), (want,) = run_program(program, graph, inputs, there), run_graph(graph, inputs)
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), atol=2e-2)


def test_attention_of_pairs_that_are_no_neighbours_stays_in_f32() -> None:
    graph = graph_of(attention, *normal((2, 3, 40, 33), (2, 3, 64, 33), (2, 3, 64, 32)))
    there = replace(SAPPHIRE, l3_bytes=0)
    text = printed(schedule(graph, "test", (), there), there)
    assert "stage queries" in text and "hold matrices" not in text


@pytest.mark.parametrize(
    ("left", "right", "instruction"),
    [(BF16, BF16, "tdpbf16ps"), (I8, I8, "tdpbssd"), (I8, U8, "tdpbsud"), (U8, I8, "tdpbusd")],
)
def test_instructions(left: DType, right: DType, instruction: str) -> None:
    text = code(matrices(64, 64, 64, left, right, F32 if left is BF16 else I32), SAPPHIRE)
    assert len(re.findall(rf"{instruction}\s", text)) == 4
    assert len(re.findall(r"tileloaddt?\w*\s", text)) == 4
    assert text.count("ldtilecfg") == text.count("tilerelease") == 1


def test_a_processor_whose_system_gives_no_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux may refuse them; then there are none."""
    monkeypatch.setattr(core, "library", lambda: Refusing())
    assert host_features().isdisjoint(AMX)


@pytest.mark.parametrize(
    ("missing", "known"),
    [
        ("amx-int8", ("bf16 bf16",)),
        ("amx-tile", ()),
        ("avx512vl", ()),  # sums are vectors of 512 bits
    ],
)
def test_processors_that_lack_a_part(missing: str, known: tuple[str, ...]) -> None:
    """A virtual machine may hide features one by one."""
    has = {*PROCESSORS["sapphirerapids"].needs} - {missing}
    caches = (1 << 15, 1 << 21, 1 << 25)
    there = target_of(SAPPHIRE.triple, "sapphirerapids", "", has, caches, threads=2)
    assert there.matrices == known


class Refusing:
    def tiny_ask_matrices(self) -> bool:
        return False


def test_narrow_types_that_bf16_holds_are_widened_to_it() -> None:
    for left in (I8, U8, BF16):
        program = schedule(matrices(64, 64, 64, left, BF16, F32), "test", (), SAPPHIRE)
        assert "32 bf16 at once" in printed(program, SAPPHIRE), left
    program = schedule(matrices(64, 64, 64, I16, BF16, F32), "test", (), SAPPHIRE)
    assert "at once" not in printed(program, SAPPHIRE)


PAYS = [
    ((64, 64, 64), False, True),
    ((3000, 33, 33), False, True),
    ((100, 7, 100), False, True),
    ((20, 7, 100), False, False),  # few columns
    ((7, 100, 100), False, False),  # few rows
    ((5000, 16, 16), False, False),  # nothing but zeros along half of a matrix
    ((3000, 33, 33), True, False),  # turned by single elements
    ((512, 64, 64), True, True),
]


@pytest.mark.parametrize(("shape", "across", "pays"), PAYS)
def test_where_it_pays(shape: tuple[int, int, int], across: bool, pays: bool) -> None:
    m, n, k = shape
    x, w = build.param(0, (k, m) if across else (m, k), BF16), build.param(1, (k, n), BF16)
    left = build.permute(x, (1, 0)) if across else x
    graph = Graph((x.type, w.type), (dot(build.cast(left, F32), build.cast(w, F32)),))
    text = printed(schedule(graph, "test", (), SAPPHIRE), SAPPHIRE)
    assert ("hold matrices" in text) == pays


def rounded(precision: str | None, where: Target) -> bool:
    """Whether a product of f32 is one of bf16."""
    asked = None if precision is None else jax.lax.DotAlgorithmPreset[precision]
    x = np.zeros((64, 64), np.float32)
    traced = jax.jit(lambda x: jax.lax.dot(x, x, precision=asked)).trace(x)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    graph = import_module(text, rounded_of(where, allowed=False)).graph
    return any(node.dtype is BF16 for node in graph.nodes())


def test_who_asks_for_bf16_gets_it_where_it_is_faster() -> None:
    assert rounded("BF16_BF16_F32", SAPPHIRE)
    assert rounded("BF16_BF16_F32", named_target("cooperlake", threads=2))
    assert not rounded("BF16_BF16_F32", named_target("x86-64-v4", threads=2))
    for exact in ("BF16_BF16_F32_X3", "BF16_BF16_F32_X6", "F32_F32_F32", None):
        assert not rounded(exact, SAPPHIRE)
