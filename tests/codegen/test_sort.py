"""Sorts as generated code: every way, every type, stable, the same on any number of threads."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.native import check, run_native, target
from tests.schedule.graphs import launches
from tinyhlo.codegen.sort import lower as lower_sort
from tinyhlo.ir import dtypes
from tinyhlo.ir.build import elementwise, flip, iota, param, scalar, slice_, sort
from tinyhlo.ir.dtypes import F32, I32, DType
from tinyhlo.ir.graph import Graph, Node, Sort
from tinyhlo.ir.ops import Op
from tinyhlo.ir.order import find_order
from tinyhlo.ir.simplify import simplify
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule import schedule


def sorting(
    types: tuple[DType, ...], shape: tuple[int, ...], axis: int, less: Node, count: int = 1
) -> Graph:
    """Operands of these types, sorted together; the first `count` are returned."""
    scalars = [param(k, (), dtype) for dtype in types for k in (0, 0)]
    comparator = Graph(tuple(s.type for s in scalars), (less,))
    operands = [param(k, shape, dtype) for k, dtype in enumerate(types)]
    results = sort(operands, axis, comparator)
    return Graph(tuple(x.type for x in operands), results[-count:])


def less_than(dtype: DType, operand: int = 0, descending: bool = False) -> Node:
    left, right = (param(2 * operand + side, (), dtype) for side in (0, 1))
    return elementwise(Op.LT, right, left) if descending else elementwise(Op.LT, left, right)


def by_last_digit(dtype: DType) -> Node:
    """Less in the last decimal, or equal there and the left one even: no order that is known."""
    ten = scalar(10, dtype)
    left, right = (elementwise(Op.REM, param(side, (), dtype), ten) for side in (0, 1))
    return elementwise(Op.NE, elementwise(Op.MAX, left, right), left)


def values(shape: tuple[int, ...], dtype: DType, most: int = 100) -> np.ndarray:
    low = -most if dtype.kind != "unsigned" else 0
    numbers = np.random.default_rng(0).integers(low, most, shape)
    return (numbers > 0) if dtype is dtypes.BOOL else numbers.astype(dtype.numpy)


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 9, 64, 300, 1000, 5000])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("known", [True, False])
def test_stable_at_every_length(length: int, axis: int, known: bool) -> None:
    shape = (length, 3) if axis == 0 else (3, length)
    less = less_than(I32) if known else by_last_digit(I32)
    graph = sorting((I32, I32), shape, axis, less, 2)
    check(graph, [values(shape, I32), np.arange(3 * length, dtype=np.int32).reshape(shape)])


@pytest.mark.parametrize("length", [9, 100, 500])
@pytest.mark.parametrize("known", [True, False])
def test_equal_elements_said_to_be_less(length: int, known: bool) -> None:
    """By `<=`: every element is there once, whatever the comparator says of equal ones."""
    left, right = (param(side, (), I32) for side in (0, 1))
    if not known:  # left >= the larger of both: descending
        left, right = elementwise(Op.MAX, left, right), left
    graph = sorting((I32,), (length,), 0, elementwise(Op.LE, left, right))
    check(graph, [values((length,), I32, 9)])


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize("length", [10, 500])
@pytest.mark.parametrize("descending", [False, True])
def test_every_type(dtype: DType, length: int, descending: bool) -> None:
    graph = sorting((dtype, I32), (2, length), 1, less_than(dtype, 0, descending), 2)
    keys = values((2, length), dtype)
    check(graph, [keys, np.arange(2 * length, dtype=np.int32).reshape(2, length)])


@pytest.mark.parametrize("length", [30, 700])
def test_two_keys(length: int) -> None:
    first = less_than(F32)
    equal = elementwise(Op.EQ, *first.inputs)
    less = elementwise(Op.OR, first, elementwise(Op.AND, equal, less_than(dtypes.I64, 1, True)))
    graph = sorting((F32, dtypes.I64), (length,), 0, less, 2)
    check(graph, [values((length,), F32, 5), values((length,), dtypes.I64, 1 << 40)])


def test_whole_range_of_wide_keys() -> None:
    bits = np.random.default_rng(1).integers(0, 1 << 64, 3000, np.uint64)
    for dtype in (dtypes.U64, dtypes.I64, dtypes.F64):
        column = np.nan_to_num(bits.view(dtype.numpy))
        check(sorting((dtype,), (3000,), 0, less_than(dtype)), [column])


def test_equal_keys_move_nothing() -> None:
    graph = sorting((I32, I32), (5000,), 0, less_than(I32), 2)
    check(graph, [np.full(5000, 7, np.int32), np.arange(5000, dtype=np.int32)])


@pytest.mark.parametrize("threads", [1, 2, 3, 40])  # 40: as shares are even, 39 blocks are all
def test_blocks_of_one_row(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lower_sort, "COUNTS", 1)  # as many threads as have a block
    length = max(3, threads) * lower_sort.BLOCK + 17
    graph = sorting((I32, I32), (length,), 0, less_than(I32), 2)
    column = values((length,), I32, 1000)
    found = run_native(graph, [column, np.arange(length, dtype=np.int32)], threads)
    order = np.argsort(column, kind="stable")
    np.testing.assert_array_equal(found[0], column[order])
    np.testing.assert_array_equal(found[1], order)


def test_threads_that_share_a_row() -> None:
    """All of two; of many those whose counts take no longer than their elements."""
    assert [lower_sort.threads_of_row(length, 2) for length in (1000, 30_000, 40_000)] == [1, 1, 2]
    many = [lower_sort.threads_of_row(10**k, 64) for k in (4, 5, 6, 7, 8)]
    assert many == [1, 5, 18, 57, 64]


def test_the_way_follows_the_length() -> None:
    def way(length: int, less: Node) -> str:
        (result,) = sorting((I32,), (length,), 0, less).results
        (root,) = result.inputs
        assert isinstance(root, Sort)
        order = find_order(root.comparator)
        found = lower_sort.choose_way(root, order, length, 1, target(1))
        return found.columns[0].name if found.columns[0].name != "data0" else str(found.start)

    assert way(32, less_than(I32)) == "32"  # counted
    assert "[" in way(1000, less_than(I32))  # where the last pass of a radix sort left it
    for length in (1, 32, 1000):
        assert way(length, by_last_digit(I32)) == "front0"  # merged


def test_what_is_no_order_still_gives_every_element_once() -> None:
    """3 goes before 1, 1 before 2, 2 before 3."""
    left, right = (param(side, (), I32) for side in (0, 1))
    apart = elementwise(Op.SUB, right, left)
    cycle = elementwise(Op.EQ, elementwise(Op.AND, apart, scalar(3, I32)), scalar(1, I32))
    for length in (6, 40, 300):
        graph = sorting((I32,), (length,), 0, cycle)
        (found,) = run_native(graph, [np.arange(length, dtype=np.int32)])
        np.testing.assert_array_equal(np.sort(found), np.arange(length))


def first_of(graph: Graph, limit: int) -> Graph:
    """Only the first elements along the last axis are returned."""
    results = tuple(slice_(r, [0] * len(r.shape), (*r.shape[:-1], limit)) for r in graph.results)
    return Graph(graph.params, results)


@pytest.mark.parametrize("length", [5, 17, 40, 100, 129, 1000, 5000])
@pytest.mark.parametrize("limit", [1, 3, 16, 50])
@pytest.mark.parametrize("descending", [False, True])
def test_first_of_a_row(length: int, limit: int, descending: bool) -> None:
    graph = sorting((F32, I32), (3, length), 1, less_than(F32, 0, descending), 2)
    graph = first_of(graph, min(limit, length))
    check(graph, [values((3, length), F32), np.arange(3 * length, dtype=np.int32).reshape(3, -1)])


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize("length", [30, 2000])
def test_first_of_every_type(dtype: DType, length: int) -> None:
    graph = first_of(sorting((dtype, I32), (length,), 0, less_than(dtype), 2), 10)
    check(graph, [values((length,), dtype), np.arange(length, dtype=np.int32)])


@pytest.mark.parametrize("sign", [-1, 0, 1])
def test_first_of_rising_and_falling_rows(sign: int) -> None:
    graph = first_of(sorting((I32, I32), (3000,), 0, less_than(I32), 2), 20)
    check(graph, [sign * np.arange(3000, dtype=np.int32), np.arange(3000, dtype=np.int32)])


@pytest.mark.parametrize(("length", "limit"), [(3000, 20), (40, 6)])
def test_first_of_the_greatest_and_the_least_keys(length: int, limit: int) -> None:
    """A key that is the largest number there is counts as found, and so does the least."""
    graph = first_of(sorting((I32, I32), (length,), 0, less_than(I32), 2), limit)
    for number in (np.iinfo(np.int32).max, np.iinfo(np.int32).min):
        column = np.full(length, number, np.int32)
        column[-3:] = 1
        check(graph, [column, np.arange(length, dtype=np.int32)])


def test_the_way_to_the_first_follows_the_length() -> None:
    there = named_target("x86-64-v4", threads=2)

    def way(length: int, limit: int) -> str:
        graph = first_of(sorting((F32, I32), (4, length), 1, less_than(F32), 2), limit)
        (launch,) = launches(schedule(simplify(graph), "test", (), there).body)
        text = str(lower_sort.lower_sort(launch.kernel, there))
        return next(each for each in ("keys", "lows", "ranks") if f"local {each}" in text)

    assert [way(64, 2), way(64, 8), way(128, 8), way(8, 2)] == ["keys"] * 4
    assert [way(1000, 5), way(5000, 50)] == ["lows"] * 2
    assert [way(64, 40), way(16, 12)] == ["ranks"] * 2


def test_payload_is_no_memory() -> None:
    """The iota of an argsort is computed where it is needed."""
    key, position = param(0, (4, 100), F32), iota((4, 100), I32, 1)
    comparator = sorting((F32, I32), (4, 100), 1, less_than(F32), 2).results[0].inputs[0].comparator  # type: ignore[attr-defined]
    graph = Graph((key.type,), sort([key, flip(position, (1,))], 1, comparator)[1:])
    assert len(schedule(graph, "test", (), target(2)).body) == 1
    check(graph, [values((4, 100), F32)])
