"""Places that are data are computed before the loops that take them one by one; what a product
reads through a reshape that divides positions is stored once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.schedule.graphs import normal
from tests.schedule.programs import run_program
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.simplify import simplify
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule import schedule
from tinyhlo.schedule.items import find_items
from tinyhlo.target import Target

PLAIN = named_target("x86-64-v4", threads=1)
NODES, EDGES = 300, 1 << 14
ONE_BY_ONE = "tell a scatter a place"
DIVIDES = "divide"


def reasons(
    function: Callable[..., Any], *arguments: np.ndarray, target: Target = PLAIN
) -> list[str]:
    """Why values of a JAX function are stored, after its results were held against the
    interpreter's."""
    module = import_module(jax.jit(function).lower(*arguments).as_text())
    graph = simplify(module.graph)
    program = schedule(graph, "test", (), target)
    expected = run_graph(module.graph, arguments)
    for got, want in zip(run_program(program, arguments), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    return list(find_items(graph, target).why.values())


def stored(why: str, found: list[str]) -> int:
    return sum(why in reason for reason in found)


def edges(count: int = EDGES) -> np.ndarray:
    """Also places from the end, and outside."""
    return np.random.default_rng(0).integers(-NODES, NODES + 9, count).astype(np.int32)


def messages(x: jax.Array, s: jax.Array, d: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.zeros(NODES).at[d].add(x[s] * w)


def test_places_are_wrapped_in_vectors_before() -> None:
    x, w = normal(NODES), normal(EDGES)
    assert stored(ONE_BY_ONE, reasons(messages, x, edges(), edges()[::-1].copy(), w)) == 2


def test_places_of_several_rows_are_wrapped_once() -> None:
    x, w = normal(8, NODES), normal(EDGES // 4)
    batched = jax.vmap(messages, (0, None, None, None))
    assert stored(ONE_BY_ONE, reasons(batched, x, edges(EDGES // 4), edges(EDGES // 4), w)) == 2


def test_few_places_and_those_of_rows_are_not() -> None:
    def rows(d: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.zeros((NODES, 64)).at[d].add(w)

    few = 512
    assert not stored(ONE_BY_ONE, reasons(messages, normal(NODES), *[edges(few)] * 2, normal(few)))
    assert not stored(ONE_BY_ONE, reasons(rows, edges(1024), normal(1024, 64)))


@pytest.mark.parametrize(("made_of", "kept"), [(np.int32, 0), (np.float32, 1)])
def test_places_beyond_the_caches_are_stored_if_floats_are_rounded(
    made_of: type, kept: int
) -> None:
    def counts(d: jax.Array) -> jax.Array:
        return jnp.zeros(NODES, jnp.int32).at[(d * 3 - 2).astype(jnp.int32)].add(1)

    count = PLAIN.l2_bytes // 2 // 4 + 4096
    assert stored(ONE_BY_ONE, reasons(counts, edges(count).astype(made_of))) == kept


def laplace(x: jax.Array) -> jax.Array:
    return x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2] - 4 * x[1:-1, 1:-1]


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda x, m: m @ laplace(x).ravel(), 1),
        (lambda x, m: laplace(x).ravel() @ m.T, 1),
        (lambda x, m: m @ x[1:-1, 1:-1].ravel(), 1),
        (lambda x, m: m @ (x[2:, :-2] * x[0, :-2]).ravel(), 1),
        (lambda x, m: m @ jnp.tanh(x)[2:].ravel()[: m.shape[1]], 0),  # a view of memory
        (lambda x, m: m[0] @ laplace(x).ravel(), 0),  # each element is read once
    ],
)
def test_a_product_divides_no_positions(function: Callable[..., Any], count: int) -> None:
    assert stored(DIVIDES, reasons(function, normal(32, 33), normal(7, 30 * 31))) == count


def test_nor_does_a_scatter() -> None:
    def sums(x: jax.Array, d: jax.Array) -> jax.Array:
        return jnp.zeros(NODES).at[d].add(laplace(x).ravel())

    assert stored(DIVIDES, reasons(sums, normal(32, 33), edges(30 * 31))) == 1


@pytest.mark.parametrize(
    ("value", "count", "alone"),
    [
        (lambda x: jnp.sqrt(x * x + 1), 1 << 10, 1),  # as long as eight roots of a vector
        (lambda x: jnp.sqrt(x * x + 1), 1 << 8, 0),  # few of them
        (lambda x: (x + 1) * x, 1 << 10, 0),
        (lambda x: (x.astype(jnp.uint32) ^ 77) * 3 + 5 ^ 9 | 1, 1 << 10, 1),  # integers
    ],
)
def test_values_that_a_scatter_puts_are_computed_in_vectors_before(
    value: Callable[[jax.Array], jax.Array], count: int, alone: int
) -> None:
    def put(x: jax.Array, d: jax.Array) -> jax.Array:
        return jnp.zeros(NODES).at[d].max(value(x).astype(jnp.float32))

    found = reasons(put, normal(count) + 9, edges(count))
    assert stored("which a scatter does one by one", found) == alone
