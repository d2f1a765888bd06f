"""Donated arguments: programs that update them in place compute what they compute otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import jax
import numpy as np
import pytest

from tinyhlo.compiler import compile_module
from tinyhlo.config import from_environment

Step = Callable[..., tuple[jax.Array, ...]]


def momentum(mean: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, ...]:
    """The gradient of a dense layer into a running mean, as in an optimizer."""
    return (0.9 * mean + 0.1 * (x.T @ y),)


def transposed(mean: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, ...]:
    """A kernel that cannot work in place: every element goes elsewhere."""
    return ((mean.T + 1.0).reshape(mean.shape),)


@pytest.mark.parametrize("step", [momentum, transposed])
@pytest.mark.parametrize("columns", [10, 16, 3])
def test_donation_changes_no_number(step: Step, columns: int) -> None:
    random = np.random.default_rng(columns)
    shapes = ((128, columns), (64, 128), (64, columns))
    arguments = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    results = []
    for donated in ((), (0,)):
        jitted = jax.jit(step, donate_argnums=donated, keep_unused=True)
        text = jitted.trace(*arguments).lower(lowering_platforms=("tiny",)).as_text()
        executable = compile_module(text, replace(from_environment(), cache=0))
        results.append(executable(*(array.copy() for array in arguments))[0])
    np.testing.assert_array_equal(*results)
