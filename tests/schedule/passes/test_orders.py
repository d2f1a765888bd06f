"""Products are computed in the order of axes in which they are read."""

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
from tinyhlo.ir.contraction import find_contraction
from tinyhlo.ir.graph import Graph, Permute
from tinyhlo.ir.simplify import simplify
from tinyhlo.schedule.passes.orders import as_read, in_order, in_orders

X, Y, W = normal(96, 40), normal(96, 24), normal(40, 24)


def text(function: Callable[..., Any]) -> str:
    return jax.jit(function).lower(X, Y, W).as_text()


def graphs(function: Callable[..., Any]) -> tuple[Graph, Graph]:
    graph = simplify(import_module(text(function)).graph)
    return graph, in_order(graph)


def products(graph: Graph) -> list[tuple[int, ...]]:
    return [node.shape for node in graph.nodes() if find_contraction(node)]


def long_products(graph: Graph) -> list[tuple[int, ...]]:
    """Without axes of extent 1."""
    return [tuple(n for n in shape if n > 1) for shape in products(graph)]


def gradient(x: jax.Array, y: jax.Array, w: jax.Array) -> jax.Array:
    return jax.grad(lambda w: ((x.astype(w.dtype) @ w) * y.astype(w.dtype)).sum())(w)


def plain(x: jax.Array, y: jax.Array, w: jax.Array) -> jax.Array:
    return w - 0.1 * gradient(x, y, w)


def narrow(x: jax.Array, y: jax.Array, w: jax.Array) -> jax.Array:
    return w - 0.1 * gradient(x, y, w.astype(jnp.bfloat16)).astype(jnp.float32)


def clipped(x: jax.Array, y: jax.Array, w: jax.Array) -> jax.Array:
    g = gradient(x, y, w.astype(jnp.bfloat16)).astype(jnp.float32)
    return w - g / jnp.sqrt((g**2).sum())


def of_a_batch_of_one(x: jax.Array, y: jax.Array, w: jax.Array) -> jax.Array:
    return narrow(x[None], y[None], w)


def in_a_loop(x: jax.Array, y: jax.Array, w: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 3, lambda _, w: narrow(x * w.sum(), y, w), w)


@pytest.mark.parametrize("function", [plain, narrow, clipped, of_a_batch_of_one])
def test_a_gradient_has_the_order_of_its_matrix(function: Callable[..., jax.Array]) -> None:
    before, after = graphs(function)
    assert long_products(before) == [(24, 40)] and long_products(after) == [(40, 24)]
    (result,) = after.results
    turned = [node for node in after.nodes() if isinstance(node, Permute)]
    assert all(node.shape != W.shape for node in turned) and result.shape == W.shape


@pytest.mark.parametrize("function", [plain, narrow, clipped, of_a_batch_of_one, in_a_loop])
def test_results_are_the_same(function: Callable[..., jax.Array]) -> None:
    (found,) = compile_module(text(function), Config())(X, Y, W)
    np.testing.assert_allclose(found, function(X, Y, W), rtol=2e-2, atol=2e-2)


