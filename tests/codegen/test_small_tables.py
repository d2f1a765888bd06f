"""Small tables at places that are data: permuted in registers where the processor can."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.native import run_native, skip_without_f64
from tinyhlo.codegen.llvm.kernel import render_kernel
from tinyhlo.codegen.lowering.fused import lower_fused
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.ir import build
from tinyhlo.ir.build import gather, pad, param, reshape, scalar
from tinyhlo.ir.dtypes import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U32, DType
from tinyhlo.ir.graph import Graph
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel

COUNT = 1003


def looked_up(entries: int, dtype: DType, place: DType) -> Graph:
    table, places = param(0, (entries,), dtype), param(1, (COUNT,), place)
    return Graph((table.type, places.type), (gather(table, [places]) + places.cast(dtype),))


@pytest.mark.parametrize("place", [U8, I32, I64], ids=str)
@pytest.mark.parametrize("dtype", [F32, I32, U32, F64, I64, U8, I8, I16, F16, BF16], ids=str)
@pytest.mark.parametrize("entries", [1, 2, 5, 8, 11, 16, 17, 32, 33, 64, 127, 255, 256])
def test_every_entry(entries: int, dtype: DType, place: DType) -> None:
    graph = looked_up(entries, dtype, place)
    skip_without_f64(graph)
    random = np.random.default_rng(entries)
    table = random.integers(0, 1 << 30 if dtype.bits > 16 else 50, entries).astype(dtype.numpy)
    places = random.integers(0, entries, COUNT).astype(place.numpy)
    (found,) = run_native(graph, [table, places])
    np.testing.assert_array_equal(found, table[places] + places.astype(dtype.numpy))


@pytest.mark.parametrize("dtype", [BOOL, U8, F16, BF16, I32, F32, F64], ids=str)
@pytest.mark.parametrize("columns", [3, 8, 16, 17, 31, 64, 65, 129])
def test_rows_in_another_order(columns: int, dtype: DType) -> None:
    """The same places in each row, of which there are fewer or more than a row has."""
    for count in (columns, 16, 40):
        graph = reordered(37, columns, count, dtype)
        skip_without_f64(graph)
        random = np.random.default_rng(columns)
        rows = random.integers(0, 2 if dtype is BOOL else 100, (37, columns)).astype(dtype.numpy)
        places = random.integers(0, columns, count).astype(np.int32)
        (found,) = run_native(graph, [rows, places])
        np.testing.assert_array_equal(found, rows[:, places])


def reordered(rows: int, columns: int, count: int, dtype: DType) -> Graph:
    table, places = param(0, (rows, columns), dtype), param(1, (count,), I32)
    at = build.broadcast(places, (rows, count), [1])
    return Graph(
        (table.type, places.type), (gather(table, [build.iota((rows, count), I32, 0), at]),)
    )


@pytest.mark.parametrize(
    ("dtype", "processor", "instruction"),
    [
        (U8, "sapphirerapids", "permvar.qi"),
        (BF16, "sapphirerapids", "permvar.hi"),
        (F16, "x86-64-v4", "permvar.hi"),
        (F32, "x86-64-v4", "permvar.sf"),
    ],
)
def test_the_instruction_of_a_row(dtype: DType, processor: str, instruction: str) -> None:
    there = named_target(processor, threads=2)
    loops = choose_moves(lower_fused(Kernel("reordered", reordered(1000, 16, 16, dtype))), there)
    assert instruction in str(render_kernel(loops, there, "reordered", False, {}))


@pytest.mark.parametrize(
    ("entries", "dtype", "instruction"),
    [
        (16, F32, "permvar.sf"),
        (32, F32, "vpermi2var.ps"),
        (8, F64, "permvar.df"),
        (16, I64, "vpermi2var.q"),
        (64, F32, "vpermi2var.ps"),
        (128, BF16, "vpermi2var.hi"),
    ],
)
def test_the_instruction(entries: int, dtype: DType, instruction: str) -> None:
    there = named_target("x86-64-v4", threads=2)
    kernel = Kernel("looked_up", looked_up(entries, dtype, I32))
    loops = choose_moves(lower_fused(kernel), there)
    assert instruction in str(render_kernel(loops, there, "looked_up", False, {}))


@pytest.mark.parametrize("step", [2, 3, 4, 8])
@pytest.mark.parametrize("entries", [1, 2, 4, 8])
def test_zeros_between_entries(entries: int, step: int) -> None:
    """Where no lane may look, what the instruction finds there is no zero."""
    table = param(0, (entries, 1), F32)
    zero = scalar(0.0, F32)
    apart = reshape(pad(table, zero, [0, 0], [0, step - 1]), (entries * step,))
    shifted = reshape(pad(table, zero, [0, 1], [0, step - 2]), (entries * step,))
    graph = Graph((table.type,), (apart + shifted + shifted,))
    values = np.arange(1, entries + 1, dtype=np.float32)
    (found,) = run_native(graph, [values[:, None]])
    expected = np.zeros((entries, step), np.float32)
    expected[:, 0] = values
    expected[:, 1] += 2 * values
    np.testing.assert_array_equal(found, expected.ravel())


def test_larger_tables_stay_in_memory() -> None:
    there = named_target("x86-64-v4", threads=2)
    loops = choose_moves(lower_fused(Kernel("looked_up", looked_up(65, F32, I32))), there)
    assert "perm" not in str(render_kernel(loops, there, "looked_up", False, {}))
