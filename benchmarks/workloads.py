"""The workloads: one function each, with its arguments and what it costs at least.

    workload = WORKLOADS["softmax"]
    workload.function(*workload.arguments())

Sizes are small to middling, as in programs that people run on a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Arrays = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """`function(*arguments())`; `flops` and `bytes` are what the task needs at least."""

    name: str
    function: Callable[..., Any]
    arguments: Callable[[], Arrays]
    flops: float
    bytes: float
    allowed_error: float = 1e-4  # of the largest magnitude


WORKLOADS: dict[str, Workload] = {}


def workload(
    name: str, *shapes: tuple[int, ...], flops: float, bytes_: float
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function of float32 arrays of these shapes."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def arguments() -> Arrays:
            random = np.random.default_rng(len(name))
            return tuple(random.standard_normal(s).astype(np.float32) for s in shapes)

        WORKLOADS[name] = Workload(name, function, arguments, flops, bytes_)
        return function

    return register


@workload("elementwise", (1 << 20,), (1 << 20,), flops=12 << 20, bytes_=12 << 20)
def elementwise(x: jax.Array, y: jax.Array) -> jax.Array:
    """A chain with a root or two: one pass over memory when fused."""
    return jnp.tanh(x) * jnp.exp(-y * y) + 0.5 * jnp.sqrt(jnp.abs(x))


@workload("softmax", (512, 1024), flops=5 << 19, bytes_=8 << 19)
def softmax(x: jax.Array) -> jax.Array:
    return jax.nn.softmax(x, axis=-1)


@workload("layernorm", (2048, 512), (512,), (512,), flops=8 << 20, bytes_=8 << 20)
def layernorm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    mean = x.mean(axis=-1, keepdims=True)
    variance = jnp.square(x - mean).mean(axis=-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + bias


def matmul(x: jax.Array, y: jax.Array) -> jax.Array:
    return x @ y


for size in (64, 256, 512):
    cost = {"flops": 2.0 * size**3, "bytes_": 12.0 * size**2}
    workload(f"matmul_{size}", (size, size), (size, size), **cost)(matmul)


@workload("dense_gelu", (256, 512), (512, 1024), (1024,), flops=2 * 256 * 512 * 1024, bytes_=3.7e6)
def dense_gelu(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    return jax.nn.gelu(x @ w + b)


@workload(
    "convolution",
    (8, 32, 32, 32),
    (3, 3, 32, 64),
    flops=2 * 8 * 32 * 32 * 9 * 32 * 64,
    bytes_=3.2e6,
)
def convolution(x: jax.Array, w: jax.Array) -> jax.Array:
    y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return jnp.maximum(y, 0.0)


@workload(
    "attention", (4, 128, 64), (4, 128, 64), (4, 128, 64), flops=4 * 4 * 128**2 * 64, bytes_=5e5
)
def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jnp.einsum("hqd,hkd->hqk", q, k) / math.sqrt(q.shape[-1])
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores), v)


def mlp_loss(w1: jax.Array, w2: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.mean((jax.nn.relu(x @ w1) @ w2 - y) ** 2)


@workload(
    "mlp_step", (256, 512), (512, 64), (128, 256), (128, 64), flops=6 * 128 * 512 * 320, bytes_=2e6
)
def mlp_step(w1: jax.Array, w2: jax.Array, x: jax.Array, y: jax.Array) -> Arrays:
    """A step of gradient descent on two dense layers."""
    g1, g2 = jax.grad(mlp_loss, argnums=(0, 1))(w1, w2, x, y)
    return w1 - 0.1 * g1, w2 - 0.1 * g2


def cnn_loss(w1: jax.Array, w2: jax.Array, x: jax.Array) -> jax.Array:
    x = convolution(x, w1)
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return jnp.mean(convolution(x, w2) ** 2)


@workload("cnn_step", (3, 3, 8, 32), (3, 3, 32, 32), (16, 16, 16, 8), flops=1e8, bytes_=2e6)
def cnn_step(w1: jax.Array, w2: jax.Array, x: jax.Array) -> Arrays:
    """A step of gradient descent on two convolutions with a max pool between."""
    g1, g2 = jax.grad(cnn_loss, argnums=(0, 1))(w1, w2, x)
    return w1 - 0.1 * g1, w2 - 0.1 * g2


@workload("lstm", (64, 16, 64), (128, 256), flops=2 * 64 * 16 * 128 * 256, bytes_=4e5)
def lstm(xs: jax.Array, w: jax.Array) -> jax.Array:
    """64 steps of an LSTM cell, by `lax.scan`."""

    def cell(state: Arrays, x: jax.Array) -> tuple[Arrays, jax.Array]:
        h, c = state
        i, f, g, o = jnp.split(jnp.concatenate([x, h], axis=1) @ (0.1 * w), 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros(xs.shape[1:])
    return lax.scan(cell, (zeros, zeros), xs)[1]


@workload("gather", (20000, 64), (8192,), flops=0, bytes_=2 * 4 * 8192 * 64)
def gather(table: jax.Array, x: jax.Array) -> jax.Array:
    """Rows of a table, as an embedding takes them."""
    return table[(jnp.abs(x) * 5000).astype(jnp.int32) % table.shape[0]]


@workload("cumsum", (256, 1024), flops=1 << 18, bytes_=8 << 18)
def cumsum(x: jax.Array) -> jax.Array:
    return jnp.cumsum(x, axis=-1)


@workload("normal", (), flops=60 << 18, bytes_=4 << 18)
def normal(seed: jax.Array) -> jax.Array:
    """Random normals from JAX's own generator, Threefry."""
    return jax.random.normal(jax.random.key(lax.bitcast_convert_type(seed, jnp.int32)), (1 << 18,))


@workload("sort", (1 << 16,), flops=0, bytes_=8 << 16)
def sort(x: jax.Array) -> jax.Array:
    return jnp.sort(x)
