"""What the models of benchmarks/networks.py are built of, and the table that they stand in.

A model is a function of a random generator that gives a step and its arguments:

    step, arguments = MODELS["gpt2_train"](np.random.default_rng(0))
    jax.jit(step)(*arguments)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Model = tuple[Callable[..., Any], tuple[Any, ...]]
Build = Callable[[np.random.Generator], Model]
Parameters = Any  # a tree of arrays
Normal = Callable[..., np.ndarray]

MODELS: dict[str, Build] = {}


def model(build: Build) -> Build:
    """Register a model; its docstring is what the table says of it."""
    MODELS[build.__name__] = build
    return build


def normal_of(random: np.random.Generator) -> Normal:
    """`normal(*shape)`: weights as small as their inputs are many; `scale` overrides that."""

    def normal(*shape: int, scale: float = 0.0) -> np.ndarray:
        scale = scale or math.prod(shape[:-1]) ** -0.5
        return random.standard_normal(shape, np.float32) * np.float32(scale)

    return normal


def layer_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5) * scale


def rms_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    return x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6) * scale


def batch_norm(x: jax.Array) -> jax.Array:
    mean = x.mean((0, 1, 2))
    return (x - mean) * lax.rsqrt(jnp.square(x - mean).mean((0, 1, 2)) + 1e-5)


def group_norm(x: jax.Array, groups: int = 8) -> jax.Array:
    batch, height, width, channels = x.shape
    grouped = x.reshape(batch, height, width, groups, channels // groups)
    mean = grouped.mean((1, 2, 4), keepdims=True)
    variance = grouped.var((1, 2, 4), keepdims=True)
    return ((grouped - mean) * lax.rsqrt(variance + 1e-5)).reshape(x.shape)


def conv(x: jax.Array, w: jax.Array, stride: int = 1, groups: int = 1) -> jax.Array:
    """A convolution of images, channels last."""
    layout = ("NHWC", "HWIO", "NHWC")
    strides = (stride, stride)
    return lax.conv_general_dilated(
        x, w, strides, "SAME", dimension_numbers=layout, feature_group_count=groups
    )


def split_heads(x: jax.Array, heads: int) -> jax.Array:
    """[batch, length, heads * size] to [batch, heads, length, size]."""
    batch, length, width = x.shape
    return x.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)


def merge_heads(x: jax.Array) -> jax.Array:
    batch, heads, length, size = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, length, heads * size)


def attention(q: jax.Array, k: jax.Array, v: jax.Array, bias: jax.Array | float = 0.0) -> jax.Array:
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    return jax.nn.softmax(scores + bias) @ v


def causal_bias(length: int) -> jax.Array:
    return jnp.where(jnp.tril(jnp.ones((length, length), bool)), 0.0, -1e9)


def block_weights(normal: Normal, width: int) -> Parameters:
    return {
        "norm1": np.ones(width, np.float32),
        "qkv": normal(width, 3 * width),
        "out": normal(width, width),
        "norm2": np.ones(width, np.float32),
        "up": normal(width, 4 * width),
        "down": normal(4 * width, width),
    }


def transformer_block(
    p: Parameters, x: jax.Array, heads: int, bias: jax.Array | float = 0.0
) -> jax.Array:
    """Attention and two dense layers, each after a layer norm."""
    q, k, v = jnp.split(layer_norm(x, p["norm1"]) @ p["qkv"], 3, -1)
    found = attention(split_heads(q, heads), split_heads(k, heads), split_heads(v, heads), bias)
    x = x + merge_heads(found) @ p["out"]
    return x + jax.nn.gelu(layer_norm(x, p["norm2"]) @ p["up"]) @ p["down"]


def mlp_weights(normal: Normal, *widths: int) -> Parameters:
    pairs = pairwise(widths)
    return [(normal(m, n), np.zeros(n, np.float32)) for m, n in pairs]


def mlp(p: Parameters, x: jax.Array, activation: Callable[..., Any] = jnp.tanh) -> jax.Array:
    for w, b in p[:-1]:
        x = activation(x @ w + b)
    return x @ p[-1][0] + p[-1][1]


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)
    return -chosen.mean()


def as_bf16(p: Parameters) -> Parameters:
    return jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), p)


def adam_step(loss: Callable[..., Any]) -> Callable[..., Any]:
    """`step(weights, means, squares, *batch)` gives the first three after Adam, and the loss."""

    def step(p: Parameters, m: Parameters, v: Parameters, *batch: Any) -> Any:
        value, g = jax.value_and_grad(loss)(p, *batch)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        p = jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), p, m, v)
        return p, m, v, value

    return step


def zeros_like(p: Parameters) -> Parameters:
    return jax.tree.map(np.zeros_like, p)
