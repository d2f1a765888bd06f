"""Values are turned once, before the work, where that is turned in its turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.schedule.graphs import normal
from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.graph import Elementwise, Graph, Loop, Permute
from tinyhlo.ir.simplify import simplify
from tinyhlo.schedule.passes.sink import sink

X, Y = normal(4, 5, 6), normal(6, 5)


def text(function: Callable[..., Any]) -> str:
    return jax.jit(function, keep_unused=True).lower(X, Y).as_text()


def graphs(function: Callable[..., Any]) -> tuple[Graph, Graph]:
    graph = simplify(import_module(text(function)).graph)
    return graph, sink(graph)


def back_again(x: jax.Array, y: jax.Array) -> jax.Array:
    return (jnp.exp(x.T) * 2 + x.T).T


def with_repeated(x: jax.Array, y: jax.Array) -> jax.Array:
    return (x.transpose(0, 2, 1) * jnp.tanh(y)[None]).transpose(2, 0, 1)


def long_work(x: jax.Array, y: jax.Array) -> jax.Array:
    z = x.T
    for _ in range(2000):
        z = jnp.sin(z)
    return z.T


def in_a_loop(x: jax.Array, y: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 3, lambda _, z: back_again(z, y), x)


def permutes(graph: Graph) -> int:
    inside = sum(permutes(n.body) for n in graph.nodes() if isinstance(n, Loop))
    return inside + sum(isinstance(node, Permute) for node in graph.nodes())


@pytest.mark.parametrize("function", [back_again, long_work, in_a_loop])
def test_nothing_is_turned_there_and_back(function: Callable[..., Any]) -> None:
    before, after = graphs(function)
    assert permutes(before) > 0 and permutes(after) == 0


def test_the_last_order_is_that_of_the_work() -> None:
    _, after = graphs(with_repeated)
    (result,) = after.results
    assert isinstance(result, Elementwise)
    turned = [node for node in after.nodes() if isinstance(node, Permute)]
    assert all(not isinstance(node.inputs[0], Elementwise) or node.shape != result.shape
               for node in turned)  # fmt: skip


def needed_both_ways(x: jax.Array, y: jax.Array) -> Any:
    z = jnp.exp(x.T)
    return z, z.T


def read_twice(x: jax.Array, y: jax.Array) -> Any:
    z = jnp.exp(x.T)
    return z.T, z.sum(0)


def of_plain_values(x: jax.Array, y: jax.Array) -> jax.Array:
    return (x * jnp.tanh(y).T).T


@pytest.mark.parametrize("function", [needed_both_ways, read_twice, of_plain_values])
def test_others_stay(function: Callable[..., Any]) -> None:
    before, after = graphs(function)
    assert after is before


@pytest.mark.parametrize(
    "function", [back_again, with_repeated, long_work, in_a_loop, of_plain_values]
)
def test_results_are_the_same(function: Callable[..., jax.Array]) -> None:
    (found,) = compile_module(text(function), Config())(X, Y)
    np.testing.assert_allclose(found, function(X, Y), rtol=1e-5, atol=1e-5)
