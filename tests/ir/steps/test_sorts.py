"""Sorts of constants become constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.graph import Elementwise, Graph, Sort
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.simplify import simplify
from tinyhlo.ir.steps.sorts import MOST_SORTED

RANDOM = np.random.default_rng(0)
WHOLE = RANDOM.integers(0, 50, 2000).astype(np.int32)
FLOATS = RANDOM.standard_normal((40, 50)).astype(np.float32)
SPECIAL = np.array([0.0, np.nan, -0.0, np.inf, 1.0, -np.nan, -np.inf, 0.0, -0.0], np.float32)
X = np.arange(2000, dtype=np.float32)


def graphs(function: Callable[..., Any]) -> tuple[Graph, Graph]:
    plain = import_module(jax.jit(function, keep_unused=True).lower(X).as_text()).graph
    return plain, simplify(plain)


def sorts(graph: Graph) -> int:
    return sum(isinstance(node, Sort) for node in graph.nodes())


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[jnp.argsort(WHOLE)],
        lambda x: x[jnp.argsort(WHOLE, descending=True)],
        lambda x: x + jnp.sort(FLOATS, axis=0).ravel(),
        lambda x: x + jnp.sort(FLOATS, axis=1).ravel(),
        lambda x: x[:10] * lax.top_k(FLOATS.ravel(), 10)[0],
        lambda x: x[:9] * jnp.argsort(SPECIAL),
        lambda x: x[:9] * jnp.argsort(SPECIAL, descending=True),
        lambda x: x * jnp.sort(WHOLE.astype(ml_dtypes.bfloat16)),
        lambda x: x * jnp.sort(WHOLE > 20),
    ],
)
def test_a_sort_of_constants_is_a_constant(function: Callable[..., Any]) -> None:
    plain, found = graphs(function)
    assert sorts(plain) == 1 and sorts(found) == 0
    np.testing.assert_array_equal(run_graph(found, [X])[0], run_graph(plain, [X])[0])


def test_places_within_bounds_are_neither_wrapped_nor_held_there() -> None:
    _, found = graphs(lambda x: x[jnp.argsort(WHOLE)])
    assert not any(isinstance(node, Elementwise) for node in found.nodes())


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.sort(x),
        lambda x: x[jnp.lexsort((WHOLE, WHOLE % 7))],  # in the order of two
        lambda x: x[0] + jnp.sort(np.zeros(MOST_SORTED + 1, np.int32) + np.arange(2)[:, None]),
    ],
)
def test_others_stay(function: Callable[..., Any]) -> None:
    assert sorts(graphs(function)[1]) == 1
