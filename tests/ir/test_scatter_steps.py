"""Scatters that write each place once are computed place by place."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.graph import Graph, Scatter
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
