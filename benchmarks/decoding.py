"""Text from a language model on a CPU: a token at a time, weights of 16 and of 8 bits.

A step reads every weight once, so the bandwidth of memory is its floor: weights of half as many
bits take half the time. One of 8 bits is widened and scaled where it is multiplied.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.layers import Model, Parameters, model, normal_of, rms_norm

WIDTH, HEADS, GROUPS, HIDDEN, WORDS, LENGTH, LAYERS = 768, 12, 4, 2048, 16384, 512, 4
SIZE = WIDTH // HEADS
TOKENS = 8
SHAPES = {
    "q": (WIDTH, WIDTH), "k": (WIDTH, GROUPS * SIZE), "v": (WIDTH, GROUPS * SIZE),
    "out": (WIDTH, WIDTH), "gate": (WIDTH, HIDDEN), "up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH),
}  # fmt: skip


def weights_of_16_bits(w: np.ndarray) -> Parameters:
    return w.astype(jnp.bfloat16)


def weights_of_8_bits(w: np.ndarray) -> Parameters:
    """Each column as integers times a scale."""
    scale = np.abs(w).max(0) / 127
    return {"bits": np.round(w / scale).astype(np.int8), "scale": scale}


def times(x: jax.Array, w: Parameters) -> jax.Array:
    if isinstance(w, dict):
        return (x @ w["bits"].astype(jnp.float32)) * w["scale"]
    return x @ w.astype(jnp.float32)


def rotated(x: jax.Array, place: jax.Array) -> jax.Array:
    """Rotary positions on [batch, heads, size], all at one place of the text."""
    angles = place * 1e4 ** (-jnp.arange(0, SIZE, 2) / SIZE)
    a, b = jnp.split(x, 2, -1)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def step(p: Parameters, kept: jax.Array, token: jax.Array, place: jax.Array):
    """The next token of each text; `kept` are keys and values so far, in bf16."""
    batch = token.shape[0]
    x = p["words"][token].astype(jnp.float32)
    seen = jnp.where(jnp.arange(LENGTH) <= place, 0.0, -1e9)
    for layer, block in enumerate(p["blocks"]):
        h = rms_norm(x, block["norm1"])
        q, k, v = (times(h, block[name]).reshape(batch, -1, SIZE) for name in ("q", "k", "v"))
        new = jnp.stack([rotated(k, place), v])[None, :, :, :, None].astype(kept.dtype)
        kept = lax.dynamic_update_slice(kept, new, (layer, 0, 0, 0, place, 0))
        keys, values = kept[layer].astype(jnp.float32)
        groups = rotated(q, place).reshape(batch, GROUPS, HEADS // GROUPS, SIZE) * SIZE**-0.5
        chosen = jax.nn.softmax(jnp.einsum("bghd,bgld->bghl", groups, keys) + seen)
        found = jnp.einsum("bghl,bgld->bghd", chosen, values)
        x = x + times(found.reshape(batch, WIDTH), block["out"])
        h = rms_norm(x, block["norm2"])
        x = x + times(jax.nn.silu(times(h, block["gate"])) * times(h, block["up"]), block["down"])
    return kept, jnp.argmax(times(x, p["predict"]), -1).astype(jnp.int32)


def generator(batch: int, narrow: Callable[[np.ndarray], Parameters]) -> Callable[..., Model]:
    """A model that writes TOKENS for each of `batch` texts."""

    def build(random: np.random.Generator) -> Model:
        normal = normal_of(random)
        norms = {name: np.ones(WIDTH, np.float32) for name in ("norm1", "norm2")}
        p = {
            "words": normal(WORDS, WIDTH, scale=0.02).astype(jnp.bfloat16),
            "predict": narrow(normal(WIDTH, WORDS)),
            "blocks": [
                norms | {name: narrow(normal(*shape)) for name, shape in SHAPES.items()}
                for _ in range(LAYERS)
            ],
        }
        kept = np.zeros((LAYERS, 2, batch, GROUPS, LENGTH, SIZE), jnp.bfloat16)

        def generate(p: Parameters, kept: jax.Array, token: jax.Array) -> jax.Array:
            def body(carry, place):
                kept, token = step(p, *carry, place)
                return (kept, token), token

            return lax.scan(body, (kept, token), jnp.arange(100, 100 + TOKENS))[1]

        return generate, (p, kept, np.arange(3, 3 + batch, dtype=np.int32))

    return build


@model
def llama_generate_bf16(random: np.random.Generator) -> Model:
    """Llama of 4 layers of 768, bf16 weights: 8 tokens of one text, keys and values kept"""
    return generator(1, weights_of_16_bits)(random)


@model
def llama_generate_int8(random: np.random.Generator) -> Model:
    """The same, weights of 8 bits with scales: 8 tokens of each of 4 texts"""
    return generator(4, weights_of_8_bits)(random)
