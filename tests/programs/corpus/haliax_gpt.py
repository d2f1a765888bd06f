"""Haliax: a GPT of named axes as Levanter writes it, its blocks stacked and rematerialized, trained
10 steps with AdamW on sequences to copy."""

import equinox as eqx
import haliax as hax
import haliax.nn as hnn
import jax
import jax.numpy as jnp
import optax
from haliax.nn.scan import Stacked

PACKAGES = ("haliax", "equinox", "optax")
TOLERANCE = (1e-3, "float32, 10 steps of Adam")
Pos, Embed, Heads, HeadSize = hax.make_axes(position=64, embed=128, heads=4, head_size=32)
KeyPos, Mlp = Pos.alias("key_position"), Embed.alias("mlp").resize(512)
Vocab = hax.Axis("vocab", 96)
Layers, Batch = hax.Axis("layers", 4), hax.Axis("batch", 8)


class Block(eqx.Module):
    norm_1: hnn.LayerNorm
    norm_2: hnn.LayerNorm
    qkv: hnn.Linear
    out: hnn.Linear
    up: hnn.Linear
    down: hnn.Linear

    @staticmethod
    def init(*, key):
        k = jax.random.split(key, 4)
        three = (hax.Axis("qkv", 3), Heads, HeadSize)
        return Block(
            hnn.LayerNorm.init(Embed),
            hnn.LayerNorm.init(Embed),
            hnn.Linear.init(Embed, three, use_bias=False, key=k[0]),
            hnn.Linear.init((Heads, HeadSize), Embed, key=k[1]),
            hnn.Linear.init(Embed, Mlp, key=k[2]),
            hnn.Linear.init(Mlp, Embed, key=k[3]),
        )

    def __call__(self, x):
        q, k, v = self.qkv(self.norm_1(x)).unbind("qkv")
        k, v = k.rename({"position": "key_position"}), v.rename({"position": "key_position"})
        mask = hnn.attention.causal_mask(Pos, KeyPos)
        seen = hnn.attention.dot_product_attention("key_position", "head_size", q, k, v, mask=mask)
        x = x + self.out(seen)
        return x + self.down(hnn.gelu(self.up(self.norm_2(x))))


class Gpt(eqx.Module):
    tokens: hnn.Embedding
    places: hnn.Embedding
    blocks: Stacked
    norm: hnn.LayerNorm

    def __call__(self, ids):
        x = self.tokens(ids) + self.places(hax.arange(Pos))
        return self.tokens.unembed(self.norm(self.blocks.fold(x)))


def program():
    k = jax.random.split(jax.random.key(0), 4)
    blocks = Stacked.init(Layers, Block, gradient_checkpointing=True)(
        key=jax.random.split(k[2], Layers.size)
    )
    tokens = hnn.Embedding.init(Vocab, Embed, key=k[0])
    places = hnn.Embedding.init(Pos, Embed, key=k[1])
    start = Gpt(tokens, places, blocks, hnn.LayerNorm.init(Embed))
    half = hax.random.randint(k[3], (Batch, Pos.resize(32)), 0, Vocab.size)
    ids = hax.concatenate(Pos, (half, half))
    optimizer = optax.adamw(1e-3)

    @eqx.filter_jit
    def step(model, state):
        @eqx.filter_value_and_grad
        def loss(model):
            logits = model(ids)
            target = hax.nn.one_hot(hax.roll(ids, -1, Pos), Vocab)
            return hnn.cross_entropy_loss(logits, Vocab, target).mean().array

        cost, slope = loss(model)
        change, state = optimizer.update(slope, state, model)
        return eqx.apply_updates(model, change), state, cost

    def train():
        model, state = start, optimizer.init(eqx.filter(start, eqx.is_array))
        costs = []
        for _ in range(10):
            model, state, cost = step(model, state)
            costs.append(cost)
        return jnp.stack(costs), eqx.filter(model, eqx.is_array)

    return train
