"""Denormal numbers: kept, or zero where TINYHLO_FLUSH asks for that; in all threads alike."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tinyhlo.cli import main
from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
from tinyhlo.errors import TinyhloError
from tinyhlo.ir.elements import SMALL_FLOATS
from tinyhlo.runtime import c_compiler, core
from tinyhlo.runtime.processors import cpu_target

KEPT, FLUSHED = Config(cache=0), Config(cache=0, flush=1)
LEAST = np.finfo(np.float32).tiny  # the smallest number that is not denormal
DENORMAL = np.full(4 << 20, LEAST, np.float32)  # halved


def run(config: Config, function: Any, *arguments: np.ndarray) -> Any:
    (found,) = compile_module(jax.jit(function).lower(*arguments).as_text(), config)(*arguments)
    return found


@contextmanager
def flushing(flush: bool) -> Iterator[None]:
    """What this thread does meanwhile."""
    before = core.library().tiny_flush_denormals(0xFFFFFFFF if flush else 0)
    try:
        yield
    finally:
        core.library().tiny_flush_denormals(before)


def flushes() -> bool:
    """What this thread does."""
    before = core.library().tiny_flush_denormals(0)
    core.library().tiny_flush_denormals(before)
    return before != 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64, jnp.bfloat16])
def test_kept_unless_asked(dtype: Any) -> None:
    with jax.enable_x64(True):
        x = np.full(100, jnp.finfo(dtype).tiny, dtype)
        text = jax.jit(lambda x: x * 0.5 * 2).lower(x).as_text()
        np.testing.assert_array_equal(compile_module(text, KEPT)(x)[0], x)
        np.testing.assert_array_equal(compile_module(text, FLUSHED)(x)[0], 0 * x)


def test_option_of_one_function() -> None:
    x = np.full(8, LEAST, np.float32)
    half = jax.jit(lambda x: x * 0.5, compiler_options={"tinyhlo_flush": "1"})
    kept = jax.jit(lambda x: x * 0.5)
    given = jax.device_put(x, jax.devices("tiny")[0])
    assert not np.asarray(half(given)).any()
    np.testing.assert_array_equal(np.asarray(kept(given)), x / 2)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_all_threads_do_the_same(threads: int) -> None:
    core.set_threads(threads)
    try:
        assert not run(FLUSHED, lambda x: x * 0.5, DENORMAL).any()
        assert run(KEPT, lambda x: x * 0.5, DENORMAL).all()
        assert not run(FLUSHED, lambda x: x * 0.5, DENORMAL).any()
    finally:
        core.set_threads(0)


def test_workers_do_as_the_caller() -> None:
    seen: list[bool] = []
    body = core.BODY(lambda context, begin, end: seen.append(flushes()))
    core.set_threads(4)
    try:
        for flush in (True, False, True):
            seen.clear()
            with flushing(flush):
                core.library().tiny_parallel(body, None, 1000, 4)
                assert flushes() == flush
            assert set(seen) == {flush}
    finally:
        core.set_threads(0)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="others have one mode")
def test_half_a_mode_is_kept() -> None:
    """Results are flushed, operands are not: as who calls had it, workers do and it is after."""
    results_alone = 1 << 15
    with flushing(False):
        core.library().tiny_flush_denormals(results_alone)
        run(FLUSHED, lambda x: x * 0.5, DENORMAL)
        assert not run(KEPT, lambda x: x * 0.5, DENORMAL).any()
        assert core.library().tiny_flush_denormals(0) == results_alone


def test_caller_and_callbacks_are_left_alone() -> None:
    seen: list[bool] = []

    def look(x: np.ndarray) -> np.ndarray:
        seen.append(flushes())
        return np.asarray(x)

    def program(x: jax.Array) -> jax.Array:
        return jax.pure_callback(look, x, x * 2) * 0.25

    given = jax.device_put(np.full(8, LEAST, np.float32), jax.devices("tiny")[0])
    compiled = jax.jit(program).lower(given).compile({"tinyhlo_flush": "1"})
    assert not np.asarray(compiled(given)).any()
    assert seen == [False] and not flushes()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors do not remember it")
@pytest.mark.parametrize(("given", "config", "slow"), [
    (1, KEPT, False), (LEAST / 2, KEPT, True), (LEAST / 2, FLUSHED, False)
])  # fmt: skip
def test_who_looks_at_kernels_is_told(
    given: float, config: Config, slow: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    run(replace(config, debug=2), lambda x: x * 0.5, np.full(4 << 20, given, np.float32))
    assert (
        "denormal numbers: slow on some processors; TINYHLO_FLUSH=1" in capfd.readouterr().err
    ) == slow


HIDDEN = np.array([-np.inf, -1e9, -1e4, np.finfo(np.float32).min, 0, 1.5, -3, 2], np.float32)
SMALL = np.array([1e-9, -1e-12, 0, 1e-17, -0.25, 1, -1e-10, 1e-13], np.float32)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors do not remember it")
@pytest.mark.parametrize("cpu", ["", "x86-64-v3"])
@pytest.mark.parametrize(("function", "given"), [
    (jnp.exp, HIDDEN),
    (jax.nn.softmax, HIDDEN),
    (jnp.expm1, SMALL),
    (jnp.log1p, SMALL),
    (jax.nn.elu, SMALL),
    (lambda x: x.astype(jnp.float8_e4m3fn), SMALL),
])  # fmt: skip
def test_none_on_the_way(function: Any, given: np.ndarray, cpu: str) -> None:
    """Where neither arguments nor results are denormal, nothing between them is."""
    given = np.tile(given, 100)
    try:
        program = compile_module(jax.jit(function).lower(given).as_text(), replace(KEPT, cpu=cpu))
    except TinyhloError as error:
        pytest.skip(str(error))
    core.library().tiny_met_denormals()
    (found,) = program(given)
    assert not core.library().tiny_met_denormals()
    expected = function(jax.device_put(given, jax.devices("cpu")[0]))
    np.testing.assert_allclose(found.astype(np.float32), expected.astype(np.float32), rtol=1e-6)


def exponents(dtype: Any, size: int) -> np.ndarray:
    """From where results begin to be denormal to where the last one is rounded to zero."""
    info = np.finfo(dtype)
    low, high = np.log(info.smallest_subnormal) - 1, np.log(info.tiny) + 0.1
    return np.linspace(low, high, size, dtype=dtype)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors do not remember it")
@pytest.mark.parametrize("cpu", ["", "x86-64-v3"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 7, 16, 333, 4096])
def test_denormal_powers_without_denormal_arithmetic(dtype: Any, size: int, cpu: str) -> None:
    """exp rounds them once, and no instruction meets them where that is slow; what lies beside them
    is left alone."""
    with jax.enable_x64(True):
        given = exponents(dtype, size)
        given[3::50] = 1.5
        text = jax.jit(jnp.exp).lower(given).as_text()
        try:
            program = compile_module(text, replace(KEPT, cpu=cpu))
        except TinyhloError as error:
            pytest.skip(str(error))
        core.library().tiny_met_denormals()
        (found,) = program(given)
        assert not (core.library().tiny_met_denormals() and cpu_target(cpu, 1).slow_denormals)
        wanted = np.exp(given.astype(np.longdouble))
        unit = np.maximum(np.spacing(wanted.astype(dtype)), np.finfo(dtype).smallest_subnormal)
        assert np.max(np.abs(found - wanted) / unit) < 1


def test_denormal_powers_beside_what_is_none() -> None:
    """Of several registers that are asked at once."""
    random = np.random.default_rng(0)
    special = np.array([0, -87, -87.33654, -88, -103, -104, -1e9, -np.inf, np.nan, np.inf, 89])
    given = random.choice(special, 5000).astype(np.float32)
    with np.errstate(over="ignore"):
        wanted = np.exp(given.astype(np.float64)).astype(np.float32)
    found = run(KEPT, jnp.exp, given)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-45)


def test_what_lies_beside_a_sum_of_powers_is_kept() -> None:
    """In one kernel."""
    x = np.full((300, 512), LEAST, np.float32)
    text = jax.jit(lambda x: (jnp.exp(x).sum(-1), x.max(-1) * 0.5)).lower(x).as_text()
    total, half = compile_module(text, KEPT)(x)
    np.testing.assert_array_equal(total, 512)
    np.testing.assert_array_equal(half, x[:, 0] / 2)


def attention(x: jax.Array, values: jax.Array) -> jax.Array:
    return jax.nn.softmax(x, -1) @ values


def test_probabilities_are_kept_and_products_with_them_are_not() -> None:
    x = np.random.default_rng(0).standard_normal((300, 512)).astype(np.float32) * 30
    shifted = x.astype(np.float64) - x.max(-1, keepdims=True)
    wanted = np.exp(shifted) / np.exp(shifted).sum(-1, keepdims=True)
    found = run(KEPT, jax.nn.softmax, x)
    denormal = (wanted < LEAST) & (wanted > 1e-44)
    assert denormal.sum() > 1000 and found[denormal].all()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-43)
    values = np.ones((512, 128), np.float32)
    np.testing.assert_allclose(run(KEPT, attention, x, values), 1, rtol=1e-6)
    assert not flushes()


@pytest.mark.parametrize("dtype", SMALL_FLOATS, ids=str)
def test_small_floats_pass_no_denormal_numbers(dtype: Any) -> None:
    """Theirs are ordinary numbers of float32."""
    x = np.arange(1 << dtype.bits, dtype=np.uint8).view(dtype.numpy)
    wide = x.astype(np.float32)
    np.testing.assert_array_equal(run(FLUSHED, lambda x: x.astype(jnp.float32), x), wide)
    x = ((wide[1:] + wide[:-1]) / 2)[np.isfinite(wide[1:] + wide[:-1])]
    x = x[~(np.abs(x) < LEAST) | (x == 0)]  # f8E8M0FNU has those
    kept, flushed = (run(each, lambda x: x.astype(dtype.numpy), x) for each in (KEPT, FLUSHED))
    np.testing.assert_array_equal(kept.view(np.uint8), flushed.view(np.uint8))


@pytest.mark.skipif(c_compiler.found() is None, reason="no C compiler")
def test_library_flushes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYHLO_FLUSH", "1")
    (tmp_path / "half.mlir").write_text(jax.jit(lambda x: x * 0.5).lower(DENORMAL).as_text())
    assert main(["build", str(tmp_path / "half.mlir"), "--out", str(tmp_path / "libhalf.so")]) == 0
    library, found = ctypes.CDLL(str(tmp_path / "libhalf.so")), np.ones_like(DENORMAL)
    library.half_threads(2)
    assert library.half(*(ctypes.c_void_p(each.ctypes.data) for each in (DENORMAL, found))) == 0
    assert not found.any() and not flushes()
