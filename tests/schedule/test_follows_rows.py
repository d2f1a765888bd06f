"""Roots of the sums of rows stand apart from them: there they fill vectors."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from tinyhlo.compiler import run_stages
from tinyhlo.config import Config


@pytest.mark.parametrize(
    ("rows", "function", "kernels"),
    [
        (100, lambda w, x: jnp.tanh(w @ x), 2),
        (100, lambda w, x: jnp.sum(w * x, 1), 1),
        (100, lambda w, x: 2 * (w @ x) + 1, 1),
        (100, lambda w, x: jnp.tanh(x @ w.T), 2),
        (8, lambda w, x: jnp.tanh(w @ x), 1),
    ],
    ids=["roots", "no root", "a little work", "turned", "too few"],
)
def test_roots_after_sums_of_rows(rows: int, function: object, kernels: int) -> None:
    w, x = jnp.ones((rows, 50)), jnp.ones(50)
    text = jax.jit(function).lower(w, x).as_text()  # type: ignore[call-overload]
    assert len(run_stages(text, Config(cache=False)).program.body) == kernels


def test_vectors_along_the_results_keep_their_roots() -> None:
    w, x = jnp.ones((50, 100)), jnp.ones(50)
    text = jax.jit(lambda w, x: jnp.tanh(x @ w)).lower(w, x).as_text()
    assert len(run_stages(text, Config(cache=False)).program.body) == 1
