"""Which state of a loop is never read as it was before, and that it is not written then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.schedule.graphs import launches, normal
from tests.schedule.passes.test_hoist import planned, split
from tinyhlo.ir.graph import Param
from tinyhlo.schedule.program import Copy, Program

ROWS = 20


def stacked(x: jax.Array) -> Any:
    return lax.scan(lambda h, _: (jnp.sin(h) + 1, h), x, None, ROWS)


def backwards(x: jax.Array) -> Any:
    return lax.scan(lambda h, k: (jnp.sin(h) + k, h), x, jnp.arange(ROWS), reverse=True)


def nested(x: jax.Array) -> Any:
    return lax.fori_loop(0, 3, lambda _, h: stacked(h)[1].sum(0) * 0.1, x)


def chunks(x: jax.Array) -> jax.Array:
    def body(k: int, rows: jax.Array) -> jax.Array:
        return lax.dynamic_update_slice(rows, jnp.tile(x * k, (4, 1)), (4 * k, 0))

    return lax.fori_loop(0, 5, body, jnp.zeros((ROWS, *x.shape)))


def partly(x: jax.Array) -> jax.Array:
    return lax.fori_loop(1, ROWS, lambda k, rows: rows.at[k].set(x * k), jnp.zeros((ROWS, 80)))


def columns(x: jax.Array) -> jax.Array:
    def body(k: int, rows: jax.Array) -> jax.Array:
        return lax.dynamic_update_slice(rows, x[None, :40] * k, (k, 0))

    return lax.fori_loop(0, ROWS, body, jnp.zeros((ROWS, 80)))


def read_as_well(x: jax.Array) -> jax.Array:
    def body(k: int, rows: jax.Array) -> jax.Array:
        return rows.at[k].set(rows.sum(0) + x)

    return lax.fori_loop(0, ROWS, body, jnp.zeros((ROWS, 80)))


def read_between(x: jax.Array) -> Any:
    def body(k: int, state: Any) -> Any:
        rows = lax.dynamic_update_index_in_dim(state[0], x, k, 0)
        return rows, state[1] + rows.sum(0)

    return lax.fori_loop(0, ROWS, body, (jnp.zeros((ROWS, 80)), x))


def handed_on(x: jax.Array) -> Any:
    def body(k: int, state: Any) -> Any:
        rows = lax.dynamic_update_index_in_dim(state[0], x, k, 0)
        return rows, rows, state[2] + state[1].sum(0)

    return lax.fori_loop(0, ROWS, body, (jnp.zeros((ROWS, 80)), jnp.zeros((ROWS, 80)), x))


def returned_too(x: jax.Array) -> Any:
    zeros = jnp.zeros((ROWS, 80))
    return lax.fori_loop(0, ROWS, lambda k, rows: rows.at[k].set(x), zeros), zeros


def fills(program: Program) -> int:
    """Bytes that kernels without operands, and copies, write outside of the outermost loop."""
    around = split(program)[1]
    written = sum(s.target.type.nbytes for s in around if isinstance(s, Copy))
    for launch in launches(around):
        if not any(isinstance(node, Param) for node in launch.kernel.graph.nodes()):
            written += sum(write.type.nbytes for write in launch.writes)
    return written


@pytest.mark.parametrize("function", [stacked, backwards, chunks])
def test_rows_that_all_follow_start_as_they_are(function: Callable[..., Any]) -> None:
    assert fills(planned(function, normal(80))) < 4 * ROWS * 80


def test_in_a_loop_around() -> None:
    inside, _ = split(planned(nested, normal(80)))
    writes = [write for s in launches(inside) for write in s.writes if not s.reads]
    assert sum(write.type.nbytes for write in writes) < 4 * ROWS * 80


@pytest.mark.parametrize(
    "function", [partly, columns, read_as_well, read_between, handed_on, returned_too]
)
def test_what_is_read_is_written(function: Callable[..., Any]) -> None:
    assert fills(planned(function, normal(80))) >= 4 * ROWS * 80


def test_a_number_of_rows_that_is_not_known() -> None:
    def function(n: jax.Array, x: jax.Array) -> jax.Array:
        zeros = jnp.zeros((ROWS, 80))
        return lax.fori_loop(0, n, lambda k, rows: rows.at[k].set(x), zeros)

    assert fills(planned(function, np.int32(7), normal(80))) >= 4 * ROWS * 80
