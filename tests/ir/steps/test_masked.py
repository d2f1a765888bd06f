"""Updates of which a mask takes some back are not written there, and right."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.graph import Elementwise, Graph, Node, Output, UpdateSlice
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import simplify
from tinyhlo.ir.verifier import regions_of

ROWS = np.arange(6)
PLACES = np.array([3, 0, 9, -1, 4, 12], dtype=np.int32)  # some outside

MASKED: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "set": lambda x, i: x.at[ROWS, i].set(7.0),
    "add": lambda x, i: x.at[ROWS, i].add(7.0),
    "a place twice": lambda x, i: x.at[0, i // 2].add(7.0),
    "a row": lambda x, i: x.at[i[4]].set(7.0),
    "a block": lambda x, i: lax.dynamic_update_slice(x, 7 * jnp.ones((2, 3)), (i[0], i[4])),
    "a block beyond the end": lambda x, i: lax.dynamic_update_slice(x, x[:3, :4] * 2, (i[2], i[5])),
}


def simple(function: Callable[..., jax.Array], *given: np.ndarray) -> Graph:
    lowered = jax.jit(function, keep_unused=True).lower(*given)
    return simplify(import_module(lowered.as_text()).graph)


@pytest.mark.parametrize("name", MASKED)
def test_a_mask_is_read_where_the_updates_go(name: str) -> None:
    def function(x: jax.Array, i: jax.Array) -> jax.Array:
        return jnp.where(x % 3 > 0, MASKED[name](x, i), x)

    x = np.arange(60, dtype=np.float32).reshape(6, 10)
    graph = simple(function, x, PLACES)
    (result,) = graph.results
    assert isinstance(result, Output | UpdateSlice)
    (found,) = run_graph(graph, [x, PLACES])
    np.testing.assert_array_equal(found, jax.jit(function)(x, PLACES))


BOTH: dict[str, Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]] = {
    "the mask's other side": lambda x, i: (x, x.at[i[4]].set(7.0)),
    "the other side adds": lambda x, i: (x, x.at[0, i // 2].add(7.0)),
    "one after the other": lambda x, i: (x.at[1, 2].set(7.0).at[i[0], i[4]].set(x[1, 2] + 5), x),
    "a place again": lambda x, i: (x, x.at[1, i[0]].set(7.0).at[1, 3].add(x[0, 0] + 2)),
    "on both sides": lambda x, i: (x.at[1].set(7.0), x.at[1, i].add(5.0)),
    "the same first": lambda x, i: (
        x.at[2].set(-1.0).at[2, 3].add(1.0),
        x.at[2].set(-1.0).at[2, 4].multiply(3.0).at[2, 3].multiply(2.0),
    ),
    "one is the other, updated": lambda x, i: (x.at[2].set(3.0), x.at[2].set(3.0).at[2, i].add(1)),
    "what is read was updated": lambda x, i: (
        x.at[1].set(7.0),
        x.at[2, 2].set(9.0).at[1, 1].set(x.at[2, 2].set(9.0)[i[0] - 1, 2]),
    ),
}


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("mask", ["elements", "one"])
def test_updates_on_either_side(name: str, mask: str) -> None:
    def function(x: jax.Array, i: jax.Array, flag: jax.Array) -> jax.Array:
        return jnp.where(x % 3 > 0 if mask == "elements" else flag, *BOTH[name](x, i))

    x = np.arange(60, dtype=np.float32).reshape(6, 10)
    for flag in (np.array(True), np.array(False)):
        graph = simple(function, x, PLACES, flag)
        assert isinstance(graph.results[0], Output | UpdateSlice)
        (found,) = run_graph(graph, [x, PLACES, flag])
        np.testing.assert_array_equal(found, jax.jit(function)(x, PLACES, flag))


@pytest.mark.parametrize("name", ["most of it", "another array"])
def test_masks_that_stay(name: str) -> None:
    """Of many updates, or of another array."""

    def function(x: jax.Array, i: jax.Array) -> jax.Array:
        few = lax.dynamic_update_slice(x, 7 * jnp.ones((2, 3)), (i[0], i[4]))
        if name == "most of it":
            return jnp.where(x > 9, lax.dynamic_update_slice(x, x[:5] * 2, (i[0], i[1])), x)
        return jnp.where(x > 9, few, x + 1)

    x = np.arange(60, dtype=np.float32).reshape(6, 10)
    graph = simple(function, x, PLACES)
    assert isinstance(graph.results[0], Elementwise)
    (found,) = run_graph(graph, [x, PLACES])
    np.testing.assert_array_equal(found, jax.jit(function)(x, PLACES))


@pytest.mark.parametrize("batch", [1, 3])
def test_a_batch_of_loops_writes_where_its_state_lies(batch: int) -> None:
    def one(n: jax.Array) -> jax.Array:
        def body(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            k, x = state
            return k + 1, x.at[k].set(k * 2.0)

        return lax.while_loop(lambda state: state[0] < n, body, (0, jnp.zeros(40)))[1]

    counts = np.arange(30, 30 + batch, dtype=np.int32)
    graph = simple(jax.vmap(one), counts)
    (found,) = run_graph(graph, [counts])
    np.testing.assert_array_equal(found, jax.vmap(one)(counts))
    assert not [node for node in bodies(graph) if node.shape == (batch, 40) and is_choice(node)]


def is_choice(node: Node) -> bool:
    return isinstance(node, Elementwise) and node.op is Op.WHERE


def bodies(graph: Graph) -> list[Node]:
    """The nodes of all regions."""
    found: list[Node] = []
    for region in [region for node in graph.nodes() for region in regions_of(node)]:
        found += [*region.nodes(), *bodies(region)]
    return found
