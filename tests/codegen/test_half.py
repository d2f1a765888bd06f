"""Half precision: conversions of integers, and of float16 on a processor without instructions for
them, against NumPy, bit for bit."""

from __future__ import annotations

import platform

import numpy as np
import pytest

from tests.codegen.native import check, run_native
from tinyhlo.codegen.llvm.kernel import render_kernel
from tinyhlo.codegen.lowering.fused import lower_fused
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
from tinyhlo.ir.build import cast, elementwise, param
from tinyhlo.ir.dtypes import BF16, BOOL, F16, I8, I32, I64, U32, U64, DType
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel

without_f16c = pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64 without F16C")
CONVERT = """func.func public @main(%x: tensor<{n}x{source}>) -> tensor<{n}x{target}> {{
  %0 = stablehlo.convert %x : (tensor<{n}x{source}>) -> tensor<{n}x{target}>
  return %0 : tensor<{n}x{target}>
}}"""


def converted(x: np.ndarray, source: str, target: str) -> np.ndarray:
    text = CONVERT.format(n=x.size, source=source, target=target)
    (y,) = compile_module(text, Config(cpu="x86-64", cache=0))(x)
    return y


@without_f16c
def test_every_half_widens_exactly() -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    np.testing.assert_array_equal(converted(x, "f16", "f32"), x.astype(np.float32))


@without_f16c
def test_floats_round_to_nearest_even() -> None:
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)  # finite
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, np.uint32, endpoint=False)
    between = (halves[:-1].astype(np.float64) + halves[1:]).astype(np.float32) / 2  # ties
    x = np.concatenate([halves, between, bits.view(np.float32), [65519.9, 65520, 1e-8, -0.0]])
    x = x.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        want = x.astype(np.float16)
    np.testing.assert_array_equal(converted(x, "f32", "f16"), want)
    np.testing.assert_array_equal(np.signbit(converted(x, "f32", "f16")), np.signbit(want))


@pytest.mark.parametrize("half", [BF16, F16], ids=str)
@pytest.mark.parametrize("other", [BOOL, I8, I32, U32, I64], ids=str)
def test_integers_to_halves_and_halves_to_booleans(half: DType, other: DType) -> None:
    steps = np.array([0, 1, 2, 100, 257, 2049, (1 << 24) + 1])
    given = steps.astype(other.numpy)
    x = param(0, given.shape, other)
    check(Graph((x.type,), (cast(x, half),)), [given], rtol=0, atol=0)
    halves = np.array([0.0, -0.0, 1e-5, -3.0, np.inf, np.nan]).astype(half.numpy)
    y = param(0, halves.shape, half)
    check(Graph((y.type,), (cast(y, BOOL),)), [halves])


@pytest.mark.parametrize(
    ("wide", "high"), [(I32, 30), (U32, 31), (I64, 30), (I64, 49), (I64, 62), (U64, 63)], ids=str
)
def test_an_integer_of_more_digits_than_f32_is_rounded_once(wide: DType, high: int) -> None:
    """It lies just beyond the middle of two bf16, where f32 has the middle, and f64 too."""
    x = param(0, (20,), wide)
    given = np.full(20, (1 << high) + (1 << high - 8) + 1, wide.numpy)
    (found,) = run_native(Graph((x.type,), (cast(x, BF16),)), [given])
    assert set(found.astype(np.float64)) == {2.0**high + 2.0 ** (high - 7)}
    if wide.kind == "signed":
        (found,) = run_native(Graph((x.type,), (cast(x, BF16),)), [-given])
        assert set(found.astype(np.float64)) == {-(2.0**high) - 2.0 ** (high - 7)}
    target = named_target("x86-64-v4", threads=1)
    loops = choose_moves(lower_fused(Kernel("cast", Graph((x.type,), (cast(x, BF16),)))), target)
    text = str(render_kernel(loops, target, "cast", False, {}))
    assert "double" not in text  # in half as many lanes


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_a_choice_of_zero_and_one_is_not_rounded(dtype: DType) -> None:
    source = param(0, (4096,), BOOL)
    graph = Graph((source.type,), (cast(source, dtype),))
    truth = np.random.default_rng(0).random(4096) < 0.5
    (found,) = run_native(graph, [truth])
    np.testing.assert_array_equal(found, truth.astype(dtype.numpy))
    target = named_target("x86-64-v4", threads=1)
    loops = choose_moves(lower_fused(Kernel("choice", graph)), target)
    text = str(render_kernel(loops, target, "choice", False, {}))
    assert "fptrunc" not in text
    assert "32767" not in text  # what rounding adds


@pytest.mark.parametrize("op", [Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.SQRT])
def test_arithmetic_of_every_bf16(op: Op) -> None:
    """NaNs of every payload among them: none has low bits that rounding would carry, so there is
    no test for NaN."""
    every = np.arange(1 << 16, dtype=np.uint16).view(BF16.numpy)
    given = [every] if op is Op.SQRT else [every, np.random.default_rng(0).permutation(every)]
    operands = [param(k, x.shape, BF16) for k, x in enumerate(given)]
    graph = Graph(tuple(x.type for x in operands), (elementwise(op, *operands),))
    (found,), (expected,) = run_native(graph, given), run_graph(graph, given)
    number = ~np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(~np.isnan(found.astype(np.float32)), number)
    np.testing.assert_array_equal(found[number], expected[number])
    target = named_target("x86-64-v4", threads=1)
    loops = choose_moves(lower_fused(Kernel("every", graph)), target)
    assert "fcmp uno" not in str(render_kernel(loops, target, "every", False, {}))
