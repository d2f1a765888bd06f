"""Effects in a plan: every effectful call is launched, used or not, in program order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.codegen.native import run_native
from tests.schedule.graphs import F32, TARGET, launches
from tests.schedule.programs import run_program
from tinyhlo.ir import dtypes
from tinyhlo.ir.build import (
    ORDER,
    branch,
    elementwise,
    full,
    library_call,
    loop,
    param,
    scalar,
    update_slice,
)
from tinyhlo.ir.graph import Graph, Node, Output, TensorType
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import simplify
from tinyhlo.runtime.library import REGISTRY, Call, Library, python_call
from tinyhlo.schedule import schedule
from tinyhlo.schedule.program import Switch, While

VECTOR = TensorType((256,), F32)
I32_SCALAR = TensorType((), dtypes.I32)

Told = list[tuple[int, float]]


@pytest.fixture
def told() -> Iterator[Told]:
    """(number, sum of the operand) of each call of `tell`, in order; its results are the operand
    plus one."""
    calls: Told = []

    def make(call: Call) -> Library:
        def run(arrays: list[np.ndarray]) -> list[np.ndarray]:
            calls.append((call.attributes["number"], float(sum(a.sum() for a in arrays))))
            return [arrays[0] + np.float32(1) for _ in call.results]

        return python_call(run, call.operands, call.results)

    REGISTRY["tell"] = make
    yield calls
    del REGISTRY["tell"]


def tell(number: int, *operands: Node, returns: bool = False) -> tuple[Node, Node]:
    """(the call, its result or itself)."""
    types = [operands[0].type] if returns else []
    (result,) = library_call(
        "tell", operands, types, {ORDER: number, "number": number}, effect=True
    )
    return (result.inputs[0] if isinstance(result, Output) else result), result


def ones() -> np.ndarray:
    return np.ones(256, np.float32)


def run_all(graph: Graph, arguments: list[np.ndarray], told: Told) -> list[Told]:
    """What the graph tells in the interpreter, through its plan, and as native code."""
    stories: list[Told] = []
    for form in (graph, simplify(graph)):
        program = schedule(form, "test", (), TARGET)
        for run in (
            lambda: run_graph(form, arguments),  # noqa: B023 (called at once)
            lambda: run_program(program, arguments),  # noqa: B023
            lambda: run_native(form, arguments),  # noqa: B023
        ):
            told.clear()
            run()
            stories.append(list(told))
    return stories


def test_calls_without_users_in_order(told: Told) -> None:
    """The last call is the only one that a result needs."""
    x = param(0, (256,), F32)
    doubled = elementwise(Op.MUL, x, full(2.0, (256,), F32))
    first, _ = tell(0)
    second, _ = tell(1, doubled)
    third, result = tell(2, x, returns=True)
    graph = Graph((VECTOR,), (elementwise(Op.ADD, result, doubled),), (first, second, third))
    expected = [(0, 0.0), (1, 512.0), (2, 256.0)]
    assert run_all(graph, [ones()], told) == [expected] * 6
    (y,) = run_native(graph, [ones()])
    np.testing.assert_array_equal(y, np.full(256, 4.0))


def test_order_holds_against_the_order_of_results(told: Told) -> None:
    x = param(0, (256,), F32)
    calls = [tell(k, x, returns=True) for k in range(5)]
    results = tuple(result for _, result in reversed(calls))
    graph = Graph((VECTOR,), results, tuple(call for call, _ in calls))
    assert run_all(graph, [ones()], told) == [[(k, 256.0) for k in range(5)]] * 6


def test_a_call_sees_memory_before_it_is_overwritten(told: Told) -> None:
    x = param(0, (256,), F32)
    y = elementwise(Op.ADD, x, full(1.0, (256,), F32))
    call, _ = tell(0, y)
    changed = update_slice(y, full(100.0, (128,), F32), [scalar(0, dtypes.I32)])
    graph = Graph((VECTOR,), (changed,), (call,))
    assert run_all(graph, [ones()], told) == [[(0, 512.0)]] * 6


def counting_loop(told_number: int, x: Node, trips: int) -> tuple[Node, Node]:
    """(the loop, its result): x + trips, telling at each turn."""
    n, z = param(0, (), dtypes.I32), param(1, (256,), F32)
    call, more = tell(told_number, z, returns=True)
    step = elementwise(Op.ADD, n, scalar(1, dtypes.I32))
    types = (I32_SCALAR, VECTOR)
    condition = Graph(types, (elementwise(Op.LT, n, scalar(trips, dtypes.I32)),))
    body = Graph(types, (step, more), (call,))
    outputs = loop((scalar(0, dtypes.I32), x), condition, body, trips)
    return outputs[0].inputs[0], outputs[1]


def test_loops_are_effects(told: Told) -> None:
    x = param(0, (256,), F32)
    unused, _ = counting_loop(0, x, 2)
    between, _ = tell(1, x)
    used, result = counting_loop(2, x, 2)
    graph = Graph((VECTOR,), (result,), (unused, between, used))
    turns = [(0, 256.0), (0, 512.0), (1, 256.0), (2, 256.0), (2, 512.0)]
    assert run_all(graph, [ones()], told) == [turns] * 6
    program = schedule(graph, "test", (), TARGET)
    assert sum(isinstance(statement, While) for statement in program.body) == 2


def test_a_loop_that_never_runs(told: Told) -> None:
    never, result = counting_loop(0, param(0, (256,), F32), 0)
    graph = Graph((VECTOR,), (result,), (never,))
    assert run_all(graph, [ones()], told) == [[]] * 6


@pytest.mark.parametrize("chosen", [0, 1, 7])
def test_branches_without_results_are_effects(told: Told, chosen: int) -> None:
    selector, x = param(0, (), dtypes.I32), param(1, (256,), F32)
    inner = param(0, (256,), F32)
    blocks = [Graph((VECTOR,), (), (tell(k, inner)[0],)) for k in range(2)]
    (node,) = branch(selector, (x,), blocks)
    graph = Graph((I32_SCALAR, VECTOR), (x,), (node, tell(5, x)[0]))
    arguments = [np.array(chosen, np.int32), ones()]
    assert run_all(graph, arguments, told) == [[(min(chosen, 1), 256.0), (5, 256.0)]] * 6
    assert isinstance(schedule(graph, "test", (), TARGET).body[0], Switch)


def test_a_known_branch_keeps_its_effect(told: Told) -> None:
    x = param(0, (256,), F32)
    inner = param(0, (256,), F32)
    call, more = tell(0, inner, returns=True)
    quiet = Graph((VECTOR,), (inner,))
    (result,) = branch(scalar(1, dtypes.I32), (x,), [quiet, Graph((VECTOR,), (more,), (call,))])
    graph = Graph((VECTOR,), (result,), (result.inputs[0],))
    assert run_all(graph, [ones()], told) == [[(0, 256.0)]] * 6


def test_fusion_does_not_go_around_an_effect(told: Told) -> None:
    """The sum before a call and the value after it cannot be one kernel when the call stands
    between them."""
    x = param(0, (256,), F32)
    before = elementwise(Op.MUL, x, full(3.0, (256,), F32))
    call, result = tell(0, before, returns=True)
    second, _ = tell(1, elementwise(Op.ADD, result, before))
    graph = Graph((VECTOR,), (elementwise(Op.SUB, result, before),), (call, second))
    assert run_all(graph, [ones()], told) == [[(0, 768.0), (1, 256.0 * 7)]] * 6
    names = [launch.kernel.name for launch in launches(schedule(graph, "test", (), TARGET).body)]
    assert [name for name in names if name.startswith("tell")] == ["tell_1", "tell_3"]
