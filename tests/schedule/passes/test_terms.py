"""Reduces are computed in the order in which their terms lie in memory."""

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
from tinyhlo.ir.graph import Graph, Loop, Permute, Reduce
from tinyhlo.ir.simplify import simplify
from tinyhlo.schedule.passes.terms import in_order_of_terms

X, W = normal(8, 30, 40), normal(8, 40, 30)
NUMBERS = 8 * 30 * 40


def text(function: Callable[..., Any]) -> str:
    return jax.jit(function, keep_unused=True).lower(X, W).as_text()


def graphs(function: Callable[..., Any]) -> tuple[Graph, Graph]:
    graph = simplify(import_module(text(function)).graph)
    return graph, in_order_of_terms(graph)


def turned(x: jax.Array) -> jax.Array:
    return x.transpose(0, 2, 1)


def largest(x: jax.Array, w: jax.Array) -> jax.Array:
    return turned(x).max(0)


def of_a_middle_axis(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.tanh(x.transpose(2, 1, 0) * 2).sum(1)


def first_greatest(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.argmax(turned(x), 0)


def variance(x: jax.Array, w: jax.Array) -> jax.Array:
    return (turned(x) + turned(x) * x[0].T).var(0)


def both_turned(x: jax.Array, w: jax.Array) -> jax.Array:
    return (turned(x) + turned(jnp.flip(x, 0))).max(0)


def turned_back(x: jax.Array, w: jax.Array) -> jax.Array:
    """As the gradient of what is turned."""
    y = turned(x)
    far = y - y.mean(1, keepdims=True)
    return turned(far * (far * y).sum(1, keepdims=True))


@pytest.mark.parametrize(
    "function", [largest, of_a_middle_axis, first_greatest, variance, turned_back]
)
def test_what_is_left_is_turned_and_not_what_is_reduced(function: Callable[..., Any]) -> None:
    before, after = graphs(function)
    assert after is not before
    for node in after.nodes():
        assert not isinstance(node, Permute) or np.prod(node.shape) < NUMBERS
        assert not isinstance(node, Reduce) or node.shape in ((30, 40), (8, 40), (8, 30))


def needed_as_well(x: jax.Array, w: jax.Array) -> Any:
    y = jnp.tanh(turned(x))
    return y.max(0), y


def turned_otherwise(x: jax.Array, w: jax.Array) -> Any:
    y = jnp.tanh(turned(x))
    return y.transpose(2, 0, 1) * y.max(0)[0, 0]


def some_lie_so(x: jax.Array, w: jax.Array) -> jax.Array:
    return (turned(x) + w).max(0)


def a_product(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.einsum("kij,kil->jl", x, x)


def in_order(x: jax.Array, w: jax.Array) -> jax.Array:
    return x.transpose(1, 0, 2).max(1)


def few(x: jax.Array, w: jax.Array) -> jax.Array:
    return turned(x[:, :4, :4]).max(0)


def of_turned_values(x: jax.Array, w: jax.Array) -> jax.Array:
    """The terms lie as they are, turned twice."""
    return turned(jnp.tanh(turned(x) + w)).max(0)


@pytest.mark.parametrize(
    "function",
    [needed_as_well, turned_otherwise, some_lie_so, a_product, in_order, few, of_turned_values],
)
def test_others_keep_their_order(function: Callable[..., Any]) -> None:
    before, after = graphs(function)
    assert after is before


def in_a_loop(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 3, lambda _, y: y * 0.5 + (turned(x) + y.sum()).max(0), w[0])


def test_loops_are_looked_into() -> None:
    _, after = graphs(in_a_loop)
    bodies = [node.body for node in after.nodes() if isinstance(node, Loop)]
    shapes = {n.shape for body in bodies for n in body.nodes() if isinstance(n, Reduce)}
    assert (30, 40) in shapes and (40, 30) not in shapes


@pytest.mark.parametrize(
    "function",
    [largest, of_a_middle_axis, first_greatest, variance, both_turned, in_a_loop, some_lie_so],
)
def test_results_are_the_same(function: Callable[..., jax.Array]) -> None:
    (found,) = compile_module(text(function), Config())(X, W)
    np.testing.assert_allclose(found, function(X, W), rtol=1e-5, atol=1e-5)


def test_values_shared_many_times_are_walked_once() -> None:
    def doubled(x: jax.Array, w: jax.Array) -> jax.Array:
        y = turned(x)
        for _ in range(200):
            y = y + y * jnp.arange(8.0)[:, None, None]
        return y.max(0)

    _, after = graphs(doubled)
    assert all(n.shape == (30, 40) for n in after.nodes() if isinstance(n, Reduce))
