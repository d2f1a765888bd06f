"""Whole programs on disk: a second compilation compiles nothing, and a damaged entry is no harm."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tinyhlo import compiler
from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
from tinyhlo.errors import TinyhloError
from tinyhlo.runtime import saved

TEXT = """module @rows attributes {} {
  func.func @main(%x: tensor<3x4xf32>, %w: tensor<4xcomplex<f32>>)
      -> (tensor<3xf32>, tensor<4xcomplex<f32>>) {
    %c = stablehlo.constant dense<[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0], [9.0, 8.0, 7.0, 6.0]]>
      : tensor<3x4xf32>
    %y = stablehlo.multiply %x, %c : tensor<3x4xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %s = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<3x4xf32>, tensor<f32>) -> tensor<3xf32>
    %v = stablehlo.add %w, %w : tensor<4xcomplex<f32>>
    return %s, %v : tensor<3xf32>, tensor<4xcomplex<f32>>
  }
}"""  # noqa: E501
X = np.arange(12, dtype=np.float32).reshape(3, 4)
W = np.array([1, 2j, 3 + 1j, -1], np.complex64)


def compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(compiler, "run_stages", refuse)


def test_a_stored_program_is_the_same_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config(cache_dir=str(tmp_path))
    first = compile_module(TEXT, config)
    with monkeypatch.context() as patch:
        compiles_nothing(patch)
        second = compile_module(TEXT, config)
        for mine, theirs in zip(second(X, W), first(X, W), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    for name in (*saved.PLAIN, "signature", "aliases"):
        assert getattr(second, name) == getattr(first, name)
    for mine, theirs in zip(second.kernels, first.kernels, strict=True):
        assert mine.source == theirs.source
        assert (mine.name, mine.flops) == (theirs.name, theirs.flops)


def test_another_target_is_another_program(tmp_path: Path) -> None:
    config = Config(cache_dir=str(tmp_path))
    compile_module(TEXT, config)
    other = Config(cache_dir=str(tmp_path), cpu="x86-64-v2")
    place = saved.place_of(TEXT, compiler.target_of(other), other)
    assert place is not None
    assert saved.load(place) is None


def test_a_damaged_entry_is_compiled_again(tmp_path: Path) -> None:
    config = Config(cache_dir=str(tmp_path))
    (expected, _) = compile_module(TEXT, config)(X, W)
    (path,) = (tmp_path / "programs").glob("*/*")
    path.write_bytes(path.read_bytes()[:-1])
    np.testing.assert_array_equal(compile_module(TEXT, config)(X, W)[0], expected)


def test_nothing_is_stored_when_stages_are_shown_or_checked() -> None:
    assert saved.place_of(TEXT, compiler.target_of(Config()), Config(cache=0)) is None
    assert saved.place_of(TEXT, compiler.target_of(Config()), Config(debug=2)) is None
    assert saved.place_of(TEXT, compiler.target_of(Config()), Config(verify=1)) is None


def test_programs_that_call_libraries_are_not_stored(tmp_path: Path) -> None:
    text = """func.func @main(%x: tensor<4x4xf64>) -> tensor<4x4xf64> {
      %y = stablehlo.cholesky %x, lower = true : tensor<4x4xf64>
      return %y : tensor<4x4xf64>
    }"""
    compiled = compiler.run_stages(text, Config(cache=0)).compiled
    compile_module(text, Config(cache_dir=str(tmp_path)))
    assert bool(compiled.libraries) != (tmp_path / "programs").exists()


def test_schedules_that_cannot_be_read(tmp_path: Path) -> None:
    config = Config(cache_dir=str(tmp_path), schedules=str(tmp_path))
    with pytest.raises(TinyhloError, match="cannot read the schedules in"):
        compile_module(TEXT, config)
