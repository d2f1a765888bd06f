"""Rows that fill no vector run in lanes along memory: right for every length, number and type."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.harness import check as check_kernel
from tests.codegen.native import check, run_native
from tinyhlo.codegen.loops import LoopProgram
from tinyhlo.codegen.lowering.kernel import lower_kernel
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.ir.build import (
    broadcast,
    cast,
    constant,
    elementwise,
    full,
    gather,
    iota,
    param,
    reduce,
    reshape,
    slice_,
)
from tinyhlo.ir.dtypes import BF16, BOOL, F16, F32, F64, I32, U8, DType
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import simplify
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

WIDE, NARROW = named_target("x86-64-v4", 1), named_target("x86-64-v3", 1)


def array(dtype: DType, *shape: int) -> np.ndarray:
    numbers = np.random.default_rng(sum(shape)).integers(-9, 10, shape)
    return (numbers > 0) if dtype is BOOL else numbers.astype(dtype.numpy)


def standardised(count: int, width: int, dtype: DType = F32) -> Graph:
    """(x - a row) times a column."""
    shape = count, width
    x, row, column = param(0, shape, dtype), param(1, (width,), dtype), param(2, (count,), dtype)
    less = elementwise(Op.SUB, x, broadcast(row, shape, (1,)))
    value = elementwise(Op.MUL, less, broadcast(column, shape, (0,)))
    return Graph((x.type, row.type, column.type), (value,))


def loops_of(graph: Graph, target: Target = WIDE) -> LoopProgram:
    return choose_moves(lower_kernel(Kernel("rows", simplify(graph)), target), target)


def is_flat(graph: Graph, target: Target = WIDE) -> bool:
    return any(
        memory in str(loops_of(graph, target)) for memory in ("local of_row", "local of_column")
    )


@pytest.mark.parametrize("count", [128, 200, 333, 1001])
@pytest.mark.parametrize("width", [2, 3, 5, 7, 9, 12, 15, 17, 20])
def test_rows_of_every_length_and_number(count: int, width: int) -> None:
    arrays = [array(F32, count, width), array(F32, width), array(F32, count)]
    check(standardised(count, width), arrays)


@pytest.mark.parametrize("dtype", [U8, I32, F16, BF16, F64])
@pytest.mark.parametrize("width", [3, 6, 13, 40])
def test_of_every_type(dtype: DType, width: int) -> None:
    graph = standardised(700, width, dtype)
    x, row, column = [array(dtype, 700, width), array(dtype, width), array(dtype, 700)]
    (got,) = run_native(graph, [x, row, column])
    want = (x - row) * column[:, None]
    np.testing.assert_array_equal(got, want.astype(dtype.numpy))


def test_choices_of_rows_and_bytes_as_floats() -> None:
    shape = 500, 3
    x, on = param(0, shape, U8), param(1, (500,), BOOL)
    number = cast(x, F32)
    other = elementwise(Op.TANH, number)
    value = elementwise(Op.WHERE, broadcast(on, shape, (0,)), number, other)
    graph = Graph((x.type, on.type), (value,))
    assert is_flat(graph)
    check(graph, [array(U8, *shape), array(BOOL, 500)])


def test_inside_other_loops_and_of_several_results() -> None:
    shape = 6, 40, 5
    x, weight = param(0, shape, F32), param(1, (6, 40), F32)
    wide = broadcast(weight, shape, (0, 1))
    results = elementwise(Op.MUL, x, wide), elementwise(Op.ADD, x, elementwise(Op.EXP, wide))
    graph = Graph((x.type, weight.type), results)
    assert is_flat(graph)
    check(graph, [array(F32, *shape), array(F32, 6, 40)])


def test_what_all_of_a_row_share_is_computed_once() -> None:
    x, column = param(0, (4000, 5), F32), param(1, (4000,), F32)
    power = broadcast(elementwise(Op.EXP, column), x.shape, (0,))
    loops = str(loops_of(Graph((x.type, column.type), (elementwise(Op.MUL, x, power),))))
    assert loops.count("exp") == 1


@pytest.mark.parametrize("count", [333, 304])
def test_in_the_memory_of_an_argument_no_row_is_computed_twice(count: int) -> None:
    graph = standardised(count, 6)
    arrays = array(F32, count, 6), array(F32, 6), array(F32, count)
    check_kernel(*graph.results, inputs=arrays, in_place=((0, 0),))


def test_columns_divide_in_lanes() -> None:
    shape = 4000, 5
    x, row = param(0, shape, F32), param(1, (5,), F32)
    graph = Graph((x.type, row.type), (elementwise(Op.DIV, x, broadcast(row, shape, (1,))),))
    assert is_flat(graph)
    assert "/ of_column" in str(loops_of(graph))


@pytest.mark.parametrize(
    ("divisors", "mean", "holds"),
    [
        ((0.2, 0.3, 0.25), 0.5, True),
        ((0.2, 0.3, -0.25), 0.5, False),  # zeros would lose their signs
        ((0.2, 0.3, 1e30), 0.5, False),
        ((0.2, 0.3, 0.0), 0.5, False),
        ((0.2, 0.3, 0.25), 1e-30, False),  # dividends may be small
    ],
)
def test_constant_columns_divide_by_their_reciprocals(
    divisors: tuple[float, ...], mean: float, holds: bool
) -> None:
    k = param(0, (4000, 3), U8)
    less, row = [
        broadcast(constant(np.array(values, np.float32)), k.shape, (1,))
        for values in ((mean, 0.5, 0.4), divisors)
    ]
    graph = Graph((k.type,), (elementwise(Op.DIV, elementwise(Op.SUB, cast(k, F32), less), row),))
    for target in (WIDE, NARROW):
        assert ("= (1.0 / table" in str(loops_of(graph, target))) == holds
        assert ("/ of_column" in str(loops_of(graph, target))) != holds
    assert "1.0 / table" not in str(loops_of(graph, named_target("x86-64-v2", 1)))


@pytest.mark.parametrize(("width", "holds"), [(6, True), (16, False), (20, True), (24, False)])
def test_where_vectors_would_be_left_empty(width: int, holds: bool) -> None:
    assert is_flat(standardised(4000, width)) == holds


def test_in_shorter_vectors() -> None:
    assert is_flat(standardised(4000, 6), NARROW)
    assert not is_flat(standardised(4000, 8), NARROW)


def test_few_rows_and_elements_that_lie_apart_stay_as_they_are() -> None:
    assert not is_flat(standardised(20, 6))
    x, column = param(0, (6, 4000), F32), param(1, (4000,), F32)
    turned = elementwise(Op.MUL, x, broadcast(column, x.shape, (1,)))
    assert not is_flat(Graph((x.type, column.type), (turned,)))
    y = param(0, (4000, 6), F32)
    alone = elementwise(Op.ADD, y, full(1.0, y.shape, F32))
    assert not is_flat(Graph((y.type,), (alone,)))


def test_places_that_the_program_computes_are_not_known() -> None:
    """One vector of them, at a place that is."""
    table, places = param(0, (4,), F32), param(1, (16,), I32)
    found = gather(table, (places,))
    arrays = [array(F32, 4), np.arange(16, dtype=np.int32)[::-1] // 4]
    check(Graph((table.type, places.type), (found,)), arrays)


@pytest.mark.parametrize("columns", [8, 16, 32, 64, 100])
def test_places_that_lanes_of_sums_decide_are_not_known(columns: int) -> None:
    """An element of each column, and one at a narrow place of a table."""
    rows, table, places = param(0, (4, columns), I32), param(1, (300,), I32), param(2, (4,), U8)
    total = reduce(Op.ADD, rows, (0,))
    own = gather(rows, (total, iota(total.shape, I32, 0)))
    far = gather(table, (cast(gather(places, (total,)), I32),))
    value = np.arange(4 * columns, dtype=np.int32).reshape(4, columns) % 3 // 2
    given = [value, array(I32, 300), np.array([250, 3, 128, 77], np.uint8)]
    check(Graph((rows.type, table.type, places.type), (own, far)), given)


def test_known_places_that_are_all_the_end_of_the_memory() -> None:
    """The last vectors of 31 elements, in place, read nothing but the last of two."""
    x, pair = param(0, (31,), F32), param(1, (2,), F32)
    each = slice_(reshape(broadcast(pair, (2, 16), (0,)), (32,)), (1,), (32,), (1,))
    value = elementwise(Op.MUL, x, each)
    check_kernel(value, inputs=(array(F32, 31), array(F32, 2)), in_place=((0, 0),))
