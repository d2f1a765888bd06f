"""Peak memory of training steps: bytes that the plan asks for beside inputs and outputs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tinyhlo.compiler import run_stages
from tinyhlo.config import Config

Weights = list[jax.Array]


def dense_loss(weights: Weights, x: jax.Array) -> jax.Array:
    for w in weights[:-1]:
        x = jax.nn.relu(x @ w)
    return jnp.mean(jax.nn.logsumexp(x @ weights[-1], axis=-1))


def convolution_loss(weights: Weights, x: jax.Array) -> jax.Array:
    for w in weights:
        x = jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x)
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return jnp.mean(x * x)


def attention_loss(weights: Weights, x: jax.Array) -> jax.Array:
    q, k, v = (x @ w for w in weights)
    scores = jax.nn.softmax(q @ k.swapaxes(-1, -2), axis=-1)
    return jnp.mean((scores @ v) ** 2)


PROGRAMS = {
    "dense": (dense_loss, [(784, 512), (512, 256), (256, 10)], (256, 784)),
    "convolution": (convolution_loss, [(3, 3, 1, 32), (3, 3, 32, 64)], (32, 28, 28, 1)),
    "attention": (attention_loss, [(64, 64)] * 3, (8, 128, 64)),
}
MOST_KILOBYTES = {"attention": 2820, "convolution": 10192, "dense": 3114}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_arena_of_a_step(name: str) -> None:
    loss, shapes, x = PROGRAMS[name]

    def step(weights: Weights, x: jax.Array) -> Weights:
        found = jax.grad(loss)(weights, x)
        return [w - 0.1 * g for w, g in zip(weights, found, strict=True)]

    weights = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    text = jax.jit(step).lower(weights, jax.ShapeDtypeStruct(x, np.float32)).as_text()
    program = run_stages(text, Config(cache=False, threads=2)).program
    assert program.arena_bytes <= MOST_KILOBYTES[name] << 10
