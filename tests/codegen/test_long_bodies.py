"""Long bodies in pieces and in several vectors compute what they did before."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.harness import run_kernel
from tests.codegen.native import check, compiled
from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.moves.long_bodies import AMPLE, EXPANSION, MANY, STRIP, WINDOW
from tinyhlo.codegen.render import loops_of
from tinyhlo.ir.build import cast, elementwise, full, iota, pad, param, scalar, slice_, where
from tinyhlo.ir.dtypes import F32, U32, U64
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel

UNEVEN = MANY + STRIP + 13


def hashed(x: Node, y: Node, rounds: int) -> Node:
    """A long chain in which few values are alive at a time."""
    for k in range(rounds):
        left = elementwise(Op.SHL, y, full(k % 13 + 1, y.shape, U32))
        right = elementwise(Op.SHR, y, full(31 - k % 13, y.shape, U32))
        x = elementwise(Op.ADD, x, y)
        y = elementwise(Op.XOR, x, elementwise(Op.OR, left, right))
    return elementwise(Op.ADD, x, y)


def random_words(size: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 1 << 32, size, np.uint32)


def moves(graph: Graph) -> str:
    return " ".join(move for loops in compiled(graph).loops for move in loops.moves)


@pytest.mark.parametrize("size", [MANY, UNEVEN, MANY + 1])
@pytest.mark.parametrize(("rounds", "move"), [(5, "vector"), (20, "widen"), (90, "pieces")])
def test_chain(size: int, rounds: int, move: str) -> None:
    x, y = param(0, (size,), U32), param(1, (size,), U32)
    graph = Graph((x.type, y.type), (hashed(x, y, rounds),))
    assert move in moves(graph)
    check(graph, [random_words(size), random_words(size)[::-1].copy()])


@pytest.mark.parametrize(("rounds", "wide"), [(5, False), (12, False), (40, True)])
def test_few_iterations_of_a_longer_body_are_as_much_work(rounds: int, wide: bool) -> None:
    x, y = param(0, (MANY // 4,), U32), param(1, (MANY // 4,), U32)
    graph = Graph((x.type, y.type), (hashed(x, y, rounds),))
    assert ("widen" in moves(graph) or "pieces" in moves(graph)) == wide
    check(graph, [random_words(MANY // 4), random_words(MANY // 4)[::-1].copy()])


def test_several_results_and_conditions_cross() -> None:
    x, y = param(0, (UNEVEN,), U32), param(1, (UNEVEN,), U32)
    early = hashed(x, y, 30)
    odd = elementwise(Op.EQ, elementwise(Op.AND, early, full(1, x.shape, U32)), y)
    late = where(odd, hashed(early, y, 40), hashed(x, early, 20))
    graph = Graph((x.type, y.type), (early, cast(odd, F32), late))
    check(graph, [random_words(UNEVEN), random_words(UNEVEN) % 2])


def test_counter_and_padding() -> None:
    x = param(0, (UNEVEN,), U32)
    counter = cast(iota((UNEVEN,), U64, 0), U32)
    short = slice_(x, (7,), (UNEVEN,))
    shifted = pad(short, scalar(5, U32), (3,), (4,), (0,))
    graph = Graph((x.type,), (hashed(hashed(counter, x, 40), hashed(shifted, x, 30), 30),))
    assert "pieces" in moves(graph)
    check(graph, [random_words(UNEVEN)])


def test_floats_agree() -> None:
    x = param(0, (UNEVEN,), F32)
    value = x
    for op in (Op.TANH, Op.SIN, Op.EXP, Op.LOG1P, Op.TANH, Op.COS, Op.EXP, Op.SQRT):
        value = elementwise(op, value)
    graph = Graph((x.type,), (value,))
    assert "pieces" in moves(graph)
    check(graph, [np.linspace(-2, 2, UNEVEN, dtype=np.float32)])


def test_rows_run_side_by_side_too() -> None:
    """Rows that lie apart in memory are loops of their own."""
    rows, columns = 64, 512
    x = param(0, (rows, 2 * columns), F32)
    gate = slice_(x, (0, 0), (rows, columns))
    value = elementwise(Op.MUL, elementwise(Op.TANH, gate), elementwise(Op.EXP, gate))
    graph = Graph((x.type,), (value,))
    assert "widen" in moves(graph)
    check(graph, [np.linspace(-3, 3, 2 * rows * columns, dtype=np.float32).reshape(x.shape)])


def test_many_chains_need_no_vectors_beside_them() -> None:
    """A processor overlaps the terms of a long sum."""
    x = param(0, (MANY + 64,), F32)
    total = full(0.0, (MANY,), F32)
    for k in range(AMPLE * WINDOW // EXPANSION + 1):
        total = elementwise(Op.ADD, total, elementwise(Op.EXP, slice_(x, (k,), (k + MANY,))))
    graph = Graph((x.type,), (total,))
    assert "vector" in moves(graph) and "widen" not in moves(graph)
    check(graph, [np.linspace(-3, 3, MANY + 64, dtype=np.float32)])


@pytest.mark.parametrize("size", [9, 10, 12, 15, 21, 63, 65])
def test_what_does_not_fill_a_vector(size: int) -> None:
    x, y = param(0, (size,), F32), param(1, (size,), F32)
    value = elementwise(Op.MUL, elementwise(Op.COS, x), y)
    graph = Graph((x.type, y.type), (value, elementwise(Op.ADD, value, x)))
    check(graph, [np.linspace(-9, 9, size, dtype=np.float32), np.ones(size, np.float32)])
    results = run_kernel(
        graph, *(np.linspace(k, 9, size, dtype=np.float32) for k in range(2)), in_place=((0, 1),)
    )
    want = np.cos(np.linspace(0, 9, size)) * np.linspace(1, 9, size)
    np.testing.assert_allclose(results[0], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("processor", "size", "width"),
    [("x86-64-v4", 100_000, 32), ("cooperlake", 100_000, 64), ("cooperlake", 20_000, 32)],
)
def test_two_wide_multiply_adds_a_cycle_are_kept_busy_by_four_vectors(
    processor: str, size: int, width: int
) -> None:
    x = param(0, (size,), F32)
    kernel = Kernel("tanh", Graph((x.type,), (elementwise(Op.TANH, x),)))
    loops = loops_of(kernel, named_target(processor, threads=2), 1.0, Moves())
    assert f"widen i {width}" in loops.moves
