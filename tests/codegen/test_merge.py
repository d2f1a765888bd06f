"""Sorts on a grid that merge: tiles, then runs of tiles two by two."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.native import check
from tests.codegen.test_sort import by_last_digit, first_of, less_than, sorting, values
from tests.runtime.test_cuda import TARGET
from tinyhlo.codegen.grid.lower import lower
from tinyhlo.codegen.grid.mapping import pieces_of
from tinyhlo.codegen.grid.render import device_code
from tinyhlo.codegen.grid.sort import merge
from tinyhlo.ir import dtypes
from tinyhlo.ir.build import elementwise, param
from tinyhlo.ir.dtypes import F32, I32, DType
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import simplify
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

TILE = 64 * merge.EACH


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles of few elements."""
    monkeypatch.setattr(merge, "ITEMS", 64)


def groups(graph: Graph, target: Target = TARGET) -> list[int]:
    """Of each piece."""
    pieces, _ = pieces_of(lower(Kernel("kernel", graph), target), target)
    return [piece.groups for piece in pieces]


def merges(graph: Graph, target: Target = TARGET) -> bool:
    text = device_code([Kernel("kernel", graph)], target).source
    return "takes_right" in text


def with_places(length: int, dtype: DType = I32, descending: bool = False) -> Graph:
    return sorting((dtype, I32), (length,), 0, less_than(dtype, 0, descending), 2)


def arguments(length: int, dtype: DType = I32, most: int = 100) -> list[np.ndarray]:
    return [values((length,), dtype, most), np.arange(length, dtype=np.int32)]


def test_one_pass_doubles_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert groups(with_places(TILE)) == [1]
    assert groups(with_places(TILE + 1)) == [2, 2]
    assert groups(with_places(5 * TILE)) == [5, 5, 5, 5]
    monkeypatch.setattr(merge, "ITEMS", 512)
    assert groups(with_places(1 << 20)) == [228] * 9


def test_nothing_but_the_operands_travels() -> None:
    program = lower(Kernel("kernel", sorting((F32,), (5 * TILE,), 0, less_than(F32))), TARGET)
    assert [memory.name for memory in pieces_of(program, TARGET)[1]] == ["front0", "back0"]


def test_what_is_no_order_and_short_rows_take_the_network() -> None:
    assert merges(with_places(merge.SHORT + 1))
    assert not merges(with_places(merge.SHORT))
    assert not merges(sorting((I32, I32), (5000,), 0, by_last_digit(I32), 2))
    for features in ("fp64", "fp64 processor"):
        assert not merges(with_places(5000), replace(TARGET, features=features))
    x = with_places(1000)
    in_place = Kernel("kernel", x, in_place=((0, 0),))
    assert merges(x) and "takes_right" not in device_code([in_place], TARGET).source


def test_each_tile_keeps_the_best() -> None:
    graph = first_of(with_places(9 * TILE), 10)
    assert groups(simplify(graph)) == [9, 1]
    check(graph, arguments(9 * TILE))


@pytest.mark.parametrize("length", [257, TILE - 1, TILE, TILE + 1, 2 * TILE + 9, 7000])
@pytest.mark.parametrize("most", [1, 3, 10_000])
def test_stable_at_every_length(length: int, most: int) -> None:
    assert merges(with_places(length))
    check(with_places(length), arguments(length, most=most))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize("descending", [False, True])
def test_every_type(dtype: DType, descending: bool) -> None:
    check(with_places(2000, dtype, descending), arguments(2000, dtype))


@pytest.mark.parametrize("axis", [0, 1])
def test_rows(axis: int) -> None:
    shape = (3000, 3) if axis == 0 else (3, 3000)
    graph = sorting((I32, I32), shape, axis, less_than(I32), 2)
    check(graph, [values(shape, I32), np.arange(9000, dtype=np.int32).reshape(shape)])


def test_two_keys() -> None:
    equal = elementwise(Op.EQ, param(0, (), I32), param(1, (), I32))
    later = elementwise(Op.AND, equal, less_than(F32, 1, True))
    less = elementwise(Op.OR, less_than(I32), later)
    graph = sorting((I32, F32, I32), (4000,), 0, less, 3)
    assert merges(graph)
    random = np.random.default_rng(1)
    first, second = (random.integers(0, 20, 4000) for _ in range(2))
    check(graph, [first.astype("i4"), second.astype("f4"), np.arange(4000, dtype="i4")])


def test_zeros_are_alike() -> None:
    x = np.resize(np.asarray([0, -0.0, 3, -np.inf, -0.0, -2, np.inf], np.float32), 3001)
    check(with_places(3001, F32), [x, np.arange(3001, dtype=np.int32)])
