"""Flax NNX: a T5-like encoder and decoder; greedy decoding step by step with a key-value cache."""

import jax
import jax.numpy as jnp
from flax import nnx

PACKAGES = ("flax",)
TOLERANCE = (1e-5, "float32; the chosen tokens are equal")
WIDTH, HEADS, VOCABULARY, LENGTH = 64, 4, 96, 16


class Block(nnx.Module):
    def __init__(self, decoder, rngs):
        def attention(decode):
            return nnx.MultiHeadAttention(HEADS, WIDTH, decode=decode, use_bias=False, rngs=rngs)

        self.own = attention(decoder)
        self.cross = attention(False) if decoder else None
        self.norms = nnx.List([nnx.RMSNorm(WIDTH, rngs=rngs) for _ in range(3)])
        self.inner = nnx.Linear(WIDTH, 2 * WIDTH, rngs=rngs)
        self.outer = nnx.Linear(2 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x, encoded=None):
        x += self.own(self.norms[0](x))
        if self.cross is not None:
            x += self.cross(self.norms[1](x), encoded)
        return x + self.outer(nnx.gelu(self.inner(self.norms[2](x))))


class Model(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs)
        self.encoder = nnx.List([Block(False, rngs) for _ in range(2)])
        self.decoder = nnx.List([Block(True, rngs) for _ in range(2)])

    def encode(self, tokens):
        x = self.embed(tokens)
        for block in self.encoder:
            x = block(x)
        return x

    def decode(self, token, encoded):
        x = self.embed(token)[:, None]
        for block in self.decoder:
            x = block(x, encoded)
        return self.embed.attend(x)[:, 0]


def program():
    model = Model(nnx.Rngs(0))
    tokens = jax.random.randint(jax.random.key(1), (2, 24), 0, VOCABULARY)
    encode = nnx.jit(Model.encode)
    step = nnx.jit(Model.decode)

    def generate():
        for block in model.decoder:
            block.own.init_cache((2, LENGTH, WIDTH))
        encoded = encode(model, tokens)
        token, chosen = jnp.zeros(2, jnp.int32), []
        for _ in range(LENGTH):
            logits = step(model, token, encoded)
            token = jnp.argmax(logits, -1)
            chosen.append(token)
        return jnp.stack(chosen, 1), logits

    return generate