def both_ways(x: jax.Array, y: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    g = gradient(x, y, w).T
    return g, w - g.T


def below_the_cast(x: jax.Array, y: jax.Array, w: jax.Array) -> jax.Array:
    """Turned, the product would be computed twice."""
    g = jax.lax.dot_general(y, x, (((0,), (0,)), ((), ())))
    return w - g.astype(jnp.bfloat16).T.astype(jnp.float32) / jnp.sqrt((g * g).sum())


def summed_by_row(x: jax.Array, y: jax.Array, w: jax.Array) -> jax.Array:
    g = jax.lax.dot_general(y, x, (((0,), (0,)), ((), ())))
    return w - g.T * g.sum(1)


@pytest.mark.parametrize("function", [both_ways, summed_by_row, below_the_cast])
def test_what_else_is_read_keeps_its_order(function: Callable[..., Any]) -> None:
    before, after = graphs(function)
    assert after is before


def test_work_of_any_length_is_followed() -> None:
    """A gradient that goes through thousands of operations before it is summed."""

    def long(x: jax.Array, y: jax.Array, w: jax.Array) -> jax.Array:
        g = jax.lax.dot_general(y, x, (((0,), (0,)), ((), ())))
        total = g
        for _ in range(3000):
            total = jnp.sin(total)
        return w - g.T * total.sum()

    before, after = graphs(long)
    assert products(before) == [(24, 40)] and products(after) == [(40, 24)]


def resized(x: jax.Array, y: jax.Array, w: jax.Array) -> jax.Array:
    """The gradient of what makes a volume twice as large, one axis after the other: of
    2 x 8 x 12 x 16 x 16 numbers 544 us in the order of memory, 1,441 as they come (Zen 4)."""

    def squares(volume: jax.Array) -> jax.Array:
        return (jax.image.resize(volume, (1, 16, 24, 20, 4), "linear") ** 2).sum()

    return jax.grad(squares)(x.reshape(1, 8, 12, 10, 4))


def test_a_product_for_products_lies_as_its_larger_factor() -> None:
    before, after = graphs(resized)
    assert products(after) != products(as_it_is_read(before))
    (found,) = compile_module(text(resized), Config())(X)
    np.testing.assert_allclose(found, resized(X, Y, W), rtol=1e-4, atol=1e-4)


def as_it_is_read(graph: Graph) -> Graph:
    return in_orders(graph, as_read)


def chain(x: jax.Array, y: jax.Array, w: jax.Array) -> jax.Array:
    return y.T @ (x @ w)


def test_a_product_on_the_right_of_another_keeps_its_rows() -> None:
    before, after = graphs(chain)
    assert products(before) == products(after) == [(96, 24), (24, 24)]
    (found,) = compile_module(text(chain), Config())(X, Y, W)
    np.testing.assert_allclose(found, chain(X, Y, W), rtol=1e-4, atol=1e-4)


def summed_too(x: jax.Array, y: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    rows = jnp.einsum("bwhc,hv->bvcw", x.reshape(1, 96, 10, 4), w[:10])
    return jnp.einsum("bvcw,wz->bvcz", rows, y), jnp.sin(rows)


def returned_too(x: jax.Array, y: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    rows = jnp.einsum("bwhc,hv->bvcw", x.reshape(1, 96, 10, 4), w[:10])
    return jnp.einsum("bvcw,wz->bvcz", rows, y), rows


@pytest.mark.parametrize("function", [summed_too, returned_too])
def test_a_product_that_others_read_has_the_order_that_they_ask_for(
    function: Callable[..., Any],
) -> None:
    before, after = graphs(function)
    assert products(after) == products(as_it_is_read(before))


def gates(state: jax.Array, gate: jax.Array) -> jax.Array:
    """The same gate on every two neighbours of 12 qubits."""
    for qubit in range(11):
        state = jnp.einsum("ab,ibj->iaj", gate, state.reshape(2**qubit, 4, -1))
    return state.reshape(-1)


@pytest.mark.parametrize("dtype", ["f4", "c8"])
def test_a_product_is_turned_before_a_reshape_goes_across_it(dtype: str) -> None:
    """Its reader would divide each position by the extents of what the reshape joins. Both planes
    of a complex one are."""
    phase = np.asarray(1 - 0.2j if dtype == "c8" else 1).astype(dtype)
    state, gate = normal(4096) * phase, normal(4, 4) * phase
    module = jax.jit(gates).lower(state, gate).as_text()
    graph = simplify(import_module(module).graph)
    last = [tuple(n for n in (2**k, 1024 >> k, 4) if n > 1) for k in range(11)]
    inside = [tuple(n for n in (2**k, 4, 1024 >> k) if n > 1) for k in range(11)]
    assert set(long_products(graph)) == set(last)
    assert set(long_products(in_order(graph))) == set(inside)
    (found,) = compile_module(module, Config())(state, gate)
    np.testing.assert_allclose(found, gates(state, gate), rtol=2e-3, atol=2e-3)
