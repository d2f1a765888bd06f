"""Work on what a reshape shows has the shape of what is reshaped, where positions are divided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.schedule.graphs import TARGET, launches, normal
from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.graph import Elementwise, Graph, Loop
from tinyhlo.ir.simplify import simplify
from tinyhlo.schedule import schedule
from tinyhlo.schedule.passes.shapes import in_own_shape

X, W = normal(50, 41), normal(49 * 40)
FLAT, ROWS = (49 * 40,), (49, 40)


def text(function: Callable[..., Any]) -> str:
    return jax.jit(function, keep_unused=True).lower(X, W).as_text()


def graphs(function: Callable[..., Any]) -> tuple[Graph, Graph]:
    graph = simplify(import_module(text(function)).graph)
    return graph, in_own_shape(graph)


def shapes(graph: Graph) -> set[tuple[int, ...]]:
    """Of all work, in regions too."""
    inside = [shapes(n.body) for n in graph.nodes() if isinstance(n, Loop)]
    own = {n.shape for n in graph.nodes() if isinstance(n, Elementwise) and n.shape}
    return own.union(*inside)


def differences(x: jax.Array) -> jax.Array:
    return x[1:, 1:] - x[:-1, :-1]


def flattened(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.tanh(differences(x).ravel() * 2 + w)


def in_other_rows(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.maximum(differences(x).reshape(7, -1), 0)


def of_two(x: jax.Array, w: jax.Array) -> jax.Array:
    return differences(x).ravel() * x[:49, :40].ravel()


def long_work(x: jax.Array, w: jax.Array) -> jax.Array:
    z = differences(x).ravel()
    for _ in range(2000):
        z = jnp.sin(z)
    return z


def in_a_loop(x: jax.Array, w: jax.Array) -> jax.Array:
    def step(_: Any, x: jax.Array) -> jax.Array:
        return jnp.zeros_like(x).at[1:, 1:].set(flattened(x, w).reshape(ROWS))

    return lax.fori_loop(0, 3, step, x)


MOVED = [flattened, in_other_rows, of_two, long_work]


@pytest.mark.parametrize("function", MOVED)
def test_work_is_done_along_rows(function: Callable[..., Any]) -> None:
    before, after = graphs(function)
    assert shapes(before) != {ROWS} and shapes(after) == {ROWS}


def test_so_it_is_in_a_loop() -> None:
    before, after = graphs(in_a_loop)
    assert FLAT in shapes(before) and FLAT not in shapes(after)


def of_memory(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.tanh(x.ravel()) * 2


def of_whole_rows(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.tanh((x[1:] - x[:-1]).ravel())


def beside_others(x: jax.Array, w: jax.Array) -> jax.Array:
    return differences(x).ravel() + jnp.concatenate([w[7:], w[:7]])


def of_few(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.tanh(differences(x)[:4, :9].ravel())


def of_short_rows(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.tanh(w.reshape(490, 4)[:, 1:].ravel())


@pytest.mark.parametrize("function", [of_memory, of_whole_rows, beside_others, of_few,
                                      of_short_rows])  # fmt: skip
def test_others_stay(function: Callable[..., Any]) -> None:
    before, after = graphs(function)
    assert after is before


def test_counts_of_codes_divide_nothing() -> None:
    """What tells a scatter its places is stored along its rows, and seen through the reshape."""

    def counts(x: jax.Array, w: jax.Array) -> jax.Array:
        codes = (x[1:, 1:] > x[:-1, :-1]) * 1 + (x[1:, 1:] > x[:-1, 1:]) * 2
        return jnp.bincount(codes.ravel(), length=4)

    graph = simplify(import_module(text(counts)).graph)
    program = schedule(graph, "test", (), TARGET)
    assert ROWS in {
        write.type.shape for launch in launches(program.body) for write in launch.writes
    }
    (found,) = compile_module(text(counts), Config())(X, W)
    np.testing.assert_array_equal(found, counts(jnp.asarray(X), jnp.asarray(W)))


@pytest.mark.parametrize("function", [*MOVED[:3], in_a_loop, beside_others])
def test_results_are_the_same(function: Callable[..., jax.Array]) -> None:
    (found,) = compile_module(text(function), Config())(X, W)
    np.testing.assert_allclose(found, function(X, W), rtol=1e-5, atol=1e-5)
