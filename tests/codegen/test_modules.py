"""How kernels are grouped into LLVM modules: counts, and results across modules."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.codegen.native import run_native
from tests.schedule.graphs import F32, I32, add, matmul, softmax
from tinyhlo.codegen import modules, render
from tinyhlo.codegen.choices import NONE
from tinyhlo.codegen.llvm.types import QUICK
from tinyhlo.codegen.render import BRIEF, kernels_of, render_program
from tinyhlo.ir.build import barrier, elementwise, flip, gather, loop, param, scalar
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule import schedule
from tinyhlo.target import Target

TARGET = named_target("x86-64-v3", threads=2)
SIZES = (48, 40, 56, 64, 72)


def chain() -> Graph:
    """Products of different sizes: kernels that share no code and are not inlined."""
    params = [param(k, (a, b), F32) for k, (a, b) in enumerate(pairwise(SIZES))]
    value = params[0]
    for weights in params[1:]:
        value = softmax(matmul(value, weights))
    return Graph(tuple(p.type for p in params), (value,))


def module_texts(graph: Graph, target: Target) -> tuple[str, ...]:
    program = schedule(graph, "test", (), target)
    texts: list[str] = []
    _, last = render_program(program, kernels_of(program.body), target, texts.append)
    return (*texts, last)


def test_many_short_arrays_do_not_become_one_block() -> None:
    """What computes 16 of 200 arrays is called 12 times, a single one is part of the entry."""
    many = [param(k, (3,), F32) for k in range(200)]
    graph = Graph(tuple(x.type for x in many), tuple(add(x, x) for x in many))
    assert "".join(module_texts(graph, TARGET)).count("alwaysinline") == 1  # of the last few
    few = Graph((many[0].type,), (add(many[0], many[0]),))
    (text,) = module_texts(few, TARGET)
    assert "alwaysinline" in text


@pytest.mark.parametrize(("states", "written"), [(4, 4), (200, 1)])
def test_many_copies_are_written_out_once(states: int, written: int) -> None:
    """The states of a loop, which changes them in place, are copies of arrays of a few vectors."""
    i, *rows = params = (
        param(0, (), I32),
        *(param(k, (32,), F32) for k in range(1, states + 1)),
    )
    types = tuple(node.type for node in params)
    test = Graph(types, (elementwise(Op.LT, i, scalar(3, I32)),))
    body = Graph(types, (add(i, scalar(1, I32)), *(add(x, x) for x in rows)))
    graph = Graph(types, loop(params, test, body, None)[1:])
    text = "".join(module_texts(graph, TARGET))
    assert text.count("i64 128, i1 false)") == written
    values = [np.array(0, np.int32), *(np.full(32, k, np.float32) for k in range(states))]
    for ours, expected in zip(run_native(graph, values), run_graph(graph, values), strict=True):
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize(("places", "inlined"), [(8, True), (80, False)])
def test_what_stands_in_many_places_is_called(places: int, inlined: bool) -> None:
    value: Node = param(0, (3,), F32)
    at = param(1, (3,), I32)
    for _ in range(places):
        value = gather(value, (at,))
    text = "".join(module_texts(Graph((value.type, at.type), (value,)), TARGET))
    assert ("alwaysinline" in text) == inlined


def test_what_runs_several_times_is_called_unless_in_a_loop() -> None:
    """Blocks of hundreds of moves take LLVM ten times as long, to save a call each."""

    def reversed_often(value: Node) -> Node:
        for _ in range(8):
            value = barrier(flip(value, (0,)))
        return value

    x = param(0, (5, 5), F32)
    assert "alwaysinline" not in "".join(
        module_texts(Graph((x.type,), (reversed_often(x),)), TARGET)
    )
    i, state = param(0, (), I32), param(1, (5, 5), F32)
    types = (i.type, state.type)
    test = Graph(types, (elementwise(Op.LT, i, scalar(9, I32)),))
    body = Graph(types, (add(i, scalar(1, I32)), reversed_often(state)))
    graph = Graph((x.type,), (loop([scalar(0, I32), x], test, body, 9)[1],))
    assert "alwaysinline" in "".join(module_texts(graph, TARGET))


def test_what_starts_loops_is_glue() -> None:
    """Loops are in a module that is optimised, all else in one that is not."""
    x = param(0, (128, 64), F32)
    loops, glue = module_texts(Graph((x.type,), (softmax(x),)), TARGET)
    assert "phi" in loops and not loops.startswith(QUICK)
    assert glue.startswith(QUICK) and "define i32 @entry" in glue
    assert "phi" not in glue


def test_a_program_without_parallel_loops_is_one_module() -> None:
    x = param(0, (8,), F32)
    (text,) = module_texts(Graph((x.type,), (add(x, x),)), TARGET)
    assert "fadd" in text and not text.startswith(QUICK)


def doubled(size: int, times: int) -> Graph:
    """An array doubled, in a loop if more than once."""
    x = param(0, (size,), F32)
    if times == 1:
        return Graph((x.type,), (add(x, x),))
    i, state = param(0, (), I32), param(1, (size,), F32)
    types = (i.type, state.type)
    test = Graph(types, (elementwise(Op.LT, i, scalar(times, I32)),))
    body = Graph(types, (add(i, scalar(1, I32)), add(state, state)))
    return Graph((x.type,), (loop([scalar(0, I32), x], test, body, times)[1],))


@pytest.mark.parametrize(
    "size, times, quick", [(8, 1, True), (100, 1, True), (10_000, 1, False), (8, 1000, False)]
)
def test_what_is_over_soon_is_not_optimised(
    monkeypatch: pytest.MonkeyPatch, size: int, times: int, quick: bool
) -> None:
    monkeypatch.setattr(render, "BRIEF", BRIEF)
    (text,) = module_texts(doubled(size, times), TARGET)
    assert text.startswith(QUICK) == quick


def test_a_search_times_what_is_optimised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "BRIEF", BRIEF)
    program = schedule(doubled(8, 1), "test", (), TARGET)
    kernels = kernels_of(program.body)
    schedules = dict.fromkeys(kernels, NONE)
    _, text = render_program(program, kernels, TARGET, print, schedules=schedules)
    assert not text.startswith(QUICK)


def test_the_end_of_a_program_is_shared_by_two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "LONG_ENOUGH", 1 << 20)
    long = [text for text in module_texts(chain(), TARGET) if not text.startswith(QUICK)]
    assert len(long) == 2
    assert min(map(len, long)) > max(map(len, long)) // 3
    alone = module_texts(chain(), named_target("x86-64-v3", threads=1))
    assert sum(not text.startswith(QUICK) for text in alone) == 1


def test_modules_are_the_same_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache of object code finds them again."""
    monkeypatch.setattr(modules, "LONG_ENOUGH", 1000)
    texts = module_texts(chain(), TARGET)
    assert texts == module_texts(chain(), TARGET)
    assert len(texts) > 1
    assert sum("define i32 @entry" in text for text in texts) == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_kernels_of_several_modules(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.setattr(modules, "LONG_ENOUGH", 1000)
    random = np.random.default_rng(0)
    graph = chain()
    given = [random.standard_normal(p.shape, np.float32) for p in graph.params]
    (got,) = run_native(graph, given, threads)
    (expected,) = run_graph(graph, given)
    np.testing.assert_allclose(got, expected, rtol=1e-4)


LATE = """
import atexit
import numpy as np
from tinyhlo.codegen import modules
from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
modules.LONG_ENOUGH = 1
text = '''func.func public @main(%x: tensor<999x65xf32>, %w: tensor<65x65xf32>)
    -> tensor<999x65xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<999x65xf32>, tensor<65x65xf32>) -> tensor<999x65xf32>
  %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [1]
    : (tensor<999x65xf32>, tensor<65x65xf32>) -> tensor<999x65xf32>
  return %1 : tensor<999x65xf32>
}'''
def late():
    run = compile_module(text, Config(cache=0))
    print(*run(np.ones((999, 65), np.float32), np.eye(65, dtype=np.float32))[0][0, :2])
atexit.register(late)
"""


def test_a_process_that_is_ending_compiles() -> None:
    environment = {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", LATE], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1.0", "1.0"], done.stderr
