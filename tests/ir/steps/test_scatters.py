"""Scatters that write each place once are computed place by place, and sums of them are known."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.graph import Graph, Reduce, Scatter
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.simplify import simplify

VALUES = np.arange(1, 7, dtype=np.float32)
PLACES = np.array([3, 0, -1, 40, 8, -40], np.int32)  # the last place twice, and two outside
ROWS = jnp.arange(6)


def simple(function: Callable[..., jax.Array], *arguments: np.ndarray) -> Graph:
    return simplify(
        import_module(jax.jit(function, keep_unused=True).lower(*arguments).as_text()).graph
    )


def scatters(graph: Graph) -> int:
    return sum(isinstance(node, Scatter) for node in graph.nodes())


def taken(x: jax.Array, places: jax.Array) -> jax.Array:
    return jnp.take_along_axis(x, places[:, None], 1).sum()


ONCE: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "add": lambda v, i: jnp.zeros((6, 9)).at[ROWS, i].add(v),
    "set": lambda v, i: jnp.full((6, 9), 2.0).at[ROWS, i].set(v),
    "multiply": lambda v, i: jnp.full((6, 9), 2.0).at[ROWS, i].mul(v),
    "minimum": lambda v, i: jnp.full((6, 9), 2.0).at[ROWS, i].min(v),
    "turned": lambda v, i: jnp.zeros((9, 6)).at[i, ROWS].add(v),
    "two places": lambda v, i: jnp.zeros((9, 6, 7)).at[i, ROWS, i // 2].add(v),
    "rows": lambda v, i: jnp.zeros((6, 9, 5)).at[ROWS, i].add(v[:, None] * jnp.arange(5.0)),
    "one": lambda v, i: jnp.zeros((1, 9)).at[0, i[:1]].add(v[:1]),
    "gradient": lambda v, i: jax.grad(taken)(v[:, None] * jnp.ones((6, 9)), jnp.clip(i, 0, 8)),
}
OFTEN: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "several in a row": lambda v, i: jnp.zeros((1, 9)).at[0, i].add(v),
    "fewer rows": lambda v, i: jnp.zeros((8, 9)).at[ROWS, i].add(v),
    "in a value": lambda v, i: jnp.outer(v, jnp.arange(9.0)).at[ROWS, i].add(v),
}


@pytest.mark.parametrize("name", [*ONCE, *OFTEN])
def test_scatter_is_computed_by_place(name: str) -> None:
    function = (ONCE | OFTEN)[name]
    graph = simple(function, VALUES, PLACES)
    assert scatters(graph) == (name in OFTEN)
    (found,) = run_graph(graph, [VALUES, PLACES])
    np.testing.assert_array_equal(found, jax.jit(function)(VALUES, PLACES))


SUMS: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "scattered": lambda v, i: -jnp.zeros((6, 9)).at[ROWS, i].add(v).sum(1),
    "negated": lambda v, i: jnp.negative(jnp.zeros((6, 9)).at[ROWS, i].add(v)).sum(1),
    "first axis": lambda v, i: jnp.zeros((9, 6)).at[i, ROWS].add(v).sum(0),
    "integers": lambda v, i: jnp.zeros((6, 9), jnp.int32).at[ROWS, i].add(3).sum(1),
    "not numbers": lambda v, i: jnp.zeros((6, 9)).at[ROWS, i].add(jnp.log(v - 3)).sum(1),
    "nothing": lambda v, i: jnp.zeros((6, 9)).at[ROWS, i].add(0 * -v).sum(1),
}
KEPT: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "other axis": lambda v, i: jnp.zeros((6, 9)).at[ROWS, i].add(v).sum(0),
    "all": lambda v, i: jnp.zeros((6, 9)).at[ROWS, i].add(v).sum(),
    "not of zeros": lambda v, i: jnp.full((6, 9), 2.0).at[ROWS, i].set(v).sum(1),
    "numbers between": lambda v, i: jnp.where(
        jax.lax.broadcasted_iota(jnp.float32, (6, 9), 1) == v[:, None] / 2, v[:, None], 0
    ).sum(1),
    "numbers that come again": lambda v, i: jnp.where(
        jax.lax.broadcasted_iota(jnp.int8, (6, 300), 1) == i.astype(jnp.int8)[:, None],
        v[:, None],
        0,
    ).sum(1),
    "values along it": lambda v, i: jnp.where(
        jnp.arange(9) == i[:, None], v[:, None] * jnp.arange(9.0), 0
    ).sum(1),
}


@pytest.mark.parametrize("name", [*SUMS, *KEPT])
def test_a_sum_of_one_is_that_one(name: str) -> None:
    function = (SUMS | KEPT)[name]
    graph = simple(function, VALUES, PLACES)
    assert any(isinstance(node, Reduce) for node in graph.nodes()) == (name in KEPT)
    (found,) = run_graph(graph, [VALUES, PLACES])
    wanted = np.asarray(jax.jit(function)(VALUES, PLACES))
    np.testing.assert_array_equal(found, wanted)
    signs = np.signbit(found) == np.signbit(wanted)
    assert np.all(signs | np.isnan(wanted)) or name == "negated"  # XLA negates the sum
