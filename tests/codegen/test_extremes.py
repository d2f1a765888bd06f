"""Maxima and minima in lanes: NaN if either is, and a positive zero above a negative one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.native import run_native, skip_without_f64
from tests.schedule.graphs import F32
from tinyhlo.codegen.llvm.kernel import render_kernel
from tinyhlo.codegen.lowering.fused import lower_fused
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.ir.build import cast, elementwise, full, param, reduce
from tinyhlo.ir.dtypes import BF16, F16, F64, DType
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel

SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf, np.nan, -np.nan, 1e-40, -1e-40]


def extreme(op: Op, dtype: DType, size: int) -> Graph:
    x, y = param(0, (size,), dtype), param(1, (size,), dtype)
    return Graph((x.type, y.type), (elementwise(op, x, y),))


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("op", [Op.MAX, Op.MIN])
def test_special_pairs(op: Op, dtype: DType) -> None:
    a, b = (m.ravel().astype(dtype.numpy) for m in np.meshgrid(SPECIAL, SPECIAL))
    graph = extreme(op, dtype, a.size)
    skip_without_f64(graph)
    (found,) = run_native(graph, [a, b])
    larger = (a > b) | ((a == b) & ~np.signbit(a))
    expected = np.where(larger == (op is Op.MAX), a, b)
    number = ~(np.isnan(a) | np.isnan(b))
    assert np.isnan(found[~number]).all()
    assert (found == expected)[number].all()
    assert (np.signbit(found) == np.signbit(expected))[number].all()


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 12, 16, 20, 24, 33])
def test_special_rows_of_any_length(size: int, dtype: DType) -> None:
    """In vectors of all lengths and one by one."""
    random = np.random.default_rng(size)
    rows = random.choice([*SPECIAL, -2.5, 0.5], (40, size)).astype(dtype.numpy)
    rows[np.isnan(rows) & (random.random(rows.shape) < 0.9)] = -0.0
    x = param(0, rows.shape, dtype)
    graph = Graph((x.type,), (reduce(Op.MAX, x, (1,)), reduce(Op.MIN, x, (1,))))
    skip_without_f64(graph)
    for found, expected in zip(run_native(graph, [rows]), run_graph(graph, [rows]), strict=True):
        np.testing.assert_array_equal(found, expected)
        number = ~np.isnan(expected)
        assert (np.signbit(found) == np.signbit(expected))[number].all()


BOUNDS = [0.0, -0.0, 0.5, 2.0, -2.0, 20.0, 2.0**-14, np.inf, -np.inf, np.nan]


def bounded(op: Op, dtype: DType, bound: float, size: int) -> Graph:
    x = param(0, (size,), dtype)
    return Graph((x.type,), (elementwise(op, x, full(bound, x.shape, dtype)),))


@pytest.mark.parametrize("dtype", [F32, F64, BF16, F16])
@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("op", [Op.MAX, Op.MIN])
def test_special_numbers_against_a_constant(op: Op, bound: float, dtype: DType) -> None:
    """In lanes and one by one."""
    numbers = np.array([*SPECIAL, 2.0, -2.0, bound, -bound], np.float64).astype(dtype.numpy)
    for inputs in (np.tile(numbers, 5), *numbers[:, None]):
        graph = bounded(op, dtype, bound, len(inputs))
        skip_without_f64(graph)
        (found,), (expected,) = run_native(graph, [inputs]), run_graph(graph, [inputs])
        number = ~np.isnan(expected.astype(np.float64))
        np.testing.assert_array_equal(~np.isnan(found.astype(np.float64)), number)
        np.testing.assert_array_equal(found[number], expected[number])
        np.testing.assert_array_equal(np.signbit(found[number]), np.signbit(expected[number]))


@pytest.mark.parametrize("processor", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("dtype", [F32, F64, BF16, F16])
@pytest.mark.parametrize("bound", BOUNDS[:-1])
@pytest.mark.parametrize("op", [Op.MAX, Op.MIN])
def test_a_constant_is_compared_at_once(op: Op, bound: float, dtype: DType, processor: str) -> None:
    """Without what two numbers need, either of which may be NaN or a zero."""
    there = named_target(processor, threads=2)
    loops = choose_moves(lower_fused(Kernel("bounded", bounded(op, dtype, bound, 4096))), there)
    text = str(render_kernel(loops, there, "bounded", False, {}))
    assert "llvm.m" not in text and "mask.range" not in text
    assert ("fadd" in text) == (op is Op.MAX and str(bound) == "0.0")  # of -0.0 it makes +0.0


FORMS = {"x86-64-v3": "fcmp uno", "x86-64-v4": "avx512.mask.range", "neoverse-n1": "llvm.maximum"}


@pytest.mark.parametrize("processor", FORMS)
def test_lanes_have_the_shortest_form_of_their_processor(processor: str) -> None:
    """LLVM's own code is a chain of masks or of choices where one instruction does not do it."""
    there = named_target(processor, threads=2)
    loops = choose_moves(lower_fused(Kernel("larger", extreme(Op.MAX, F32, 4096))), there)
    text = str(render_kernel(loops, there, "larger", False, {}))
    assert {form for form in FORMS.values() if form in text} == {FORMS[processor]}


@pytest.mark.parametrize("op", [Op.MAX, Op.MIN, Op.FLOOR, Op.CEIL, Op.TRUNC, Op.RINT])
def test_what_is_exact_in_16_bits_is_not_rounded(op: Op) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(BF16.numpy)
    other = np.random.default_rng(0).permutation(every)
    parts = (param(k, every.shape, BF16) for k in range(1 + (op in (Op.MAX, Op.MIN))))
    inputs = [every, other][: 1 + (op in (Op.MAX, Op.MIN))]
    graph = Graph(
        tuple(param(0, every.shape, BF16).type for _ in inputs), (elementwise(op, *parts),)
    )
    (found,) = run_native(graph, inputs)
    (expected,) = run_graph(graph, inputs)
    number = ~np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(found.astype(np.float32)), ~number)
    np.testing.assert_array_equal(found[number], expected[number])
    target = named_target("x86-64-v4", threads=1)
    loops = choose_moves(lower_fused(Kernel("exact", graph)), target)
    text = str(render_kernel(loops, target, "exact", False, {}))
    assert "32767" not in text  # what rounding adds


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("op", [Op.MAX, Op.MIN])
def test_reduces_of_16_bits_compare_integers(op: Op, dtype: DType, axis: int, wide: bool) -> None:
    """Every pair of special numbers with a NaN of either sign or none, in lanes and one by one."""
    numbers = np.array([*SPECIAL, 65504, -65504], np.float32).astype(dtype.numpy)
    first, second = np.meshgrid(numbers, numbers)
    rows = np.repeat(np.stack([first.ravel(), second.ravel()], 1), 50, axis=1)
    rows = np.ascontiguousarray(rows if axis else rows.T)
    source = param(0, rows.shape, dtype)
    found = reduce(op, cast(source, F32) if wide else source, (axis,))
    graph = Graph((source.type,), (cast(found, dtype) if wide else found,))
    (got,) = run_native(graph, [rows])
    (expected,) = run_graph(graph, [rows])
    number = ~np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(~np.isnan(got.astype(np.float32)), number)
    np.testing.assert_array_equal(got[number].view(np.uint16), expected[number].view(np.uint16))
    loops = lower_fused(Kernel("extreme", graph))
    assert "= -inf" not in str(loops)
    assert "= inf" not in str(loops)
