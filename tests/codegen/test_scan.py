"""Cumulative reduces as generated code: along any axis, in vectors, in strips."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.codegen.native import check, compiled, run_native
from tinyhlo.codegen.llvm.kernel import render_kernel
from tinyhlo.codegen.lowering.scan import LONG, lower_scan
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.ir import dtypes
from tinyhlo.ir.build import elementwise, param, scan
from tinyhlo.ir.dtypes import F32, I32, DType
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.ops import MONOIDS, Op
from tinyhlo.runtime.jit import assembly
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel


def scanning(
    shape: tuple[int, ...],
    axis: int = 0,
    op: Op = Op.ADD,
    dtype: DType = F32,
    reverse: bool = False,
) -> Graph:
    x = param(0, shape, dtype)
    return Graph((x.type,), (scan(op, x, axis, reverse),))


def values(shape: tuple[int, ...], dtype: DType = F32) -> np.ndarray:
    numbers = np.random.default_rng(0).integers(0, 10, shape)
    return (numbers > 0) if dtype is dtypes.BOOL else numbers.astype(dtype.numpy)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(4, 50, 3), (3, 5, 70), (20, 1, 16), (2, 9, 8), (3, 40, 9)])
def test_along_any_axis(axis: int, reverse: bool, shape: tuple[int, ...]) -> None:
    check(scanning(shape, axis, reverse=reverse), [values(shape)])


@pytest.mark.parametrize("op", MONOIDS)
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize("length", [17, LONG + 3])
def test_every_monoid_and_type(op: Op, dtype: DType, length: int) -> None:
    if dtype.is_float and op in (Op.AND, Op.OR, Op.XOR):
        return
    numbers = values((length,), dtype)
    if dtype.is_float and op is not Op.ADD:
        numbers = np.where(numbers == 0, 0, 1).astype(dtype.numpy)
    tolerance = 1e-2 if dtype.bits == 16 else 1e-4
    if dtype.bits == 16 and length > 100 and op is Op.ADD:
        numbers = np.where(np.arange(length) % 500 == 0, numbers, 0).astype(dtype.numpy)
        tolerance = 5e-2
    check(scanning((length,), 0, op, dtype), [numbers], rtol=tolerance)


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 1000, LONG - 1, LONG, 3 * LONG + 5])
@pytest.mark.parametrize("reverse", [False, True])
def test_every_length(length: int, reverse: bool) -> None:
    check(scanning((length,), reverse=reverse), [values((length,))])


@pytest.mark.parametrize("length", [30, 2 * LONG])
def test_nan_stays(length: int) -> None:
    numbers = values((length,))
    numbers[length // 2] = np.nan
    for op in (Op.ADD, Op.MAX, Op.MIN):
        (found,) = run_native(scanning((length,), op=op), [numbers])
        assert np.isnan(found[length // 2 :]).all() and not np.isnan(found[: length // 2]).any()


def test_same_bits_on_any_number_of_threads() -> None:
    numbers = np.random.default_rng(0).normal(size=3 * LONG).astype(np.float32)
    graph = scanning((3 * LONG,))
    results = [run_native(graph, [numbers], threads)[0].tobytes() for threads in (1, 2, 3)]
    assert results[0] == results[1] == results[2]


def test_one_row_runs_in_vectors_on_all_threads() -> None:
    text = str(compiled(scanning((LONG,))).loops[0])
    assert text.count("parallel") >= 2 and re.search(r"ordered \d", text)


@pytest.mark.parametrize(("length", "vector"), [(256, "zmm"), (8192, "ymm")])
def test_nothing_is_shifted_into_a_vector(length: int, vector: str) -> None:
    """AVX-512 has slow instructions for it only. In blocks, vectors of 512 bits would only take a
    step more; one chain has fewer of them."""
    there = named_target("x86-64-v4", threads=2)
    graph = scanning((length,))
    loops = choose_moves(lower_scan(Kernel("sums", graph), there), there)
    declarations: dict[str, str] = {}
    text = str(render_kernel(loops, there, "sums", False, declarations))
    code = assembly("\n".join([*declarations.values(), text]), there)
    assert vector in code and "vexpand" not in code
    assert vector == "zmm" or "zmm" not in code


@pytest.mark.parametrize(("dtype", "last"), [(dtypes.I8, 19), (F32, 9)])
def test_all_axes_behind_the_sums_run_side_by_side(dtype: DType, last: int) -> None:
    """Where the last one fills no vector."""
    shape = (3, 150, 68, last)
    graph = scanning(shape, 0, Op.MAX, dtype)
    loops = str(lower_scan(Kernel("scan", graph), named_target("x86-64-v4", threads=2)))
    assert f"for i in {150 * 68 * last} vector" in loops
    check(graph, [values(shape, dtype)])


def test_computed_operand() -> None:
    x = param(0, (6, 40), F32)
    doubled = elementwise(Op.ADD, x, x)
    check(Graph((x.type,), (scan(Op.ADD, doubled, 1, True),)), [values((6, 40))])


def test_sums_of_integers_wrap() -> None:
    numbers = np.full(LONG, 1 << 30, np.int32)
    check(scanning((LONG,), dtype=I32), [numbers])
