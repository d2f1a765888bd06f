"""Kernels of a few elements are straight-line code; a loop around them touches no memory."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tinyhlo.codegen.loops import Loop
from tinyhlo.compiler import run_stages
from tinyhlo.config import Config
from tinyhlo.runtime.host import native


def lorenz(y: jax.Array) -> jax.Array:
    return jnp.stack([10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])


def simulate(y: jax.Array) -> tuple[jax.Array, jax.Array]:
    def step(y: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        y = y + 0.01 * lorenz(y + 0.005 * lorenz(y))
        return y, y

    return jax.lax.scan(step, y, None, length=20)


def test_a_step_of_a_simulation_is_straight_line_code() -> None:
    start = np.ones(3, np.float32)
    stages = run_stages(jax.jit(simulate).lower(start).as_text(), Config(cache=False))
    steps = [loops for loops in stages.compiled.loops if any("write out" in m for m in loops.moves)]
    assert steps
    for loops in steps:
        assert not any(isinstance(statement, Loop) for statement in loops.body)
        assert "if" not in str(loops)


@pytest.mark.parametrize("shape", [(2, 3), (3, 3), (5,), (2, 2, 2)])
def test_small_shapes(shape: tuple[int, ...]) -> None:
    """Reduces, products, concatenations and padding, all written out."""

    def program(x: jax.Array) -> tuple[jax.Array, ...]:
        flat = x.reshape(shape[0], -1)
        return (
            flat @ flat.T,
            flat.sum(0),
            flat.max(),
            jnp.concatenate([x, -x]),
            jnp.pad(x, 1),
            jnp.flip(x, 0),
            jnp.argmax(flat, 1),
        )

    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    text = jax.jit(program).lower(x).as_text()
    stages = run_stages(text, Config(cache=False))
    results = native(stages.module, stages.program, stages.compiled, Config())(x)
    for found, expected in zip(results, jax.jit(program)(x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_every_element_of_a_written_out_product_has_its_own_sum(size: int) -> None:
    """Stores come last, so no two rows may share a register."""
    shape = (257, size, size)
    left, right = np.random.default_rng(size).standard_normal((2, *shape)).astype(np.float32)
    text = jax.jit(jnp.matmul).lower(left, right).as_text()
    stages = run_stages(text, Config(cache=False))
    (product,) = native(stages.module, stages.program, stages.compiled, Config())(left, right)
    np.testing.assert_allclose(product, left @ right, rtol=1e-5, atol=1e-5)


def test_long_sums_of_products_stay_loops_where_lanes_run_beside_them() -> None:
    """The commutators of small complex matrices: 16 times seventy operations fill no vectors that
    they would not fill as a loop."""

    def commutators(*planes: jax.Array) -> tuple[jax.Array, jax.Array]:
        x, y, z = (jax.lax.complex(*planes[k : k + 2]) for k in (0, 2, 4))
        result = x @ z - z @ x + y @ z - z @ y + x @ y.T - y.T @ x
        return result.real, result.imag

    planes = np.random.default_rng(0).standard_normal((6, 16, 16)).astype(np.float32)
    stages = run_stages(jax.jit(commutators).lower(*planes).as_text(), Config(cache=False))
    moves = [move for loops in stages.compiled.loops for move in loops.moves]
    assert any("vector" in move for move in moves)
    assert not any("write out" in move for move in moves)
    results = native(stages.module, stages.program, stages.compiled, Config())(*planes)
    for found, expected in zip(results, commutators(*planes), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_extremes_that_are_written_out_are_joined_in_pairs() -> None:
    """As deep as a tree: a row of maxima would wait for one after the other."""

    def softmax(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.nn.softmax(x, -1), jnp.argmax(x, -1)

    x = np.random.default_rng(0).standard_normal((3000, 6)).astype(np.float32)
    x[5, 2] = x[7, 5] = np.nan
    stages = run_stages(jax.jit(softmax).lower(x).as_text(), Config(cache=False))
    text = "\n".join(map(str, stages.compiled.loops))
    assert re.search(r"max\(max\d+, max\(max\(max\(t\d+, t\d+\), max\(t\d+, t\d+\)\), max\(", text)
    results = native(stages.module, stages.program, stages.compiled, Config())(x)
    for found, expected in zip(results, jax.jit(softmax)(x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
