"""Properties of the whole compiler: random graphs against the interpreter, random JAX programs
against XLA:CPU."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.codegen.native import check
from tests.random_graphs import random_program
from tinyhlo.pjrt_plugin import initialize

PROPERTY = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,  # a failure is the same on every machine
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
ROWS, COLUMNS = 6, 5

initialize()


@PROPERTY
@given(seed=st.integers(10_000, 2**31 - 1), size=st.integers(1, 20))
def test_random_graphs_agree_with_the_interpreter(seed: int, size: int) -> None:
    check(*random_program(seed, size))


Step = Callable[[jax.Array, jax.Array], jax.Array]

# Each step takes two (ROWS, COLUMNS) arrays to one; chains of them are ordinary JAX programs.
STEPS: dict[str, Step] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / (1.0 + jnp.abs(b)),
    "maximum": lambda a, b: jnp.maximum(a, b),
    "tanh": lambda a, b: jnp.tanh(a) + b,
    "sigmoid": lambda a, b: jax.nn.sigmoid(a) * b,
    "gelu": lambda a, b: jax.nn.gelu(a) - b,
    "softmax": lambda a, b: jax.nn.softmax(a, axis=-1) + b,
    "layernorm": lambda a, b: (a - a.mean(1, keepdims=True)) / (1.0 + a.std(1, keepdims=True)) + b,
    "matmul": lambda a, b: (a @ b.T) @ b / COLUMNS,
    "columns": lambda a, b: a - b.sum(0),
    "where": lambda a, b: jnp.where(a > b, a, b * 0.5),
    "roll": lambda a, b: jnp.roll(a, 2, axis=1) + b[::-1],
    "transpose": lambda a, b: (a.reshape(COLUMNS, ROWS).T + b) * 0.5,
    "pad": lambda a, b: jnp.pad(a, ((1, 0), (0, 2)))[:ROWS, :COLUMNS] + b,
    "concatenate": lambda a, b: jnp.concatenate([a[:3], b[3:]], axis=0),
    "gather": lambda a, b: a[jnp.argsort(b[:, 0])],
    "scatter": lambda a, b: a.at[jnp.argmax(b, axis=0)].add(1.0),
    "sort": lambda a, b: jnp.sort(a, axis=0) + b,
    "cumsum": lambda a, b: jnp.cumsum(a, axis=1) * 0.2 + b,
    "scan": lambda a, b: jax.lax.scan(lambda c, x: (c * 0.5 + x, c), b[0], a)[1],
    "while": lambda a, b: jax.lax.fori_loop(0, 3, lambda i, c: c * 0.5 + b * i, a),
    "cond": lambda a, b: jax.lax.cond(a[0, 0] > b[0, 0], lambda: a, lambda: b),
}


def program(names: list[str]) -> Callable[[jax.Array, jax.Array], tuple[jax.Array, ...]]:
    """The steps one after another, and the gradient of what they end in."""

    def value(a: jax.Array, b: jax.Array) -> jax.Array:
        for name in names:
            a, b = STEPS[name](a, b), a
        return a

    def both(a: jax.Array, b: jax.Array) -> tuple[jax.Array, ...]:
        return value(a, b), jax.grad(lambda x: jnp.sum(jnp.tanh(value(x, b))))(a)

    return both


@PROPERTY
@given(
    names=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5), seed=st.integers(0, 99)
)
def test_random_jax_programs_agree_with_xla(names: list[str], seed: int) -> None:
    source = np.random.default_rng(seed)
    a, b = (source.standard_normal((ROWS, COLUMNS)).astype(np.float32) for _ in range(2))
    results = [
        jax.jit(program(names))(*(jax.device_put(x, jax.devices(platform)[0]) for x in (a, b)))
        for platform in ("tiny", "cpu")
    ]
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=2e-4, atol=2e-5)
