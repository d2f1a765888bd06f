"""Updates of a view that another view takes back are updates of what it is a view of."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.graph import Graph, Output, Permute, UpdateSlice
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.simplify import simplify
from tinyhlo.ir.updates import chain_of

PLACES = np.array([3, 0, -1, 40, 4, -40], np.int32)  # one place twice, and two outside
Update = Callable[[jax.Array, jax.Array], jax.Array]

UPDATES: dict[str, Update] = {  # of 5 x 5 x 5
    "a row": lambda x, i: x.at[3].set(0.5),
    "a part": lambda x, i: x.at[1:3, 2:, :1].multiply(3.0),
    "a place that is data": lambda x, i: x.at[i[0], i[2], i[1]].set(7.0),
    "a block beyond the end": lambda x, i: lax.dynamic_update_slice(
        x, x[:2, :3, :1] * 2, (i[3], i[1], i[3])
    ),
    "one after the other": lambda x, i: x.at[i[0]].add(1.0).at[:, i[4] - 1].set(x[0, 1, 2]),
    "many": lambda x, i: x.at[i, 1, i % 5].set(jnp.arange(6.0)),
    "many, added": lambda x, i: x.at[i, :, 2].add(jnp.arange(30.0).reshape(6, 5)),
    "between others": lambda x, i: x.at[i].set(2.0).at[1, 2].set(9.0).at[2, i % 3].max(1.0),
}
VIEWS: dict[str, tuple[Callable[[jax.Array], jax.Array], Callable[[jax.Array], jax.Array]]] = {
    "turned": (lambda x: x.transpose(2, 0, 1), lambda x: x.transpose(1, 2, 0)),
    "flipped": (lambda x: x[::-1, :, ::-1], lambda x: x[::-1, :, ::-1]),
    "both": (lambda x: x.transpose(2, 0, 1)[:, ::-1], lambda x: x[:, ::-1].transpose(1, 2, 0)),
}


def simple(function: Update, *given: np.ndarray) -> Graph:
    lowered = jax.jit(function, keep_unused=True).lower(*given)
    return simplify(import_module(lowered.as_text()).graph)


def check(graph: Graph, function: Update, *given: np.ndarray) -> None:
    (found,) = run_graph(graph, list(given))
    wanted = np.asarray(jax.jit(function)(*given))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", UPDATES)
def test_the_source_is_updated(view: str, name: str) -> None:
    there, back = VIEWS[view]

    def function(x: jax.Array, i: jax.Array) -> jax.Array:
        return back(UPDATES[name](there(x), i))

    x = np.arange(125, dtype=np.float32).reshape(5, 5, 5)
    graph = simple(function, x, PLACES)
    (result,) = graph.results
    assert isinstance(result, Output | UpdateSlice)
    assert chain_of(result)[-1] is graph.nodes()[0]  # the argument
    check(graph, function, x, PLACES)


BITS: dict[str, Update] = {
    "a row": lambda x, i: x.at[3].set(7),
    "one after the other": lambda x, i: x.at[i[0]].set(x[2] ^ 1).at[0, 1, i[4]].set(-1),
    "many": lambda x, i: x.at[i, 2].set(1 << 30),
    "many, added": lambda x, i: x.at[i, 2].add(1 << 20),  # not to the numbers
}


@pytest.mark.parametrize("name", BITS)
def test_bits(name: str) -> None:
    def function(x: jax.Array, i: jax.Array) -> jax.Array:
        bits = lax.bitcast_convert_type(x, jnp.int32)
        return lax.bitcast_convert_type(BITS[name](bits, i), jnp.float32)

    x = np.arange(125, dtype=np.float32).reshape(5, 5, 5)
    x[1, 2] = np.nan
    graph = simple(function, x, PLACES)
    assert isinstance(graph.results[0], Output | UpdateSlice) == (name != "many, added")
    check(graph, function, x, PLACES)


@pytest.mark.parametrize("name", ["a row", "many"])
def test_another_view_stays(name: str) -> None:
    def function(x: jax.Array, i: jax.Array) -> jax.Array:
        return UPDATES[name](x.transpose(2, 0, 1), i).transpose(2, 0, 1)

    x = np.arange(125, dtype=np.float32).reshape(5, 5, 5)
    graph = simple(function, x, PLACES)
    assert isinstance(graph.results[0], Permute)
    check(graph, function, x, PLACES)
