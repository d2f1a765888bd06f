"""A program says of each value in memory why it is there, and why no reader computes it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.random_graphs import random_program
from tests.schedule.graphs import F32, TARGET, add, launches, matmul, relu, softmax
from tinyhlo.ir.build import broadcast, elementwise, param, reduce, scan, slice_
from tinyhlo.ir.graph import Graph, Node, Output
from tinyhlo.ir.ops import Op
from tinyhlo.schedule import schedule
from tinyhlo.schedule.values import STRUCTURES


def less_its_sum(x: Node) -> Node:
    return elementwise(Op.SUB, x, broadcast(reduce(Op.ADD, x, (0, 1)), x.shape, ()))


def dear_neighbours(x: Node) -> Node:
    dear = elementwise(Op.TANH, x)
    return add(slice_(dear, (0, 0), (511, 512)), slice_(dear, (1, 0), (512, 512)))


@pytest.mark.parametrize(
    ("function", "reasons"),
    [
        (softmax, ["a result"]),
        (less_its_sum, ["a reduce; a row of sub is too long to be walked several times"]),
        (
            dear_neighbours,
            ["20 operations each, used 2 times; add reads it outside its own rows and columns"],
        ),
        (
            lambda x: matmul(relu(matmul(x, x)), x),
            ["a factor, made of another kernel's results; a product takes it from memory"],
        ),
        (lambda x: scan(Op.ADD, relu(x), 0, False), ["scan takes it from memory"]),
    ],
)
def test_reasons(function: Callable[[Node], Node], reasons: list[str]) -> None:
    x = param(0, (512, 512), F32)
    program = schedule(Graph((x.type,), (function(x),)), "test", (), TARGET)
    found = [why for launch in launches(program.body) for why in launch.kernel.why]
    assert [why for why in found if why][: len(reasons)] == reasons
    assert all(f"# in memory: {why}" in str(program) for why in reasons)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_loops_store_has_a_reason(seed: int) -> None:
    graph, _ = random_program(seed, 30)
    for launch in launches(schedule(graph, "test", (), TARGET).body):
        for result, why in zip(launch.kernel.graph.results, launch.kernel.why, strict=True):
            inner = result.inputs[0] if isinstance(result, Output) else result
            assert why or isinstance(inner, STRUCTURES)
