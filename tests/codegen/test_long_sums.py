"""Long sums of floats are made in blocks: how little they round, for every kind of sum."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from tests.codegen.native import run_native
from tests.schedule.graphs import matmul
from tinyhlo.codegen.loops import LoopProgram
from tinyhlo.codegen.lowering.fused import lower_fused
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.codegen.moves.long_sums import CHAIN
from tinyhlo.ir.build import param, permute, reduce, scan
from tinyhlo.ir.dtypes import F32, F64, I32, DType
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel

MANY = 1 << 20
Kind = tuple[Callable[[Node], Node], tuple[int, ...]]


def gram(x: Node) -> Node:
    return matmul(permute(x, (1, 0)), x)


def over(*axes: int) -> Callable[[Node], Node]:
    return lambda x: reduce(Op.ADD, x, axes)


def along(axis: int) -> Callable[[Node], Node]:
    return lambda x: scan(Op.ADD, x, axis, False)


SUMS: dict[str, Kind] = {  # extents that no block and no vector divides
    "all": (over(0), (8 * MANY + 37,)),
    "rows": (over(1), (2, MANY + 5)),
    "few columns": (over(0), (MANY // 8 + 3, 8)),
    "columns": (over(0), (MANY // 4 + 1, 64)),
    "columns of images": (over(1), (2, MANY // 16 + 7, 32)),
    "many columns": (over(0), (2001, 5000)),
    "two axes": (over(0, 2), (MANY // 8 + 1, 4, 8)),
    "prefixes": (along(0), (4 * MANY + 37,)),
    "prefixes of rows": (along(1), (2, MANY + 5)),
    "prefixes of columns": (along(0), (MANY // 8 + 3, 16)),
}
PRODUCTS: dict[str, Kind] = {
    "32 columns": (gram, (MANY // 8, 32)),
    "4 columns": (gram, (MANY // 4, 4)),
}


def graph_of(kind: Kind, dtype: DType = F32) -> Graph:
    make, shape = kind
    x = param(0, shape, dtype)
    return Graph((x.type,), (make(x),))


def error(kind: Kind) -> float:
    """Of equal numbers, the worst there are: all additions of a chain err to the same side."""
    value = np.full(kind[1], 0.1, np.float32)
    (got,) = run_native(graph_of(kind), [value])
    (want,) = run_graph(graph_of(kind, F64), [value.astype(np.float64)])
    return float(np.max(np.abs(got - want) / want))


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_equal_numbers(name: str) -> None:
    assert error(SUMS[name]) < 1e-5


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_equal_numbers(name: str) -> None:
    """The steps of a deep product are chains of up to 1024."""
    assert error(PRODUCTS[name]) < 3e-5


@pytest.mark.parametrize("name", ["all", "columns", "prefixes"])
def test_the_same_bits_on_any_number_of_threads(name: str) -> None:
    graph, shape = graph_of(SUMS[name]), SUMS[name][1]
    value = np.random.default_rng(0).random(shape, np.float32)
    one, two = (run_native(graph, [value], threads)[0] for threads in (1, 2))
    assert one.tobytes() == two.tobytes()


def moved(kind: Kind, dtype: DType = F32) -> LoopProgram:
    kernel = Kernel("sums", graph_of(kind, dtype))
    return choose_moves(lower_fused(kernel), named_target("x86-64-v3", threads=2))


def test_a_row_in_print() -> None:
    text = str(moved((over(1), (2, 65536))))
    assert "for j_block in 32 reduce:" in text
    assert "for j in j_block*2048 .. +2048 of 65536 reduce 32:" in text


def test_blocks_of_blocks() -> None:
    text = str(moved((over(0), (512 * MANY, 8))))
    assert text.count("_block in") == 3


def test_integers_and_short_sums_are_not_cut() -> None:
    assert "block" not in str(moved((over(1), (2, 65536)), I32))
    assert "block" not in str(moved((over(1), (2, 2 * CHAIN * 32))))


def test_a_piece_is_a_whole_number_of_blocks() -> None:
    text = str(moved((over(0), (8 * MANY,))))
    assert "for i_block_strip in 32 parallel:" in text
    assert re.search(r"for i_block in i_block_strip\*128 .. \+128 of 4096 reduce:", text)
