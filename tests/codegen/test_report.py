"""Bytes and times estimated of kernels: what they touch, not the size of what they touch it in."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tinyhlo.compiler import run_stages
from tinyhlo.config import Config
from tinyhlo.runtime.compile import Compiled


def compiled(function: object, *arguments: np.ndarray) -> Compiled:
    text = jax.jit(function).lower(*arguments).as_text()  # type: ignore[arg-type]
    return run_stages(text, Config(cache=False)).compiled


def test_a_step_of_a_scan_moves_a_row() -> None:
    def program(rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.lax.scan(lambda h, row: (h + row, h * row), jnp.zeros(16), rows)

    found = compiled(program, np.ones((1000, 16), np.float32))
    steps = [k for k in found.kernels if "gather" in k.name or "updateslice" in k.name]
    assert steps
    for kernel in steps:
        assert kernel.bytes_read + kernel.bytes_written <= 5 * 16 * 4


def test_a_kernel_reads_what_it_slices() -> None:
    def program(x: jax.Array) -> jax.Array:
        return jnp.sin(x[:10])

    (kernel,) = compiled(program, np.ones((1000,), np.float32)).kernels
    assert (kernel.bytes_read, kernel.bytes_written) == (40, 40)


def test_calls_of_inlined_kernels_cost_nothing() -> None:
    """A thousand steps of a few operations take microseconds: not worth a thread."""

    def program(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 1000, lambda _, x: x * 0.5 + 1.0, x)

    assert compiled(program, np.ones(2, np.float32)).estimated_seconds < 5e-6


def test_what_a_loop_reads_again_is_in_the_cache() -> None:
    """300 products with a matrix of 16 KB take tens of microseconds; to read it from memory each
    time would take ten times as long."""

    def program(w: jax.Array, h: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 300, lambda _, h: jnp.tanh(h @ w), h)

    given = np.ones((64, 64), np.float32), np.ones(64, np.float32)
    assert 20e-6 < compiled(program, *given).estimated_seconds < 200e-6


def test_what_the_last_cache_holds_is_not_read_from_memory() -> None:
    """A million floats reversed take 50 us, less than handing them to another thread would hide;
    a sort of as many takes milliseconds."""
    given = np.ones((1000, 1000), np.float32)
    assert 40e-6 < compiled(lambda x: x[::-1], given).estimated_seconds < 200e-6
    assert compiled(lambda x: jnp.sort(x.ravel()), given).estimated_seconds > 1e-3
    assert compiled(lambda x: x + 1, np.ones((16000, 1000), np.float32)).estimated_seconds > 1e-3
