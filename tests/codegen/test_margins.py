"""Rows of a few elements that are copied: padded, joined, repeated. No element asks for bounds, and
what fills no vector is one that overlaps."""

from __future__ import annotations

import platform
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tinyhlo.compiler import Stages, run_stages
from tinyhlo.config import Config
from tinyhlo.runtime.host import native

Program = Callable[..., jax.Array]


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, 100, shape).astype(dtype)


def stages_of(program: Program, *given: np.ndarray) -> Stages:
    text = jax.jit(program, keep_unused=True).lower(*given).as_text()
    return run_stages(text, Config(cache=False))


def check(program: Program, *given: np.ndarray) -> str:
    """Compare with XLA; returns the loops."""
    stages = stages_of(program, *given)
    (found,) = native(stages.module, stages.program, stages.compiled, Config())(*given)
    np.testing.assert_array_equal(found, jax.jit(program)(*given))
    return "\n".join(map(str, stages.compiled.loops))


PADS = [
    ((40, 16, 5, 5), ((2, 3), (1, 3), (1, 2), (1, 0))),
    ((1, 3, 396, 29), ((2, 2), (3, 3), (1, 2), (2, 1))),
    ((30, 1, 40, 7), ((0, 0), (4, 4), (0, 1), (0, 0))),
    ((3000, 3), ((0, 5), (1, 1))),
    ((5000,), ((7, 9),)),
    ((70, 60), ((-3, 4), (5, -2))),  # takes away on one side
]


@pytest.mark.parametrize("dtype", ["int8", "bool", "float16", "float32"])
@pytest.mark.parametrize(("shape", "widths"), PADS, ids=str)
def test_pads(shape: tuple[int, ...], widths: tuple[tuple[int, int], ...], dtype: str) -> None:
    def pad(x: jax.Array) -> jax.Array:
        return jax.lax.pad(x, jnp.array(1, x.dtype), [(low, high, 0) for low, high in widths])

    loops = check(pad, numbers(*shape, dtype=dtype))
    assert "margins" in loops and "?" not in loops, loops


def test_what_is_left_alone() -> None:
    """What is computed, spread out, or small."""
    for program, given in (
        (lambda x: jnp.pad(x, 3) * 2, numbers(90, 70)),
        (lambda x: jax.lax.pad(x, np.float32(0), [(1, 1, 1), (2, 0, 2)]), numbers(90, 70)),
        (lambda x: jnp.pad(x, 1), numbers(10, 10)),
    ):
        assert "margins" not in check(program, given)


def test_threads_share_what_few_loops_are_around() -> None:
    """Three planes for two threads: their rows are cut instead."""
    loops = check(lambda x: jnp.pad(x, ((0, 0), (1, 1), (2, 1))), numbers(3, 2000, 60))
    assert "for jk_piece" in loops or "for ij_piece" in loops, loops


@pytest.mark.parametrize("dtype", ["uint8", "bool", "int16", "float32", "complex64"])
@pytest.mark.parametrize("width", [3, 5, 8, 12, 14, 31, 33])
def test_rows(width: int, dtype: str) -> None:
    x, y = numbers(300, width, dtype=dtype), numbers(301, width, dtype=dtype)[1:]
    for program in (
        lambda x, y: jnp.stack([x, y], 1),
        lambda x, y: jnp.concatenate([x, y[:, :2], y], 1),
        lambda x, y: (jnp.repeat(x, 3, 0), jnp.tile(y, (1, 3)))[width % 2],
        lambda x, y: jnp.where(y[:, :1] == 0, x, y),
    ):
        check(program, x, y)


def test_short_rows_are_vectors() -> None:
    x = numbers(300, 12, dtype="uint8")
    assert "for k in 12 vector 8" in check(lambda x: jnp.repeat(x, 3, 0), x)
    loops = check(lambda x: jnp.concatenate([x, x + 1], 1)[:, :24], x)
    assert "vector" in loops


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_halves_that_vectors_fill(dtype: str) -> None:
    """Rotary positions: both halves of a row are stored by one loop, from the same loads."""

    def turned(x: jax.Array, c: jax.Array, s: jax.Array) -> jax.Array:
        a, b = x[..., :16], x[..., 16:]
        return jnp.concatenate([a * c - b * s, a * s + b * c], -1)

    x, c, s = (numbers(60, n, dtype=dtype) for n in (32, 16, 16))
    loops = check(turned, x, c, s)
    assert loops.count("for ") == 2 and "where" not in loops and "?" not in loops, loops


def test_ends_of_a_row_that_are_computed_otherwise() -> None:
    """As a real transform's first and last number: no element of the others asks for them."""

    def ends(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.concatenate([x[:, :1] + y[:, :1], x[:, 1:] * y[:, ::-1][:, :-1], x[:, :1]], 1)

    loops = check(ends, numbers(60, 32), numbers(60, 32) + 1)
    assert "for j in 31 vector" in loops and "where" not in loops, loops


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("width", [3, 4, 5, 12, 31])
def test_rows_at_places_that_are_data(width: int, dtype: str) -> None:
    """A row of them is copied as a row, also where one that is none would be a filler."""
    x = numbers(900, width, dtype=dtype)
    places = np.random.default_rng(0).integers(-901, 905, 3000).astype("int32")
    taken = check(lambda x, places: jnp.take(x, places, axis=0), x, places)
    clipped = check(lambda x, places: x.at[places].get(mode="clip"), x, places)
    if width * x.itemsize >= 20:
        assert "[vector j" in taken and "[vector j" in clipped


@pytest.mark.skipif(platform.machine() != "x86_64", reason="code for x86")
@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3", ""])
def test_lanes_that_are_known_to_be_off(cpu: str, dtype: str) -> None:
    """A row in two registers, nothing of which the second one holds: LLVM 22 loads it for AVX2."""
    x, config = numbers(32, 7, dtype=dtype) + 1, Config(cpu=cpu, cache=False)

    def row_and_more(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        padded = jnp.pad(x, ((5, 12), (1, 8)))
        return padded, padded[:1] * 2

    for program in (row_and_more, lambda x: jnp.pad(x, ((5, 12), (1, 8))) * 3):
        stages = run_stages(jax.jit(program).lower(x).as_text(), config)
        found = native(stages.module, stages.program, stages.compiled, config)(x)
        for got, wanted in zip(found, jax.tree.leaves(jax.jit(program)(x)), strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_two_vectors_need_no_loop() -> None:
    x = numbers(40, 2000, 5)
    stages = stages_of(lambda x: jnp.transpose(x, (1, 0, 2)), x)
    assert "for k in 5 vector 4" in str(stages.compiled.loops[0])
    text = "".join(stages.compiled.modules)
    assert text.count("load <4 x float>") == 2, text


@pytest.mark.parametrize("width", [1, 2, 3])
def test_rows_of_complex_numbers(width: int) -> None:
    x = numbers(49, 160, width, dtype="complex64")
    x.imag = numbers(49, 160, width) + 1
    check(lambda x: jnp.transpose(x, (1, 0, 2)), x)
