"""Rows shorter than any vector, each in a vector of its length."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.harness import check as check_kernel
from tests.codegen.native import check, compiled, target
from tests.codegen.test_ranges import combining
from tests.schedule.graphs import F32, add
from tinyhlo.codegen.loops import Loop
from tinyhlo.ir.build import (
    broadcast,
    elementwise,
    flip,
    iota,
    param,
    permute,
    reduce,
    reshape,
    scatter,
    slice_,
)
from tinyhlo.ir.dtypes import BF16, F16, F64, I8, I32, I64, U32, U64, DType
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.joining import join
from tinyhlo.ir.ops import COMPARISONS, TRANSCENDENTAL, Op

WIDTHS = [n for n in (3, 4, 5, 6, 7) if n < target(2).short_lanes(32)]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def product(rows: int, width: int, op: Op = Op.TANH, dtype: DType = F32) -> Graph:
    """An operation on matrices of a width times others, less their neighbours."""
    a, b = (param(k, (rows, width, width), dtype) for k in range(2))
    wide = (rows, width, width, width)
    terms = elementwise(Op.MUL, broadcast(a, wide, (0, 1, 2)), broadcast(b, wide, (0, 2, 3)))
    value = elementwise(Op.SUB, reduce(Op.ADD, terms, (2,)), a)
    given = (value, b)[: op.arity] if op.arity < 3 else (elementwise(Op.LT, value, a), value, b)
    result = elementwise(op, *given)
    return Graph((a.type, b.type), (result,))


def in_vectors(graph: Graph, width: int) -> list[Loop]:
    """The loops of one kernel that run in vectors of a width, outermost ones only."""
    (loops,) = compiled(graph).loops
    return [s for s in loops.body if isinstance(s, Loop) and s.width == width]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_few_rows_are_vectors_without_loops_around(width: int) -> None:
    assert len(in_vectors(product(1, width), width)) == width


@pytest.mark.parametrize("width", WIDTHS)
def test_many_rows_are_vectors_where_they_fill_half_of_one(width: int) -> None:
    (loops,) = compiled(product(100, width)).loops
    half = 2 * width >= target(2).short_lanes(32)
    assert (f"vector k {width}" in loops.moves) == half


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_that_lie_across_are_vectors_where_they_are_few(width: int) -> None:
    """A matrix times a vector reads elements of a row that are a row apart."""
    for rows, chosen in ((1, True), (500, False)):
        a, b = param(0, (rows, width, width), F32), param(1, (rows, width), F32)
        spread = elementwise(Op.MUL, a, broadcast(b, a.shape, (0, 2)))
        graph = Graph((a.type, b.type), (reduce(Op.ADD, spread, (2,)),))
        (loops,) = compiled(graph).loops
        assert (
            any(move.endswith(f" {width}") and "vector" in move for move in loops.moves) == chosen
        )
        check(graph, [normal(rows, width, width), normal(rows, width)], rtol=1e-5)


@pytest.mark.parametrize("width", WIDTHS)
def test_at_most_eight_rows_are_written_out(width: int) -> None:
    """Of 64, in six loops of two: a gate of a quantum circuit."""
    a, b = param(0, (2, 2), F32), param(1, (2,) * 6 + (width,), F32)
    wide = (2,) * 7 + (width,)  # the sum's axis is the second one
    factors = broadcast(a, wide, (0, 1)), broadcast(b, wide, (4, 1, 6, 2, 3, 5, 7))
    graph = Graph((a.type, b.type), (reduce(Op.ADD, elementwise(Op.MUL, *factors), (1,)),))
    (loops,) = compiled(graph).loops
    assert 1 < str(loops).count(f"{width} vector {width}:") <= 8
    check(graph, [normal(2, 2), normal(*b.shape)], rtol=1e-5)


@pytest.mark.parametrize("width", [2, 3, 4, 5, 6, 7, 9, 13])
@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("dtype", [F32, F64, I8, I32, U64, F16, BF16])
def test_right_for_every_type(dtype: DType, rows: int, width: int) -> None:
    given = [(2 * normal(rows, width, width)).astype(dtype.numpy) for _ in range(2)]
    tolerance = {2: 0.3, 4: 1e-5, 8: 1e-12}.get(dtype.itemsize, 0.0)
    check(product(rows, width, Op.MAX, dtype), given, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", [F32, F64, I32, U32, I64])
def test_every_operation_has_such_vectors(dtype: DType, width: int) -> None:
    for op in sorted(operations(dtype), key=lambda op: op.label):
        given = [abs(2 * normal(1, width, width)).astype(dtype.numpy) for _ in range(2)]
        tolerance = 1e-9 if dtype is F64 else 1e-4
        check(product(1, width, op, dtype), given, rtol=tolerance, atol=tolerance)


def operations(dtype: DType) -> set[Op]:
    """Those of a type, of which a Graph may have any."""
    floats = {Op.NEG, Op.ABS, Op.FLOOR, Op.CEIL, Op.TRUNC, Op.RINT, Op.SQRT} | TRANSCENDENTAL
    integers = {Op.NOT, Op.POPCOUNT, Op.CLZ, Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR, Op.SAR}
    both = {Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.REM, Op.MAX, Op.MIN, Op.WHERE} | COMPARISONS
    return both | (floats if dtype.is_float else integers)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_few_rows_of_what_takes_long_are_vectors(width: int) -> None:
    """Without sums. Neighbours are one loop, so something has to differ from row to row."""
    for rows, chosen in ((2, True), (3, True), (100, False)):
        x, s = param(0, (rows, width), F32), param(1, (width,), F32)
        value = elementwise(Op.DIV, x, broadcast(s, x.shape, (1,)))
        graph = Graph((x.type, s.type), (value,))
        assert bool(in_vectors(graph, width)) == chosen
        check(graph, [normal(rows, width), normal(width)])


@pytest.mark.parametrize("columns", [8, 16, 21])
def test_columns_that_fill_a_vector_are_not_written_out(columns: int) -> None:
    x = param(0, (2, columns), F32)
    graph = Graph((x.type,), (reduce(Op.MIN, x, (0,)),))
    (loops,) = compiled(graph).loops
    assert any(move.startswith("vector") for move in loops.moves), str(loops)
    check(graph, [normal(2, columns)])


@pytest.mark.parametrize("width", range(2, 8))
def test_parts_that_lie_between_others_are_no_rows(width: int) -> None:
    """Those of complex numbers, read from every second place and stored there."""
    x, s = param(0, (2, width, 2), F32), param(1, (width,), F32)
    re, im = (reshape(slice_(x, (0, 0, k), (2, width, k + 1)), (2, width)) for k in range(2))
    scale = broadcast(s, re.shape, (1,))
    found = (elementwise(Op.DIV, re, scale), elementwise(Op.DIV, add(re, im), scale))
    result = join([reshape(part, (2, width, 1)) for part in found], 2)
    for value in (result, flip(found[0], (1,)), *found):
        check(Graph((x.type, s.type), (value,)), [normal(2, width, 2), normal(width)])


@pytest.mark.parametrize("width", WIDTHS)
def test_a_result_may_lie_where_an_operand_was(width: int) -> None:
    """Elements of a row are all computed before any is stored."""
    x, b = param(0, (width, width), F32), param(1, (9, width, width), F32)
    value = add(x, reduce(Op.MAX, permute(b, (0, 2, 1)), (0,)))
    check_kernel(value, inputs=(normal(width, width), normal(9, width, width)), in_place=((0, 0),))


@pytest.mark.parametrize("width", range(2, 10))
@pytest.mark.parametrize("dtype", [F32, F64, I32, BF16])
def test_rows_that_are_added_where_data_tell(dtype: DType, width: int) -> None:
    """One row after another, on top of some that were just stored."""
    table, updates = param(0, (3, width), dtype), param(1, (300, width), dtype)
    where, shape = param(2, (300,), I32), updates.shape
    place = [broadcast(where, shape, (0,)), iota(shape, I32, 1)]
    results = scatter([table], [updates], place, combining(Op.ADD, dtype), False)
    graph = Graph((table.type, updates.type, where.type), results)
    if width in WIDTHS and dtype in (F32, I32):
        assert f"in {width} vector {width}:" in str(compiled(graph).loops[-1])
    random = np.random.default_rng(width)
    given = [random.integers(-9, 9, node.shape).astype(dtype.numpy) for node in (table, updates)]
    check(graph, [*given, random.integers(-1, 4, 300).astype(np.int32)])
