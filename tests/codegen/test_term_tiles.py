"""Sums whose terms combine rows and columns, in tiles: distances, max-plus products."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.native import CONFIG, check, compiled, run_native, run_program, target
from tests.schedule.graphs import F32, add, mul
from tinyhlo.codegen.lowering.kernel import lower_kernel
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.ir.build import broadcast, elementwise, full, param, reduce
from tinyhlo.ir.dtypes import BF16, F64, I8, I32, DType
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import simplify
from tinyhlo.runtime.compile import compile_program
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule import schedule
from tinyhlo.schedule.program import Kernel

Pair = Callable[[Node, Node], Node]


def sub(x: Node, y: Node) -> Node:
    return elementwise(Op.SUB, x, y)


def square(x: Node, y: Node) -> Node:
    return mul(sub(x, y), sub(x, y))


def pairs(term: Pair, op: Op, rows: Node, columns: Node, across: bool = True) -> Node:
    """The terms of each row with each column, reduced; columns are the second axis of theirs unless
    they lie across."""
    (m, k), n = rows.shape, columns.shape[0 if across else 1]
    shape = (m, n, k) if across else (m, k, n)
    axes, reduced = ((0, 2), 2) if across else ((0, 1), 1)
    left = broadcast(rows, shape, axes)
    right = broadcast(columns, shape, (1, 2))
    return reduce(op, term(left, right), (reduced,))


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def moves_of(graph: Graph) -> list[str]:
    return [move for loops in compiled(graph).loops for move in loops.moves]


def is_tiled(graph: Graph) -> bool:
    return any(re.match(r"tile \w+ 4 x ", move) for move in moves_of(graph))


def distances(m: int, n: int, k: int, across: bool = True, dtype: DType = F32) -> Graph:
    x, y = param(0, (m, k), dtype), param(1, (n, k) if across else (k, n), dtype)
    return Graph((x.type, y.type), (pairs(square, Op.ADD, x, y, across),))


@pytest.mark.parametrize("across", [True, False])
@pytest.mark.parametrize("extents", [(8, 16, 4), (9, 37, 6), (50, 64, 16), (11, 133, 40)])
def test_distances(extents: tuple[int, int, int], across: bool) -> None:
    """Also of rows and columns that no tile divides."""
    m, n, k = extents
    graph = distances(m, n, k, across)
    assert is_tiled(graph)
    check(graph, [numbers(m, k), numbers(*((n, k) if across else (k, n)), seed=1)], atol=1e-4)


@pytest.mark.parametrize("dtype", [F64, BF16, I32, I8], ids=str)
def test_other_types(dtype: DType) -> None:
    x, y = param(0, (12, 9), dtype), param(1, (70, 9), dtype)
    graph = Graph((x.type, y.type), (pairs(sub, Op.MAX, x, y),))
    assert is_tiled(graph)
    check(graph, [(numbers(*v.shape) * 9).astype(dtype.numpy) for v in (x, y)])


def test_rows_that_are_nowhere_greater() -> None:
    x, y = param(0, (13, 8), F32), param(1, (45, 8), F32)
    below = pairs(lambda a, b: elementwise(Op.LT, a, b), Op.AND, x, y)
    graph = Graph((x.type, y.type), (below,))
    assert is_tiled(graph)
    check(graph, [np.round(numbers(13, 8) - 1), np.round(numbers(45, 8))])


def test_extremes_of_nan() -> None:
    x, y = param(0, (12, 20), F32), param(1, (20, 33), F32)
    graph = Graph((x.type, y.type), (pairs(add, Op.MAX, x, y, across=False),))
    rows, columns = numbers(12, 20), numbers(20, 33)
    rows[3, 4] = columns[7, 30] = np.nan
    rows[5, 5] = -np.inf
    assert is_tiled(graph)
    check(graph, [rows, columns])


def test_a_row_has_the_same_sums_wherever_it_is() -> None:
    """Eleven rows are three tiles of four, the last two of which overlap."""
    row, y = numbers(1, 37), numbers(70, 37)
    (found,) = run_native(distances(11, 70, 37), [np.repeat(row, 11, 0), y])
    assert {each.tobytes() for each in found} == {found[0].tobytes()}
    (square_,) = run_native(distances(70, 70, 37), [y, y])
    assert square_.tobytes() == square_.T.copy().tobytes()


@pytest.mark.parametrize("op", [Op.MIN, Op.ADD])
@pytest.mark.parametrize("extents", [(9, 37, 8), (50, 300, 20)])
def test_rows_of_sums_are_reduced(extents: tuple[int, int, int], op: Op) -> None:
    """The nearest of some points, and a function summed over all of them."""
    m, n, k = extents
    x, y = param(0, (m, k), F32), param(1, (n, k), F32)
    every = pairs(square, Op.ADD, x, y)
    value = every if op is Op.MIN else elementwise(Op.EXP, mul(every, full(-0.1, every.shape, F32)))
    graph = Graph((x.type, y.type), (reduce(op, value, (1,)),))
    assert is_tiled(graph) and len(compiled(graph).loops) == 1
    check(graph, [numbers(m, k), numbers(n, k, seed=1)], atol=1e-4)


def test_columns_of_a_batch() -> None:
    x, y = param(0, (3, 20, 9), F32), param(1, (3, 31, 9), F32)
    shape = (3, 20, 31, 9)
    left, right = broadcast(x, shape, (0, 1, 3)), broadcast(y, shape, (0, 2, 3))
    graph = Graph((x.type, y.type), (reduce(Op.ADD, square(left, right), (3,)),))
    assert is_tiled(graph)
    check(graph, [numbers(3, 20, 9), numbers(3, 31, 9)], atol=1e-4)


def of_a_batch(term: Pair, m: int, n: int, k: int, *batch: int) -> Graph:
    """Of each row of one with each of the other, for each of a batch that lies innermost."""
    x, y = param(0, (m, k, *batch), F32), param(1, (n, k, *batch), F32)
    shape, axes = (m, n, k, *batch), range(3, 3 + len(batch))
    left, right = broadcast(x, shape, (0, 2, *axes)), broadcast(y, shape, (1, 2, *axes))
    return Graph((x.type, y.type), (reduce(Op.ADD, term(left, right), (2,)),))


@pytest.mark.parametrize("term", [mul, square])
@pytest.mark.parametrize("extents", [(4, 4, 5, 16), (9, 13, 20, 37), (64, 70, 6, 24)])
def test_batches_that_lie_innermost(extents: tuple[int, ...], term: Pair) -> None:
    """Also of products, whose matrices would be gathered from all over memory."""
    m, n, k, batch = extents
    graph = of_a_batch(term, m, n, k, batch)
    assert is_tiled(graph)
    check(graph, [numbers(m, k, batch), numbers(n, k, batch, seed=1)], atol=1e-4)


@pytest.mark.parametrize("extents", [(3, 9, 20, 37), (9, 9, 3, 37), (9, 9, 20, 3)])
def test_small_batches_are_products_of_matrices(extents: tuple[int, ...]) -> None:
    m, n, k, batch = extents
    graph = of_a_batch(mul, m, n, k, batch)
    assert not is_tiled(graph)
    check(graph, [numbers(m, k, batch), numbers(n, k, batch, seed=1)], atol=1e-4)


@pytest.mark.parametrize("batch", [(40,), (8, 12)])
def test_products_of_a_batch_have_the_same_bits_on_any_number_of_threads(
    batch: tuple[int, ...],
) -> None:
    """Their vectors are put side by side where there is one for each thread."""
    graph = of_a_batch(mul, 64, 66, 5, *batch)
    assert is_tiled(graph)
    arrays = [numbers(64, 5, *batch), numbers(66, 5, *batch, seed=1)]
    found = [run_native(graph, arrays, threads)[0].tobytes() for threads in (1, 2, 16)]
    assert len(set(found)) == 1
    check(graph, arrays, atol=1e-4)


def test_two_nests_of_one_kernel_have_scratch_of_their_own() -> None:
    x, y = param(0, (40, 9), F32), param(1, (40, 9), F32)
    both = pairs(square, Op.ADD, x, y), pairs(add, Op.MAX, x, y)
    graph = Graph((x.type, y.type), both)
    assert is_tiled(graph)
    check(graph, [numbers(40, 9), numbers(40, 9, seed=1)], atol=1e-4)


def test_columns_of_a_batch_within_rows() -> None:
    """Rows are the outer loop here: it moves inside."""
    x, y = param(0, (20, 3, 9), F32), param(1, (3, 31, 9), F32)
    shape = (20, 3, 31, 9)
    left, right = broadcast(x, shape, (0, 1, 3)), broadcast(y, shape, (1, 2, 3))
    graph = Graph((x.type, y.type), (reduce(Op.ADD, square(left, right), (3,)),))
    assert is_tiled(graph)
    check(graph, [numbers(20, 3, 9), numbers(3, 31, 9)], atol=1e-4)


@pytest.mark.parametrize("rows", [70, 9])
def test_columns_beyond_the_cache_serve_blocks_of_rows(rows: int) -> None:
    graph, arrays = distances(rows, 300, 24), [numbers(rows, 24), numbers(300, 24)]
    found: list[bytes] = []
    for threads in (1, 2):
        where = replace(target(threads), l1_bytes=1 << 12, l2_bytes=1 << 14)
        program = schedule(graph, "test", (), where)
        assert "i_block" in str(compile_program(program, where, CONFIG).loops[-1])
        (got,) = run_program(program, graph, arrays, where)
        np.testing.assert_allclose(got, run_graph(graph, arrays)[0], rtol=1e-5)
        found.append(got.tobytes())
    assert found[0] == found[1]


@pytest.mark.parametrize("threads", [2, 3, 16])
def test_the_same_bits_on_any_number_of_threads(threads: int) -> None:
    graph, x, y = distances(203, 301, 40), numbers(203, 40), numbers(301, 40)
    (one,), (many,) = (run_native(graph, [x, y], t) for t in (1, threads))
    assert one.tobytes() == many.tobytes()


@pytest.mark.parametrize(
    ("dear", "m", "k", "tiled"),
    [(False, 40, 9, True), (True, 40, 9, False), (False, 5, 9, False), (False, 40, 3, False)],
)
def test_dear_terms_few_rows_and_short_sums_are_not(
    dear: bool, m: int, k: int, tiled: bool
) -> None:
    def term(a: Node, b: Node) -> Node:
        return elementwise(Op.EXP, sub(a, b)) if dear else square(a, b)

    x, y = param(0, (m, k), F32), param(1, (40, k), F32)
    graph = Graph((x.type, y.type), (pairs(term, Op.ADD, x, y),))
    check(graph, [numbers(m, k), numbers(40, k, seed=1)], atol=1e-4)
    assert is_tiled(graph) == tiled


@pytest.mark.parametrize("dtype", [F32, I32])
def test_sums_of_all_columns_too_stay_as_they_are(dtype: DType) -> None:
    """One sum over two axes, of which neither begins a sum of its own."""
    x, y = param(0, (33, 17), dtype), param(1, (11, 17), dtype)
    shape = (33, 11, 17)
    terms = mul(broadcast(x, shape, (0, 2)), broadcast(y, shape, (1, 2)))
    arrays = [(4 * numbers(*shape)).astype(dtype.numpy) for shape in ((33, 17), (11, 17))]
    check(Graph((x.type, y.type), (reduce(Op.ADD, terms, (1, 2)),)), arrays, rtol=1e-4, atol=1e-3)


def test_scratch_of_several_sums_is_made_in_their_order() -> None:
    """Equal programs have equal code, which a cache finds again."""
    x, y = param(0, (32, 16), F32), param(1, (48, 16), F32)
    near = pairs(square, Op.ADD, x, y)
    sizes = (pairs(term, Op.ADD, x, y) for term in (mul, lambda a, b: mul(mul(a, b), b)))
    value = reduce(Op.MIN, elementwise(Op.DIV, near, add(*sizes)), (1,))
    wide = named_target("x86-64-v4", 1)
    kernel = Kernel("kernel", simplify(Graph((x.type, y.type), (value,))))
    loops = str(choose_moves(lower_kernel(kernel, wide), wide))
    assert re.findall(r"local row(\d)", loops) == ["0", "1", "2"]
