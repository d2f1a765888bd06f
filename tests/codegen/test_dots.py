"""Products of narrow types by instructions that multiply several neighbours along the depth."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.harness import assert_close, run_kernel
from tests.codegen.native import run_native
from tests.codegen.test_contraction import Shape, convolution, dot
from tests.codegen.test_targets import code
from tests.schedule.graphs import mul
from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.contraction.form import bounds, holds_bf16
from tinyhlo.codegen.contraction.lower import lower_contraction
from tinyhlo.codegen.llvm.kernel import render_kernel
from tinyhlo.codegen.lowering.fused import lower_fused
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.ir import build
from tinyhlo.ir.dtypes import BF16, BOOL, F16, F32, I8, I16, I32, U8, U32, DType
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

WIDE = named_target("cooperlake", threads=2)  # has instructions for all of them


def extremes(shape: Shape, dtype: DType, seed: int) -> np.ndarray:
    """Numbers of the whole range of a type, its ends among them."""
    low, high = map(int, dtype.bounds)
    values = np.random.default_rng(seed).integers(low, high, shape, endpoint=True)
    values.flat[::3], values.flat[1::7] = low, high
    return values.astype(dtype.numpy)


def check(graph: Graph, *inputs: np.ndarray) -> None:
    (got,), (want,) = run_kernel(graph, *inputs), run_graph(graph, list(inputs))
    assert_close(got, want, 1e-6 * np.abs(want.astype(np.float64)).max())


def moves(graph: Graph) -> str:
    loops = lower_contraction(Kernel("kernel", graph), WIDE, Moves())
    assert loops is not None
    return " ".join(loops.moves)


def matrices(m: int, k: int, n: int, left: DType, right: DType, sums: DType) -> Graph:
    x, w = build.param(0, (m, k), left), build.param(1, (k, n), right)
    return Graph((x.type, w.type), (dot(build.cast(x, sums), build.cast(w, sums)),))


KINDS = [(U8, I8), (I8, U8), (I8, I8), (U8, U8), (BOOL, I8), (I8, BOOL), (I16, I8), (BOOL, BOOL)]


@pytest.mark.parametrize(("left", "right"), KINDS)
@pytest.mark.parametrize("sums", [I32, U32])
@pytest.mark.parametrize(("m", "k", "n"), [(64, 64, 64), (33, 43, 50), (30, 1030, 70)])
def test_narrow_integers(left: DType, right: DType, sums: DType, m: int, k: int, n: int) -> None:
    check(
        matrices(m, k, n, left, right, sums), extremes((m, k), left, 0), extremes((k, n), right, 1)
    )


def test_a_depth_that_is_one_group() -> None:
    graph = matrices(64, 4, 64, U8, I8, I32)
    assert "4 deep" in moves(graph) and "4 ui8 by i8 at once" in moves(graph)
    check(graph, extremes((64, 4), U8, 0), extremes((4, 64), I8, 1))


@pytest.mark.parametrize("dtype", [I8, U8, I16])
def test_results_as_narrow_as_the_operands_wrap_around(dtype: DType) -> None:
    graph = matrices(33, 43, 50, dtype, dtype, dtype)
    check(graph, extremes((33, 43), dtype, 0), extremes((43, 50), dtype, 1))


@pytest.mark.parametrize(("pad", "stride"), [(0, 1), (1, 1), (1, 2)])
@pytest.mark.parametrize("left", [I8, U8])
@pytest.mark.parametrize("ci", [3, 8])
def test_convolutions_of_narrow_integers(pad: int, stride: int, left: DType, ci: int) -> None:
    """What lies beyond the border of an image is 0, whatever is added to what lies inside."""
    x, w = build.param(0, (2, 9, 11, ci), left), build.param(1, (3, 3, ci, 16), I8)
    total = convolution(build.cast(x, I32), build.cast(w, I32), pad, stride)
    check(Graph((x.type, w.type), (total,)), extremes(x.shape, left, 0), extremes(w.shape, I8, 1))


@pytest.mark.parametrize(("m", "k", "n"), [(64, 64, 64), (33, 43, 50), (20, 1030, 70), (5, 90, 64)])
@pytest.mark.parametrize("turned", [False, True])
def test_bf16(m: int, k: int, n: int, turned: bool) -> None:
    x, w = build.param(0, (m, k), BF16), build.param(1, (n, k) if turned else (k, n), BF16)
    right: Node = build.permute(w, (1, 0)) if turned else w
    graph = Graph((x.type, w.type), (dot(build.cast(x, F32), build.cast(right, F32)),))
    generator = np.random.default_rng(0)
    inputs = [generator.standard_normal(p.shape).astype(BF16.numpy) for p in (x, w)]
    inputs[0][3, 1] = np.inf
    (got,), (want,) = run_kernel(graph, *inputs), run_graph(graph, inputs)
    finite = np.isfinite(want)
    assert (np.isfinite(got) == finite).all() and not finite[3].any()
    np.testing.assert_allclose(got[finite], want[finite], rtol=1e-6, atol=1e-6 * k**0.5)


def test_what_is_rounded_to_bf16_before_a_product() -> None:
    """Elementwise work on an operand is done while it is packed."""
    x, w = build.param(0, (40, 64), F32), build.param(1, (64, 48), F32)
    rounded = [build.cast(build.cast(build.elementwise(Op.TANH, p), BF16), F32) for p in (x, w)]
    graph = Graph((x.type, w.type), (dot(*rounded),))
    assert "2 bf16 at once" in moves(graph)
    check(
        graph,
        *(np.random.default_rng(k).random(t.shape, np.float32) for k, t in enumerate(graph.params)),
    )


def test_few_rows_read_bf16_weights_where_they_lie() -> None:
    graph = matrices(4, 1024, 2048, BF16, BF16, F32)
    assert "right in registers" in moves(graph) and "at once" not in moves(graph)
    assert "2 bf16 at once" in moves(matrices(40, 1024, 2048, BF16, BF16, F32))
    assert "at once" not in moves(matrices(40, 1024, 2048, F16, BF16, F32))


VNNI = replace(
    named_target("x86-64-v3", threads=2), features="+avxvnni", dots=("ui8 i8", "i16 i16")
)
ARM = named_target("neoverse-n1", threads=2)


@pytest.mark.parametrize(
    ("target", "left", "right", "sums", "instruction"),
    [
        (WIDE, U8, I8, I32, r"vpdpbusd\s.*zmm"),
        (WIDE, I8, U8, I32, r"vpdpbusd\s.*zmm"),
        (WIDE, I8, I8, I32, r"vpdpbusd\s.*zmm"),
        (WIDE, U8, U8, I32, r"vpdpwssd\s.*zmm"),
        (WIDE, BF16, BF16, F32, r"vdpbf16ps\s.*zmm"),
        (VNNI, I8, I8, I32, r"vpdpbusd\s.*ymm"),
        (VNNI, U8, I8, I32, r"vpdpbusd\s.*ymm"),
        (ARM, I8, I8, I32, r"sdot\s"),
        (ARM, U8, U8, I32, r"udot\s"),
        (ARM, BOOL, U8, I32, r"udot\s"),
        (ARM, U8, I8, I8, r"sdot\s"),
    ],
)
def test_instructions(
    target: Target, left: DType, right: DType, sums: DType, instruction: str
) -> None:
    text = code(matrices(64, 64, 64, left, right, sums), target)
    assert re.search(instruction, text)
    assert not re.search(rf"{instruction}.*\(%rsp\)", text)  # sums stay in registers


def test_a_bias_in_print() -> None:
    loops = lower_contraction(Kernel("kernel", matrices(64, 64, 64, I8, I8, I32)), WIDE, Moves())
    assert "(left[" in str(loops) and " - 128) * right[" in str(loops)
    assert "4 ui8 by i8 at once" in str(loops)


def test_what_is_known_of_operands() -> None:
    x = build.param(0, (4, 5), U8)
    padded = build.pad(build.cast(x, I32), build.scalar(-7, I32), (1, 0), (0, 0))
    assert bounds(padded) == (-7, 255)
    assert bounds(build.cast(x, I8)) == (-128, 127)
    halves = build.cast(build.param(0, (4, 5), BF16), F32)
    assert holds_bf16(build.pad(halves, build.scalar(1.5, F32), (1, 0), (0, 0)))
    assert not holds_bf16(build.pad(halves, build.scalar(0.1, F32), (1, 0), (0, 0)))
    assert not holds_bf16(build.cast(build.param(0, (4, 5), F16), F32))


@pytest.mark.parametrize("size", [16, 32, 64, 200, 1000])
@pytest.mark.parametrize("across", [False, True])
def test_one_row_of_bf16_and_many(size: int, across: bool) -> None:
    """A query and the keys in a cache, or what is seen and the values: only lanes that are added
    up take sums of pairs."""
    x, keys = build.param(0, (3, size), BF16), build.param(1, (3, size, 48), BF16)
    narrow = build.broadcast(x, (3, size, 48), (0, 1))
    if not across:
        keys = build.param(1, (3, 48, size), BF16)
        narrow = build.broadcast(x, (3, 48, size), (0, 2))
    products = mul(build.cast(narrow, F32), build.cast(keys, F32))
    graph = Graph((x.type, keys.type), (build.reduce(Op.ADD, products, (1 if across else 2,)),))
    random = np.random.default_rng(size)
    given = [random.standard_normal(n.shape).astype(BF16.numpy) for n in (x, keys)]
    (got,), (want,) = run_native(graph, given), run_graph(graph, given)
    assert_close(got, want, 1e-5 * np.abs(want).max())
    loops = choose_moves(lower_fused(Kernel("row", graph)), WIDE)
    text = str(render_kernel(loops, WIDE, "row", False, {}))
    assert ("dpbf16ps" in text) == (not across and size >= 64)
