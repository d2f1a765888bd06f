"""Library calls in a plan: results where they are wanted, and in the memory of their operands."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.codegen.native import run_native
from tests.schedule.graphs import F32, launches, normal, planned
from tinyhlo.ir.build import ALIASES, elementwise, library_call, loop, param, scalar
from tinyhlo.ir.graph import Graph, Node, TensorType
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.library import REGISTRY, Call, Library, python_call
from tinyhlo.schedule.program import Block, Copy, Switch, While

MATRIX = TensorType((16, 16), F32)


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    def make(call: Call) -> Library:
        return python_call(lambda arrays: [arrays[0] * 2], call.operands, call.results)

    REGISTRY["test.double"] = make
    yield
    del REGISTRY["test.double"]


def double(x: Node) -> Node:
    (result,) = library_call("test.double", (x,), (x.type,), {ALIASES: ((0, 0),)})
    return result


def square(x: Node) -> Node:
    return elementwise(Op.MUL, x, x)


def copies(block: Block) -> int:
    count = 0
    for statement in block:
        match statement:
            case Copy():
                count += 1
            case While(condition=condition, body=body):
                count += copies(condition) + copies(body)
            case Switch(blocks=blocks):
                count += sum(map(copies, blocks))
            case _:
                pass
    return count


X = param(0, MATRIX.shape, F32)


def test_results_are_computed_where_they_are_wanted() -> None:
    graph = Graph((MATRIX,), (double(X),))
    program = planned(graph, [normal(16, 16)])
    assert copies(program.body) == 0 and program.arena_bytes == 0


def test_a_value_that_dies_is_overwritten() -> None:
    graph = Graph((MATRIX,), (square(double(square(X))),))
    program = planned(graph, [normal(16, 16)])
    call = launches(program.body)[1]
    assert call.reads == call.writes
    assert program.arena_bytes == MATRIX.nbytes


def test_a_value_that_is_read_later_is_not() -> None:
    y = square(X)
    graph = Graph((MATRIX,), (elementwise(Op.ADD, double(y), y), y))
    planned(graph, [normal(16, 16)])


def test_an_argument_stays_unless_it_is_given_away() -> None:
    graph = Graph((MATRIX,), (square(double(X)),))
    call = launches(planned(graph, [normal(16, 16)]).body)[0]
    assert call.reads != call.writes
    planned(graph, [normal(16, 16)], ((0, 0),))


def test_in_a_loop() -> None:
    """State that a call replaces."""
    state = (TensorType((), F32), MATRIX)
    count, x = (param(k, type_.shape, F32) for k, type_ in enumerate(state))
    condition = Graph(state, (elementwise(Op.LT, count, scalar(3.0, F32)),))
    body = Graph(state, (elementwise(Op.ADD, count, scalar(1.0, F32)), double(x)))
    _, result = loop((scalar(0.0, F32), X), condition, body, 3)
    graph = Graph((MATRIX,), (result,))
    value = normal(16, 16)
    program = planned(graph, [value])
    (inside,) = [statement.body for statement in program.body if isinstance(statement, While)]
    assert copies(inside) == 0
    np.testing.assert_array_equal(run_native(graph, [value])[0], 8 * value)
