"""Loading files and calling them: what is wrong ends in one clear error."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyhlo
from tests.memory import memory_stats
from tinyhlo.cli import main
from tinyhlo.config import Config
from tinyhlo.errors import ExecutionError, InvalidProgram, UnsupportedOp
from tinyhlo.runtime import core

ONE = np.ones((), np.float32)
NEGATE = """func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %y = stablehlo.negate %x : tensor<2x3xf32> return %y : tensor<2x3xf32> }"""
HUGE = """func.func @main(%x: tensor<f32>) -> tensor<{type}> {{
  %y = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<{type}>
  return %y : tensor<{type}> }}"""


def load(tmp_path: Path, text: str | bytes) -> Any:
    path = tmp_path / "program.mlir"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return tinyhlo.load(path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "expected 1 arguments, got 0"),
        ((ONE, ONE), "expected 1 arguments, got 2"),
        ((np.ones((3, 2), np.float32),), r"argument 0 must be f32\[2,3\], got f32\[3,2\]$"),
        (
            (np.ones((2, 3)),),
            r"argument 0 must be f32\[2,3\], got f64\[2,3\]: convert it to float32",
        ),
        (("text",), "argument 0 must be"),
        ((None,), "argument 0 must be"),
        (([[1, 2], [3]],), "argument 0 is no array"),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: tuple[Any, ...], message: str) -> None:
    program = load(tmp_path, NEGATE)
    with pytest.raises(ExecutionError, match=message):
        program(*arguments)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InvalidProgram, match="No such file"):
        tinyhlo.load(tmp_path / "absent")
    with pytest.raises(InvalidProgram, match="Is a directory"):
        tinyhlo.load(tmp_path)
    with pytest.raises(InvalidProgram, match="the program is empty"):
        load(tmp_path, b"")
    with pytest.raises(InvalidProgram, match="neither StableHLO text"):
        load(tmp_path, b"\xff" * 100)


def test_sizes_that_no_number_counts(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOp, match="no machine holds it"):
        load(tmp_path, HUGE.format(type="1073741824x1073741824x1024xf32"))


@pytest.mark.parametrize("type_", ["1073741824x1024xf32", "1073741824x65536xf32"])
def test_more_than_memory(tmp_path: Path, type_: str) -> None:
    program = load(tmp_path, HUGE.format(type=type_))
    with pytest.raises(ExecutionError, match="out of memory for"):
        program(ONE)


def test_more_than_memory_between(tmp_path: Path) -> None:
    """Scratch that cannot be had is as clear an error as results."""
    program = load(
        tmp_path,
        """func.func @main(%x: tensor<f32>) -> tensor<f32> {
          %y = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<1073741824x99xf32>
          %z = "stablehlo.sort"(%y) <{dimension = 1 : i64, is_stable = true}> ({
            ^bb0(%a: tensor<f32>, %b: tensor<f32>):
              %c = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
              stablehlo.return %c : tensor<i1> })
            : (tensor<1073741824x99xf32>) -> tensor<1073741824x99xf32>
          %zero = stablehlo.constant dense<0.0> : tensor<f32>
          %r = stablehlo.reduce(%z init: %zero) applies stablehlo.add across dimensions = [0, 1]
            : (tensor<1073741824x99xf32>, tensor<f32>) -> tensor<f32>
          return %r : tensor<f32> }""",
    )
    with pytest.raises(ExecutionError, match="out of memory for"):
        program(ONE)


def test_a_failing_call_leaks_nothing(tmp_path: Path) -> None:
    program = load(tmp_path, NEGATE)
    program(np.ones((2, 3), np.float32))
    gc.collect()
    before = memory_stats().bytes_in_use
    for _ in range(100):
        with pytest.raises(ExecutionError):
            program(np.ones((2, 4), np.float32))
    gc.collect()
    assert memory_stats().bytes_in_use == before


@pytest.fixture
def pool() -> Iterator[Any]:
    """How many threads the pool has; as many as before when the test is over."""
    count = core.library().tiny_thread_count
    before = count()
    yield count
    core.set_threads(before)


def test_the_pool_has_as_many_threads_as_are_asked_for(
    pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINYHLO_THREADS", "5")
    load(tmp_path, NEGATE)
    assert pool() == 5
    tinyhlo.load(tmp_path / "program.mlir", Config(threads=3))
    assert pool() == 3
    assert main(["tune", str(tmp_path / "program.mlir"), "--out", str(tmp_path / "found")]) == 0
    assert pool() == 5
    monkeypatch.delenv("TINYHLO_THREADS")
    load(tmp_path, NEGATE)
    assert pool() == core.library().tiny_core_count()
