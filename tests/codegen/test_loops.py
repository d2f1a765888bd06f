"""Bodies of loops: what a kernel does that runs in every iteration. Counts, never times."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.native import check
from tests.schedule.graphs import F32, I32, add, matmul, mul, normal
from tinyhlo.codegen.loops import LoopProgram
from tinyhlo.codegen.modules import Modules
from tinyhlo.codegen.moves.long_bodies import MANY
from tinyhlo.codegen.render import kernels_of, render_kernels
from tinyhlo.ir.build import (
    broadcast,
    elementwise,
    full,
    gather,
    iota,
    loop,
    param,
    reshape,
    scalar,
    slice_,
    where,
)
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule import schedule


def sigmoid(x: Node) -> Node:
    one = full(1.0, x.shape, F32)
    return elementwise(Op.DIV, one, add(one, elementwise(Op.EXP, elementwise(Op.NEG, x))))


def row(matrix: Node, at: Node) -> Node:
    """matrix[at] as a matrix of one row."""
    shape = (1, matrix.shape[1])
    return gather(matrix, [broadcast(at, shape), iota(shape, I32, 1)])


def lstm(steps: int, units: int, inputs: int = 16) -> Graph:
    """The last state of an LSTM cell over `steps` rows of its third argument."""
    w, u, xs = (
        param(3, (inputs, 4 * units), F32),
        param(4, (units, 4 * units), F32),
        param(5, (steps, inputs), F32),
    )
    i, h, c = param(0, (), I32), param(1, (1, units), F32), param(2, (1, units), F32)
    z = add(matmul(row(xs, i), w), matmul(h, u))
    gates = [slice_(z, (0, k * units), (1, (k + 1) * units)) for k in range(4)]
    new_c = add(mul(sigmoid(gates[1]), c), mul(sigmoid(gates[0]), elementwise(Op.TANH, gates[2])))
    new_h = mul(sigmoid(gates[3]), elementwise(Op.TANH, new_c))
    types = tuple(node.type for node in (i, h, c, w, u, xs))
    body = Graph(types, (add(i, scalar(1, I32)), new_h, new_c, w, u, xs))
    condition = Graph(types, (elementwise(Op.LT, i, scalar(steps, I32)),))
    given = [param(k, node.shape, F32) for k, node in enumerate((w, u, xs))]
    zeros = full(0.0, (1, units), F32)
    final = loop([scalar(0, I32), zeros, zeros, *given], condition, body, steps)
    return Graph(tuple(node.type for node in given), final[1:3])


def arguments(graph: Graph) -> list[np.ndarray]:
    return [0.3 * normal(*type_.shape, seed=k) for k, type_ in enumerate(graph.params)]


def lowered(graph: Graph) -> list[LoopProgram]:
    """The loops of each kernel, for a processor with AVX2."""
    target = named_target("x86-64-v3", threads=2)
    kernels = kernels_of(schedule(graph, "test", (), target).body)
    rendered = render_kernels(kernels, target, Modules(target, print))
    return [rendered[kernel].loops for kernel in kernels]


def moves(graph: Graph) -> list[str]:
    return [move for loops in lowered(graph) for move in loops.moves]


@pytest.mark.parametrize(("units", "steps"), [(32, 20), (32, 700), (40, 700), (13, 2000)])
def test_a_cell_agrees(units: int, steps: int) -> None:
    check(graph := lstm(steps, units), arguments(graph), rtol=1e-4, atol=1e-5)


def test_a_long_body_that_runs_often_keeps_several_vectors_side_by_side() -> None:
    units = 32
    often = MANY // units
    assert any(move.startswith("widen") for move in moves(lstm(often, units)))
    assert not any(move.startswith("widen") for move in moves(lstm(often // 16, units)))


@pytest.mark.parametrize(("columns", "width"), [(128, 64), (96, 32), (64, 64), (32, 32)])
def test_columns_of_a_small_product_are_not_computed_twice(columns: int, width: int) -> None:
    """A turn of 8 vectors leaves half of the second one to do again where there are 12."""
    x, w = param(0, (1, 32), F32), param(1, (32, columns), F32)
    graph = Graph((x.type, w.type), (matmul(x, w),))
    (loops,) = lowered(graph)
    assert f"vector i {width}" in loops.moves


def test_a_matrix_larger_than_the_cache_is_read_by_all_threads() -> None:
    x, w = param(0, (1, 256), F32), param(1, (256, 1024), F32)
    graph = Graph((x.type, w.type), (matmul(x, w),))
    (loops,) = lowered(graph)
    assert loops.moves[0] == "parallel 8 parts of the depth"


def environments(count: int, width: int) -> Graph:
    """A state of `width` numbers for each of `count` environments; one of them turns."""
    state = param(0, (count, width), F32)
    angle = slice_(state, (0, 2), (count, 3))
    moved = add(elementwise(Op.SIN, angle), mul(elementwise(Op.COS, angle), angle))
    position = iota((count, width), I32, 1)
    chosen = elementwise(Op.LT, position, full(1, (count, width), I32))
    whole = broadcast(reshape(moved, (count,)), (count, width), (0,))
    return Graph((state.type,), (where(chosen, whole, state),))


def test_dear_work_is_done_in_vectors_even_of_elements_that_lie_apart() -> None:
    """Environments side by side, each with a few numbers: lanes are collected one by one."""
    graph = environments(64, 4)
    assert any("vector i" in move for move in moves(graph))
    check(graph, arguments(graph))
    check(ragged := environments(61, 3), arguments(ragged))


def test_cheap_work_on_elements_that_lie_apart_is_not() -> None:
    x = param(0, (64, 12), F32)
    graph = Graph((x.type,), (add(slice_(x, (0, 2), (64, 3)), slice_(x, (0, 11), (64, 12))),))
    assert not any("vector" in move for move in moves(graph))
