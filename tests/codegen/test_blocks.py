"""Scatters of elements of which many lie outside: these are left out before, a block at a time."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.native import compiled, run_native, target
from tinyhlo.codegen.bodies import below
from tinyhlo.codegen.loops import Keep
from tinyhlo.codegen.lowering import blocks
from tinyhlo.ir.build import elementwise, param, scatter
from tinyhlo.ir.dtypes import F32, I32, I64, U8, DType
from tinyhlo.ir.graph import Graph, Shape
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op

COUNT = 3_003  # neither whole blocks nor whole vectors


@pytest.fixture(autouse=True)
def pays_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes its time for each update."""
    monkeypatch.setattr(blocks, "FEWEST", COUNT)
    monkeypatch.setattr(blocks, "BLOCK", 1 << 10)


def elements(op: Op, dtype: DType, index: DType, operand: Shape = (77,)) -> Graph:
    p, q = param(0, (), dtype), param(1, (), dtype)
    combiner = Graph((p.type, q.type), (elementwise(op, p, q),))
    table, updates = param(0, operand, dtype), param(1, (COUNT,), dtype)
    places = [param(2 + k, (COUNT,), index) for k in range(len(operand))]
    results = scatter([table], [updates], places, combiner, False)
    return Graph(tuple(node.type for node in (table, updates, *places)), results)


def arguments(graph: Graph, inside: np.ndarray) -> list[np.ndarray]:
    """The updates `inside` have places in the table, the others one before or behind it."""
    random = np.random.default_rng(0)
    table, updates, *places = graph.params
    given = [random.integers(0, 9, t.shape).astype(t.dtype.numpy) for t in (table, updates)]
    for node, extent in zip(places, table.shape, strict=True):
        outside = np.where(random.random(COUNT) < 0.5, -1, extent)
        index = np.where(inside, random.integers(0, extent, COUNT), outside)
        given.append(index.astype(node.dtype.numpy))
    return given


def in_blocks(graph: Graph) -> bool:
    programs = compiled(graph, 1).loops
    return any(isinstance(s, Keep) for program in programs for s in below(program.body))


def agrees(graph: Graph, given: list[np.ndarray]) -> None:
    (found,), (expected,) = run_native(graph, given, 1), run_graph(graph, given)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("op", [Op.ADD, Op.MAX])
@pytest.mark.parametrize("dtype", [F32, I32, U8])
@pytest.mark.parametrize("index", [I32, I64])
@pytest.mark.parametrize("share", [0, 0.5, 0.999, 1])
def test_some_lie_outside(op: Op, dtype: DType, index: DType, share: float) -> None:
    graph = elements(op, dtype, index)
    assert in_blocks(graph) == target(1).packs
    agrees(graph, arguments(graph, np.random.default_rng(1).random(COUNT) < share))


def test_blocks_whose_first_updates_are_as_no_others() -> None:
    """They tell how a block is done, not what is done."""
    graph = elements(Op.ADD, F32, I32, (7, 11))
    first = np.arange(COUNT) % (1 << 10) < blocks.SAMPLE
    for inside in (first, ~first, np.arange(COUNT) < COUNT // 2):
        agrees(graph, arguments(graph, inside))


def test_sums_keep_their_order() -> None:
    graph = elements(Op.ADD, F32, I32)
    table, _, places = arguments(graph, np.random.default_rng(1).random(COUNT) < 0.5)
    agrees(graph, [table, np.random.default_rng(2).standard_normal(COUNT, np.float32), places])


def test_few_updates_stay_one_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "FEWEST", COUNT + 1)
    assert not in_blocks(elements(Op.ADD, F32, I32))
