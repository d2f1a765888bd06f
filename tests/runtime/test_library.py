"""Library calls: through the interpreter, through generated code, and what happens on errors."""

from __future__ import annotations

import contextlib
import gc
import weakref

import numpy as np
import pytest

from tests.codegen.native import compiled, run_native
from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
from tinyhlo.errors import ExecutionError, UnsupportedOp
from tinyhlo.ir.build import elementwise, library_call, param
from tinyhlo.ir.dtypes import F32
from tinyhlo.ir.graph import Graph, TensorType
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.library import REGISTRY, Call, Library, python_call

MATRIX = TensorType((3, 4), F32)


@pytest.fixture
def register():
    """Add a Python function to the registry, for one test."""
    before = dict(REGISTRY)

    def add(name, function):
        def make(call: Call) -> Library:
            return python_call(function, call.operands, call.results)

        REGISTRY[name] = make

    yield add
    REGISTRY.clear()
    REGISTRY.update(before)


def sum_and_difference() -> Graph:
    x, y = param(0, (3, 4), F32), param(1, (3, 4), F32)
    first, second = library_call("both", (x, elementwise(Op.MUL, x, y)), (MATRIX, MATRIX))
    return Graph((MATRIX, MATRIX), (second, elementwise(Op.ADD, first, x)))


def test_python_function(register) -> None:
    register("both", lambda arrays: [arrays[0] + arrays[1], arrays[0] - arrays[1]])
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    y = x + 1
    for run in (run_graph, run_native):
        difference, total = run(sum_and_difference(), [x, y])
        np.testing.assert_array_equal(difference, x - x * y)
        np.testing.assert_array_equal(total, x + x * y + x)


def test_error_of_a_python_function_ends_the_program(register) -> None:
    def fails(arrays):
        raise ValueError("no such value")

    register("both", fails)
    x = np.ones((3, 4), np.float32)
    for run in (run_graph, run_native):
        with pytest.raises(ExecutionError, match="no such value") as caught:
            run(sum_and_difference(), [x, x])
        assert isinstance(caught.value.__cause__, ValueError)


class Unspeakable(Exception):
    @property
    def __notes__(self):  # read when its traceback is written
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no file \udce9.txt"), r"no file \\udce9\.txt"),
        (Unspeakable(), "a Python function failed"),
    ],
)
def test_errors_that_are_hard_to_say(register, error: Exception, said: str) -> None:
    def fails(arrays):
        raise error

    register("both", fails)
    x = np.ones((3, 4), np.float32)
    for run in (run_graph, run_native):
        with pytest.raises(ExecutionError, match=said):
            run(sum_and_difference(), [x, x])


def test_what_a_failed_function_held_goes_with_the_error(register) -> None:
    held: list[weakref.ref[np.ndarray]] = []

    def fails(arrays):
        large = np.ones(1000)
        held.append(weakref.ref(large))
        raise ValueError

    register("both", fails)
    x = np.ones((3, 4), np.float32)
    for run in (run_graph, run_native):
        with contextlib.suppress(ExecutionError):
            run(sum_and_difference(), [x, x])
    gc.collect()
    assert [each() for each in held] == [None, None]


def test_wrong_results_are_refused(register) -> None:
    register("both", lambda arrays: [arrays[0], arrays[1].astype(np.float64)])
    x = np.ones((3, 4), np.float32)
    with pytest.raises(ExecutionError, match=r"result 1 must be f32\[3,4\]"):
        run_native(sum_and_difference(), [x, x])


def test_unknown_name() -> None:
    with pytest.raises(UnsupportedOp, match="no function of that name"):
        run_native(sum_and_difference(), [np.ones((3, 4), np.float32)] * 2)


def test_a_name_of_lapack_that_a_user_registers(register, tmp_path) -> None:
    """Is called even where small matrices are loops otherwise, and such loops are not loaded."""
    text = """func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
      %y = stablehlo.cholesky %x, lower = true : tensor<4x4xf32>
      return %y : tensor<4x4xf32>
    }"""
    matrix, config = 4 * np.eye(4, dtype=np.float32), Config(cache_dir=str(tmp_path))
    np.testing.assert_allclose(compile_module(text, config)(matrix)[0], np.sqrt(matrix))
    register("lapack_spotrf_ffi", lambda arrays: [3 * arrays[0], np.int32(0)])
    np.testing.assert_array_equal(compile_module(text, config)(matrix)[0], 3 * matrix)


def test_code_holds_no_address(register) -> None:
    """The cache of object code stays valid whatever the descriptor's address is."""
    register("both", lambda arrays: arrays)
    assert compiled(sum_and_difference()).modules == compiled(sum_and_difference()).modules
    assert "inttoptr" not in "".join(compiled(sum_and_difference()).modules)
