"""Copies of all sorts run in lanes: padded, joined, reversed, cut out at a place known late."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tinyhlo.compiler import run_stages
from tinyhlo.config import Config
from tinyhlo.runtime.compile import Compiled
from tinyhlo.runtime.host import native

CONFIG = Config(cache=False)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def loops_of(function, *arguments: np.ndarray) -> str:  # type: ignore[no-untyped-def]
    """The loops of a program, its results held against XLA's."""
    return "\n".join(map(str, compiled(function, *arguments).loops))


def compiled(function, *arguments: np.ndarray) -> Compiled:  # type: ignore[no-untyped-def]
    """The code of a program, its results held against XLA's."""
    jitted = jax.jit(function)
    stages = run_stages(jitted.lower(*arguments).as_text(), CONFIG)
    results = native(stages.module, stages.program, stages.compiled, CONFIG)(*arguments)
    expected = jax.tree.leaves(jitted(*arguments))
    for found, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    return stages.compiled


@pytest.mark.parametrize(
    "widths", [((3, 3), (3, 3)), ((0, 5), (70, 0)), ((-2, 1), (1, -3)), ((100, 0), (0, 0))]
)
def test_padding_is_stored_in_lanes(widths) -> None:  # type: ignore[no-untyped-def]
    amounts = [(low, high, 0) for low, high in widths]
    assert "vector" in loops_of(lambda x: lax.pad(x, np.float32(2), amounts), normal(90, 130))


def test_padding_of_three_axes() -> None:
    amounts = [(1, 1, 0), (2, 0, 0), (0, 9, 0)]
    assert "vector" in loops_of(lambda x: lax.pad(x, np.float32(0), amounts) * 2, normal(9, 31, 65))


def test_padding_between_elements_keeps_its_conditions() -> None:
    text = loops_of(lambda x: lax.pad(x, np.float32(0), [(1, 1, 1), (2, 2, 0)]), normal(60, 90))
    assert " ? " in text


def test_many_pieces_are_stored_one_by_one() -> None:
    x, pieces = normal(700), [normal(n) for n in (64, 300, 128, 65) * 12]
    text = loops_of(lambda x: jnp.stack([x[k : k + 600] for k in range(50)], -1), x)
    assert "where" not in text and text.count(" in 600") == 1
    assert "where" not in loops_of(lambda *pieces: jnp.concatenate(pieces), *pieces)


def test_borders_of_small_images_are_copied_apart() -> None:
    """Rows of 32 pixels of three bytes hold enough to pay for a loop, though 32 alone do not."""

    def wrapped(x: jax.Array) -> jax.Array:
        return jnp.pad(x, ((0, 0), (4, 4), (4, 4), (0, 0)), mode="wrap")

    text = loops_of(wrapped, normal(8, 32, 32, 3))
    assert "where" not in text and " in 96 vector" in text


def test_reversed_rows_run_in_lanes() -> None:
    assert "vector" in loops_of(lambda x: x[:, ::-1], normal(50, 200))


def test_a_block_at_a_place_known_late_is_copied_in_lanes() -> None:
    def block(x: jax.Array, k: jax.Array) -> jax.Array:
        return lax.dynamic_slice(x, (k, k + 1), (40, 90))

    for start in (-300, 3, 1000):
        assert "vector" in loops_of(block, normal(60, 100), np.int32(start))


def test_windows_over_one_border_share_its_loops() -> None:
    """Each of 49 windows crosses the border elsewhere; a body for each place would be long."""

    def windows(x: jax.Array) -> jax.Array:
        around = jnp.pad(x, 3, mode="reflect")
        rows, columns = x.shape
        shifted = [around[i : i + rows, j : j + columns] for i in range(7) for j in range(7)]
        far = [jnp.abs(jnp.where(y < x, y - x, 2 * y)) for y in shifted]
        return functools.reduce(jnp.maximum, far)

    text = loops_of(windows, normal(90, 200))
    assert text.count("max(") < 49 * 15


def test_each_of_a_hundred_joined_arrays_has_a_loop_of_its_own() -> None:
    parts = [normal(40 + i) for i in range(100)]
    assert loops_of(lambda *parts: jnp.concatenate(parts), *parts).count("for ") == 100


def test_a_border_of_a_square_runs_along_its_row() -> None:
    text = loops_of(
        lambda x: jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + jnp.roll(x, 1, 1), normal(90, 90)
    )
    assert "for i1 in 89 vector" in text


def test_a_sum_over_a_stack_is_the_sum_of_its_parts() -> None:
    """Each part with its own formula, no choice by the number of the part."""
    x = np.arange(3 * 200, dtype=np.float32).reshape(3, 200)
    text = loops_of(lambda x: jnp.stack([x[0], 2 * x[1], x[2] - x[0]]).max(0), x)
    assert "where" not in text and "reduce" not in text.split("\n", 1)[1], text


def test_parts_of_a_stack_are_cut_where_they_are_joined() -> None:
    """A sum of rolls has loops of its own along the borders, and no choice inside."""
    x = np.arange(2 * 100 * 130, dtype=np.float32).reshape(2, 100, 130)

    def f(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        rolls = jnp.stack([jnp.roll(x[0], 1, 0), jnp.roll(x[1], (-1, 1), (0, 1))])
        return rolls, rolls.sum(0)

    text = loops_of(f, x)
    assert "where" not in text and "for i in 98:" in text and " in 129 vector" in text, text


@pytest.mark.parametrize("shape", [(600, 700), (3, 200_000)])
def test_a_sum_of_parts_is_one_on_all_threads(shape: tuple[int, ...]) -> None:
    """Borders are added to the same register as the inside, before its strips and behind them."""
    x = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)

    def f(x: jax.Array) -> jax.Array:
        return (x * (jnp.roll(x, 1, 0) + jnp.roll(x, 2, 1))).sum()

    assert "parallel" in loops_of(f, x)


@pytest.mark.parametrize("rows", [1, 90], ids=["a choice of all", "one of each row"])
@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_of_two_arrays_only_the_chosen_one_is_read(dtype: type, rows: int) -> None:
    x, y = (each.astype(dtype) for each in (normal(90, 130), normal(130, 90).T * 3))
    choices = normal(rows, 1) > 0
    for choice in (choices, ~choices):
        code = compiled(lambda c, x, y: jnp.where(c, x, y), choice, x, y)
        (module,) = code.modules
        assert ", ptr %" in module.split("select i1 %")[1] and " x i1>" not in module


@pytest.mark.parametrize("shape", [(64, 8), (8, 16), (4, 300), (33, 33)])
def test_a_choice_for_each_lane_is_known_before_a_reduce(shape: tuple[int, int]) -> None:
    x, y, c = normal(*shape), normal(*shape) * 3, normal(shape[1]) > 0
    compiled(lambda c, x, y: jnp.where(c, x, y).max(0), c, x, y)
    compiled(lambda x, y: jnp.where(jnp.arange(shape[1]) == 2, x, y).max(0), x, y)


def test_a_choice_between_arrays_that_changes_in_a_loop() -> None:
    def chosen(c: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        def turn(k: jax.Array, z: jax.Array) -> jax.Array:
            return z + jnp.where(c[k], x, y) - jnp.where(c[k + 1], x, y)

        return lax.fori_loop(0, 8, turn, jnp.zeros_like(x))

    compiled(chosen, normal(9) > 0, normal(90), normal(90) * 3)
