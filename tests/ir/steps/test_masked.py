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
    return simplify(import_module(jax.jit(function).lower(*given).as_text()).graph)


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


@pytest.mark.parametrize("name", ["most of it", "another array", "the mask's other side"])
def test_masks_that_stay(name: str) -> None:
    """Of many updates, of another array, or of what the mask leaves."""

    def function(x: jax.Array, i: jax.Array) -> jax.Array:
        few = lax.dynamic_update_slice(x, 7 * jnp.ones((2, 3)), (i[0], i[4]))
        if name == "most of it":
            return jnp.where(x > 9, lax.dynamic_update_slice(x, x[:5] * 2, (i[0], i[1])), x)
        return jnp.where(x > 9, few, x + 1) if name == "another array" else jnp.where(x > 9, x, few)

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
