"""Small graphs that many tests of the scheduler use, and the check that a plan is right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.schedule.programs import run_program
from tinyhlo.ir import dtypes
from tinyhlo.ir.build import (
    broadcast,
    elementwise,
    full,
    param,
    permute,
    reduce,
    scalar,
)
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule import Program, schedule
from tinyhlo.schedule.program import Block, Launch, Switch, While
from tinyhlo.target import Target

F32, I32 = dtypes.F32, dtypes.I32
TARGET = named_target("x86-64-v3", threads=2)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def planned(
    graph: Graph,
    arguments: Sequence[np.ndarray],
    aliases: tuple[tuple[int, int], ...] = (),
    target: Target = TARGET,
) -> Program:
    """Schedule `graph`, check its plan against the interpreter, return it."""
    program = schedule(graph, "test", aliases, target)
    expected = run_graph(graph, arguments)
    for got, want in zip(run_program(program, arguments), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    return program


def launches(block: Block) -> list[Launch]:
    """All launches of a block, nested ones included."""
    found: list[Launch] = []
    for statement in block:
        match statement:
            case Launch():
                found.append(statement)
            case While(condition=condition, body=body):
                found += launches(condition) + launches(body)
            case Switch(blocks=blocks):
                for inner in blocks:
                    found += launches(inner)
            case _:
                pass
    return found


def add(a: Node, b: Node) -> Node:
    return elementwise(Op.ADD, a, b)


def mul(a: Node, b: Node) -> Node:
    return elementwise(Op.MUL, a, b)


def constant_like(value: float, other: Node) -> Node:
    return full(value, other.shape, other.dtype)


def over_rows(source: Node, shape: tuple[int, ...]) -> Node:
    return broadcast(source, shape, (0,))


def softmax(x: Node) -> Node:
    peak = over_rows(reduce(Op.MAX, x, (1,)), x.shape)
    e = elementwise(Op.EXP, elementwise(Op.SUB, x, peak))
    return elementwise(Op.DIV, e, over_rows(reduce(Op.ADD, e, (1,)), x.shape))


def layernorm(x: Node) -> Node:
    count = full(1.0 / x.shape[1], x.shape[:1], F32)
    mean = over_rows(mul(reduce(Op.ADD, x, (1,)), count), x.shape)
    centred = elementwise(Op.SUB, x, mean)
    variance = mul(reduce(Op.ADD, mul(centred, centred), (1,)), count)
    deviation = elementwise(Op.SQRT, add(variance, constant_like(1e-5, variance)))
    return elementwise(Op.DIV, centred, over_rows(deviation, x.shape))


def matmul(a: Node, b: Node) -> Node:
    (m, k), n = a.shape, b.shape[1]
    left, right = broadcast(a, (m, n, k), (0, 2)), broadcast(b, (m, n, k), (2, 1))
    return reduce(Op.ADD, mul(left, right), (2,))


def relu(x: Node) -> Node:
    return elementwise(Op.MAX, x, constant_like(0.0, x))


__all__ = [name for name in dir() if not name.startswith("_")] + ["param", "permute", "scalar"]
