"""Passes over short rows: each over a block of rows before the next, and right for every size."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.harness import check as check_kernel
from tests.codegen.native import check, run_native
from tests.codegen.test_column_blocks import log_softmax, softmax, standardised
from tests.schedule.graphs import F32, mul
from tinyhlo.codegen.loops import LoopProgram
from tinyhlo.codegen.lowering.kernel import lower_kernel
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.ir.build import broadcast, elementwise, pad, param, reduce, scalar
from tinyhlo.ir.dtypes import F64, DType
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import simplify
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

WIDE, NARROW = named_target("x86-64-v4", 1), named_target("x86-64-v3", 1)
WORK = [softmax, log_softmax, standardised]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def rows(shape: tuple[int, ...], work, dtype: DType = F32) -> Graph:  # type: ignore[no-untyped-def]
    x = param(0, shape, dtype)
    return Graph((x.type,), (work(x, len(shape) - 1),))


def loops_of(graph: Graph, target: Target = WIDE) -> LoopProgram:
    return choose_moves(lower_kernel(Kernel("rows", simplify(graph)), target), target)


def phases(graph: Graph, target: Target = WIDE) -> list[str]:
    return [move for move in loops_of(graph, target).moves if move.startswith("phases")]


@pytest.mark.parametrize("shape", [(100, 64), (33, 100), (7, 40, 33), (1000, 48), (65, 257)])
@pytest.mark.parametrize("work", WORK)
def test_rows_of_every_number(shape: tuple[int, ...], work) -> None:  # type: ignore[no-untyped-def]
    check(rows(shape, work), [normal(*shape)], rtol=1e-4, atol=1e-4)


def test_of_doubles() -> None:
    x = param(0, (50, 64), F64)
    graph = Graph((x.type,), (softmax_of(x),))
    check(graph, [np.random.default_rng(0).standard_normal((50, 64))], rtol=1e-13, atol=1e-13)


def softmax_of(x: Node) -> Node:
    """Without a maximum."""
    power = elementwise(Op.EXP, x)
    return elementwise(Op.DIV, power, broadcast(reduce(Op.ADD, power, (1,)), x.shape, (0,)))


def test_a_phase_for_each_pass() -> None:
    text = str(loops_of(rows((100, 64), softmax)))
    assert "local max0_rows: f32[16]" in text and "local row0: f32[1024]" in text
    assert text.count("for i in block*16 .. +16 of 100") == 3


def test_what_a_row_has_one_of_takes_a_vector_of_rows() -> None:
    lines = str(loops_of(rows((100, 64), log_softmax))).splitlines()
    (place,) = [k for k, line in enumerate(lines) if "log(" in line]
    assert "vector 16" in lines[place - 1]


@pytest.mark.parametrize(
    ("shape", "work", "target", "count"),
    [
        ((100, 64), softmax, WIDE, 1),
        ((100, 64), softmax, NARROW, 1),
        ((31, 64), softmax, WIDE, 0),  # no two blocks
        ((100, 4096), softmax, WIDE, 0),  # no block fits the cache
        ((100, 256), standardised, WIDE, 1),
        ((100, 256), standardised, NARROW, 0),  # light, and 32 vectors long
        ((100, 256), softmax, NARROW, 1),
    ],
)
def test_where_it_pays(shape: tuple[int, int], work, target: Target, count: int) -> None:  # type: ignore[no-untyped-def]
    assert len(phases(rows(shape, work), target)) == count


def test_one_pass_has_no_phases() -> None:
    x = param(0, (100, 64), F32)
    assert not phases(Graph((x.type,), (reduce(Op.ADD, mul(x, x), (1,)),)))


def test_without_a_reduce_there_are_no_phases() -> None:
    """A padded row is stored in parts, none of which waits for another."""
    x = param(0, (2000, 60), F32)
    assert not phases(Graph((x.type,), (pad(x, scalar(0, F32), (1, 2), (1, 1), (0, 0)),)))


def test_over_its_operand() -> None:
    for shape in ((90, 64), (35, 200)):
        value = softmax(param(0, shape, F32), 1)
        check_kernel(value, inputs=(normal(*shape),), in_place=((0, 0),))


def test_rows_and_their_results_together() -> None:
    x = param(0, (50, 70), F32)
    y = softmax(x, 1)
    logarithm = elementwise(Op.LOG, reduce(Op.ADD, mul(y, y), (1,)))
    check(Graph((x.type,), (y, logarithm)), [normal(50, 70)], rtol=1e-4, atol=1e-5)


def test_the_same_bits_on_any_number_of_threads() -> None:
    value = normal(3000, 64)
    graph = rows(value.shape, softmax)
    one, two = (run_native(graph, [value], threads) for threads in (1, 2))
    assert one[0].tobytes() == two[0].tobytes()
