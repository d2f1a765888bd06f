"""Reduces in lanes: every length is right, and no element of a row is worked on alone."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.codegen.harness import check as check_kernel
from tests.codegen.native import check, run_native, target
from tests.schedule.graphs import F32, add, softmax
from tinyhlo.codegen.llvm.kernel import render_kernel
from tinyhlo.codegen.lowering.fused import lower_fused
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.ir.build import elementwise, full, param, reduce
from tinyhlo.ir.dtypes import BOOL, F64, I32, U8, DType
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.joining import join
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel

LENGTHS = [1, 7, 8, 9, 12, 31, 40, 63, 120, 150, 1003]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("length", LENGTHS)
def test_rows_of_any_length(length: int) -> None:
    x = param(0, (5, length), F32)
    total, product = reduce(Op.ADD, x, (1,)), reduce(Op.MUL, x, (1,))
    check(Graph((x.type,), (softmax(x), total, product)), [normal(5, length)], rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize("length", LENGTHS)
def test_integers_are_counted_once(length: int) -> None:
    value = np.random.default_rng(length).integers(-(2**31), 2**31, (3, length)).astype(np.int32)
    x = param(0, value.shape, I32)
    results = tuple(reduce(op, x, (1,)) for op in (Op.ADD, Op.XOR, Op.MAX))
    check(Graph((x.type,), results), [value])


def test_a_long_row_in_strips_the_last_of_which_is_short() -> None:
    value = normal(100_003)
    x = param(0, value.shape, F32)
    graph = Graph((x.type,), (reduce(Op.ADD, x, (0,)), reduce(Op.MAX, x, (0,))))
    check(graph, [value], atol=1e-2)
    one, two = (run_native(graph, [value], threads)[0] for threads in (1, 2))
    assert one.tobytes() == two.tobytes()


@pytest.mark.parametrize("length", [*LENGTHS, 65, 100, 127, 130, 200])
@pytest.mark.parametrize("op", [Op.MAX, Op.MIN])
def test_an_extreme_may_take_an_element_twice(op: Op, length: int) -> None:
    value = normal(9, length)
    value[1, 0] = value[2, length // 2] = value[3, -1] = np.nan
    value[4:, :] = np.where(value[4:] > 0, -0.0, 0.0)
    x = param(0, value.shape, F32)
    check(Graph((x.type,), (reduce(op, x, (1,)),)), [value])


@pytest.mark.parametrize("widths", [(16, 130), (130, 16), (8, 130, 40), (16, 16)])
def test_parts_of_a_row_are_reduced_in_lanes_of_their_own(widths: tuple[int, ...]) -> None:
    """`sum(concatenate([x, y], 1))`: few elements in few lanes, many in several vectors."""
    parts = [param(k, (16, n), F32) for k, n in enumerate(widths)]
    whole = join(parts, 1)
    more = elementwise(Op.LT, full(2.0, whole.shape, F32), whole)
    found = [(Op.ADD, whole), (Op.MAX, whole), (Op.OR, more)]
    results = tuple(reduce(op, value, (0, 1)) for op, value in found)
    graph = Graph(tuple(part.type for part in parts), results)
    check(graph, [normal(16, n) for n in widths], atol=1e-3)


def test_what_ends_a_row_of_an_extreme_has_no_mask() -> None:
    """Two turns of four vectors, the second over some of what the first has seen."""
    x = param(0, (6, 100), F32)
    here = named_target("x86-64-v4", threads=1)
    text = {}
    for op in (Op.MAX, Op.ADD):
        kernel = Kernel("row", Graph((x.type,), (reduce(op, x, (1,)),)))
        loops = choose_moves(lower_fused(kernel), here)
        text[op] = str(render_kernel(loops, here, "row", False, {}))
    assert "icmp uge" in text[Op.ADD] and "icmp uge" not in text[Op.MAX]


def test_sums_of_columns_written_over_one_of_their_operands() -> None:
    """Vectors may not overlap there: the second would read what the first wrote."""
    x, y = param(0, (45,), F32), param(1, (70, 45), F32)
    total = reduce(Op.ADD, elementwise(Op.EXP, y), (0,))
    check_kernel(add(x, total), inputs=(normal(45), normal(70, 45)), in_place=((0, 0),))


def test_no_exponential_of_a_row_is_computed_alone() -> None:
    x = param(0, (6, 150), F32)
    kernel = Kernel("row", Graph((x.type,), (softmax(x),)))
    here = target(2)
    text = str(render_kernel(choose_moves(lower_fused(kernel), here), here, "row", False, {}))
    assert re.search(r"fma\.v8f32|fmul <8 x float>", text) or here.vector_bytes != 32
    assert not re.search(r"fma\.f32|fmul float", text)


@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("dtype", [BOOL, U8, F32, F64])
def test_booleans_of_columns_are_masks(cpu: str, dtype: DType) -> None:
    """Vectors of i1 that one turn hands to the next would be packed and unpacked, but for
    processors that have registers for them."""
    x = param(0, (5, 300), dtype)
    bits = x if dtype is BOOL else elementwise(Op.LT, full(0, x.shape, dtype), x)
    graph = Graph((x.type,), tuple(reduce(op, bits, (0,)) for op in (Op.AND, Op.OR, Op.XOR)))
    here = named_target(cpu, threads=1)
    loops = choose_moves(lower_fused(Kernel("columns", graph)), here)
    text = str(render_kernel(loops, here, "columns", False, {}))
    assert ("alloca <" in text and "x i1>, align" in text) == (cpu == "x86-64-v4")
    check(graph, [(normal(5, 300) * 2).astype(dtype.numpy)])
