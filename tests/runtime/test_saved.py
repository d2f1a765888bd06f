"""Whole programs on disk: a second compilation compiles nothing, and a damaged entry is no harm."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tinyhlo
from tinyhlo import compiler
from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
from tinyhlo.errors import TinyhloError
from tinyhlo.runtime import saved
from tinyhlo.runtime.callbacks import Callback

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
LOCATED = """#l = loc("train.py":{}:1)
func.func @main(%x: tensor<3x4xf32>) -> tensor<3x4xf32> {{
  %y = stablehlo.sine %x : tensor<3x4xf32> loc(#l)
  return %y : tensor<3x4xf32>
}}"""
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


def test_code_that_is_brought_along_is_taken_where_it_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By this program, for this processor, of this package; without a cache, too."""
    kept, config = Config(cache_dir=str(tmp_path)), Config(cache=0)
    first = compile_module(TEXT, kept)
    file = Path(first.stored).read_bytes()
    assert compile_module(TEXT, kept).stored == first.stored
    compiles_nothing(monkeypatch)
    with saved.offering(file):
        second = compile_module(TEXT, config)
        for mine, theirs in zip(second(X, W), first(X, W), strict=True):
            np.testing.assert_array_equal(mine, theirs)
        assert not second.stored
    others = {
        "another program": (TEXT.replace("9.0", "9.5"), config, file),
        "another processor": (TEXT, Config(cache=0, cpu="x86-64-v2"), file),
        "stages that are seen": (TEXT, Config(cache=0, verify=1), file),
        "damaged": (TEXT, config, file[:-1]),
        "none": (TEXT, config, b""),
    }
    for name, (text, asked, code) in others.items():
        with saved.offering(code), pytest.raises(AssertionError, match="compiled again"):
            compile_module(text, asked)
            pytest.fail(name)


def test_a_damaged_entry_is_compiled_again(tmp_path: Path) -> None:
    config = Config(cache_dir=str(tmp_path))
    (expected, _) = compile_module(TEXT, config)(X, W)
    entry, link = sorted((tmp_path / "programs").glob("*/*"), key=lambda p: -p.stat().st_size)
    for path in (entry, link):
        path.write_bytes(path.read_bytes()[:-1])
        np.testing.assert_array_equal(compile_module(TEXT, config)(X, W)[0], expected)


def test_where_a_program_stands_in_a_file_is_no_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, form = Config(cache_dir=str(tmp_path)), LOCATED
    (expected,) = compile_module(form.format(3), config)(X)
    stored = len(list((tmp_path / "programs").glob("*/*")))
    compiles_nothing(monkeypatch)
    for _ in range(2):  # by what the program says, then by its bytes
        np.testing.assert_array_equal(compile_module(form.format(4), config)(X)[0], expected)
    assert len(list((tmp_path / "programs").glob("*/*"))) == stored + 1
    with pytest.raises(AssertionError, match="compiled again"):
        compile_module(form.format(4).replace("sine", "cosine"), config)


def test_host_callbacks_are_those_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, x = Config(cache_dir=str(tmp_path)), np.arange(4, dtype=np.float32)
    add, double, sink = (Callback(f) for f in (lambda x: [x + 1], lambda x: [2 * x], lambda x: [x]))
    (found,) = compile_module(calling(add, double), config)(x)
    np.testing.assert_array_equal(found, 2 * (x + 1))
    (stored,) = (tmp_path / "programs").glob(
        "*/*"
    )  # and no link: another process has other numbers
    with monkeypatch.context() as patch:
        compiles_nothing(patch)
        other = compile_module(calling(double, sink), config)
        with pytest.raises(AssertionError, match="compiled again"):
            compile_module(calling(add, add), config)
    assert other.synchronous
    np.testing.assert_array_equal(other(x)[0], 2 * x)
    compile_module(calling(add, add), config)
    assert len(list((tmp_path / "programs").glob("*/*"))) == 2
    assert stored.exists()


def calling(*callbacks: Callback) -> str:
    """A program that calls them one after another."""
    type_ = "tensor<4xf32>"
    lines = [
        f"%{k + 1} = stablehlo.custom_call @tiny.callback(%{k}) {{api_version = 4 : i32, "
        f"mhlo.backend_config = {{id = {callback.number} : ui64}}}} : ({type_}) -> {type_}"
        for k, callback in enumerate(callbacks)
    ]
    body = "\n".join([f"%0 = stablehlo.abs %x : {type_}", *lines])
    return f"func.func @main(%x: {type_}) -> {type_} {{{body} return %{len(lines)} : {type_}}}"


def test_nothing_is_stored_when_stages_are_shown_or_checked() -> None:
    assert saved.place_of(TEXT, compiler.target_of(Config()), Config(cache=0)) is None
    assert saved.place_of(TEXT, compiler.target_of(Config()), Config(debug=2)) is None
    assert saved.place_of(TEXT, compiler.target_of(Config()), Config(verify=1)) is None


def test_programs_that_call_lapack_are_made_again_from_the_names(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((3, 70, 70))
    config = Config(cache_dir=str(tmp_path))
    for function in (jnp.linalg.svd, lambda x: (jnp.linalg.qr(x), jnp.linalg.eigvalsh(x))):
        with jax.enable_x64(True):
            text = jax.jit(function).trace(x).lower(lowering_platforms=("tiny",)).as_text()
        stages, compiled = compiler.compile_stages(text, config)
        assert stages.compiled.libraries
        compile_module(text, config)
        place = saved.place_of(text, compiler.target_of(config), config)
        assert place is not None
        found = saved.load(place)
        assert found is not None and found.synchronous == compiled.synchronous
        assert len(found.constants) == len(compiled.constants)
        for ours, theirs in zip(found(x), compiled(x), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_programs_that_call_users_functions_are_not_stored(tmp_path: Path) -> None:
    text = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %y = stablehlo.custom_call @users(%x) : (tensor<4xf32>) -> tensor<4xf32>
      return %y : tensor<4xf32>
    }"""
    tinyhlo.register_custom_call("users", lambda x: x + 1)
    x = np.arange(4, dtype=np.float32)
    (result,) = compile_module(text, Config(cache_dir=str(tmp_path)))(x)
    np.testing.assert_array_equal(result, x + 1)
    assert not (tmp_path / "programs").exists()


def test_what_jaxlib_has_no_more_is_compiled_again(tmp_path: Path) -> None:
    record = ["lapack_of_another_version", {"uplo": ["uint8", 76]}, [], [], [], 4]
    assert saved.library_of(record, ()) is None


def test_schedules_that_cannot_be_read(tmp_path: Path) -> None:
    config = Config(cache_dir=str(tmp_path), schedules=str(tmp_path))
    with pytest.raises(TinyhloError, match="cannot read the schedules in"):
        compile_module(TEXT, config)


def test_files_that_programs_depend_on() -> None:
    """Those in C too: programs call what is in them."""
    names = {path.name for path in saved.package_files()}
    assert {"compiler.py", "threads.c", "device.h"} < names
