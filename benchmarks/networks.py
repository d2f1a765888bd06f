"""Neural networks at the size that people train and run on a CPU, in plain JAX.

Each is a few milliseconds to half a second: enough that layers, not calls, decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.layers import (
    Model,
    Parameters,
    adam_step,
    as_bf16,
    attention,
    batch_norm,
    block_weights,
    causal_bias,
    conv,
    cross_entropy,
    group_norm,
    layer_norm,
    merge_heads,
    model,
    normal_of,
    rms_norm,
    split_heads,
    transformer_block,
    zeros_like,
)

Pair = tuple[jax.Array, jax.Array]


@model
def gpt2_train(random: np.random.Generator) -> Model:
    """GPT-2 of 2 layers of 768: a step of Adam on 2 x 256 tokens"""
    normal = normal_of(random)
    width, heads, words, length = 768, 12, 8192, 256
    p = {
        "words": normal(words, width, scale=0.02),
        "places": normal(length, width, scale=0.02),
        "blocks": [block_weights(normal, width) for _ in range(2)],
    }

    def loss(p: Parameters, tokens: jax.Array) -> jax.Array:
        x = p["words"][tokens[:, :-1]] + p["places"]
        for block in p["blocks"]:
            x = transformer_block(block, x, heads, causal_bias(length))
        return cross_entropy(x @ p["words"].T, tokens[:, 1:])

    tokens = random.integers(0, words, (2, length + 1), np.int32)
    return adam_step(loss), (p, zeros_like(p), zeros_like(p), tokens)


def rotated(x: jax.Array) -> jax.Array:
    """Rotary positions on [batch, heads, length, size]."""
    length, size = x.shape[-2:]
    angles = jnp.arange(length)[:, None] * 1e4 ** (-jnp.arange(0, size, 2) / size)
    cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
    a, b = x[..., ::2], x[..., 1::2]
    return jnp.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(x.shape)


@model
def llama_train_bf16(random: np.random.Generator) -> Model:
    """Llama of 2 layers of 512 in bf16, grouped heads: the gradient on 2 x 256 tokens"""
    normal = normal_of(random)
    width, heads, groups, words = 512, 8, 2, 4096
    kv = width * groups // heads
    p = {
        "words": normal(words, width, scale=0.02),
        "blocks": [
            {
                "norm1": np.ones(width, np.float32),
                "q": normal(width, width),
                "k": normal(width, kv),
                "v": normal(width, kv),
                "out": normal(width, width),
                "norm2": np.ones(width, np.float32),
                "gate": normal(width, 1408),
                "up": normal(width, 1408),
                "down": normal(1408, width),
            }
            for _ in range(2)
        ],
    }

    def block(p: Parameters, x: jax.Array, bias: jax.Array) -> jax.Array:
        h = rms_norm(x, p["norm1"])
        q, k = rotated(split_heads(h @ p["q"], heads)), rotated(split_heads(h @ p["k"], groups))
        k, v = (jnp.repeat(y, heads // groups, 1) for y in (k, split_heads(h @ p["v"], groups)))
        x = x + merge_heads(attention(q, k, v, bias)) @ p["out"]
        h = rms_norm(x, p["norm2"])
        return x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]

    def loss(p: Parameters, tokens: jax.Array) -> jax.Array:
        p = as_bf16(p)
        x = p["words"][tokens[:, :-1]]
        for weights in p["blocks"]:
            x = block(weights, x, causal_bias(x.shape[1]).astype(x.dtype))
        return cross_entropy((x @ p["words"].T).astype(jnp.float32), tokens[:, 1:])

    return jax.value_and_grad(loss), (p, random.integers(0, words, (2, 257), np.int32))


@model
def gpt2_generate(random: np.random.Generator) -> Model:
    """GPT-2 of 6 layers of 768: 8 tokens one after the other, keys and values kept"""
    normal = normal_of(random)
    width, heads, words, length, layers = 768, 12, 8192, 512, 6
    p = {
        "words": normal(words, width, scale=0.02),
        "blocks": [block_weights(normal, width) for _ in range(layers)],
    }
    kept = np.zeros((layers, 2, heads, length, width // heads), np.float32)

    def step(p: Parameters, kept: jax.Array, token: jax.Array, place: jax.Array) -> Pair:
        x = p["words"][token][:, None]
        seen = jnp.where(jnp.arange(length) <= place, 0.0, -1e9)
        for layer, block in enumerate(p["blocks"]):
            projected = jnp.split(layer_norm(x, block["norm1"]) @ block["qkv"], 3, -1)
            q, k, v = (split_heads(y, heads) for y in projected)
            new = jnp.concatenate([k, v])[None]
            kept = lax.dynamic_update_slice(kept, new, (layer, 0, 0, place, 0))
            found = attention(q, kept[layer, 0], kept[layer, 1], seen)
            x = x + merge_heads(found) @ block["out"]
            x = x + jax.nn.gelu(layer_norm(x, block["norm2"]) @ block["up"]) @ block["down"]
        return kept, jnp.argmax(x[:, 0] @ p["words"].T, -1).astype(jnp.int32)

    def generate(p: Parameters, kept: jax.Array, token: jax.Array) -> jax.Array:
        def body(carry: Pair, place: jax.Array) -> tuple[Pair, jax.Array]:
            kept, token = step(p, carry[0], carry[1], place)
            return (kept, token), token

        return lax.scan(body, (kept, token), jnp.arange(100, 108))[1]

    return generate, (p, kept, np.array([3], np.int32))


@model
def gpt2_sample(random: np.random.Generator) -> Model:
    """GPT-2 of 4 layers of 512: 4 tokens, the text so far read anew for each of them"""
    normal = normal_of(random)
    width, heads, words, length, start = 512, 8, 16384, 256, 100
    p = {
        "words": normal(words, width, scale=0.02),
        "places": normal(length, width, scale=0.02),
        "blocks": [block_weights(normal, width) for _ in range(4)],
    }

    def logits_of(p: Parameters, tokens: jax.Array) -> jax.Array:
        x = p["words"][tokens] + p["places"]
        for block in p["blocks"]:
            x = transformer_block(block, x, heads, causal_bias(length))
        return x @ p["words"].T

    def sample(p: Parameters, tokens: jax.Array) -> jax.Array:
        def write(place: jax.Array, tokens: jax.Array) -> jax.Array:
            token = jnp.argmax(logits_of(p, tokens)[:, place - 1], -1)
            return tokens.at[:, place].set(token.astype(jnp.int32))

        return lax.fori_loop(start, start + 4, write, tokens)

    tokens = random.integers(0, words, (1, length), np.int32)
    return sample, (p, np.where(np.arange(length) < start, tokens, 0))


@model
def t5_translate(random: np.random.Generator) -> Model:
    """T5 of 2 + 2 layers of 512: forward, with relative positions and cross-attention"""
    normal = normal_of(random)
    width, heads, words, buckets = 512, 8, 4096, 32

    def weights(names: tuple[str, ...]) -> Parameters:
        square = {name: normal(width, width) for name in names}
        norm = {"norm": np.ones((3, width), np.float32)}
        return square | norm | {"up": normal(width, 2048), "down": normal(2048, width)}

    own, cross = ("q", "k", "v", "out"), ("cross_q", "cross_k", "cross_v", "cross_out")
    p = {
        "words": normal(words, width, scale=0.05),
        "places": normal(buckets, heads, scale=1.0),
        "encoder": [weights(own) for _ in range(2)],
        "decoder": [weights(own + cross) for _ in range(2)],
    }

    def relative_bias(table: jax.Array, length: int) -> jax.Array:
        distance = jnp.arange(length)[None] - jnp.arange(length)[:, None]
        far = 8 + (jnp.log(jnp.maximum(jnp.abs(distance), 1) / 8) / math.log(16) * 8).astype(int)
        bucket = jnp.where(jnp.abs(distance) < 8, jnp.abs(distance), jnp.minimum(far, 15))
        return table[bucket + 16 * (distance > 0)].transpose(2, 0, 1)

    def attend(
        p: Parameters, x: jax.Array, memory: jax.Array, bias: jax.Array | float, prefix: str = ""
    ) -> jax.Array:
        q, k, v = (
            split_heads(y @ p[prefix + name], heads)
            for y, name in ((x, "q"), (memory, "k"), (memory, "v"))
        )
        return merge_heads(attention(q, k, v, bias)) @ p[prefix + "out"]

    def forward(p: Parameters, source: jax.Array, target: jax.Array) -> jax.Array:
        x, y = p["words"][source], p["words"][target]
        bias = relative_bias(p["places"], x.shape[1])
        for block in p["encoder"]:
            h = rms_norm(x, block["norm"][0])
            x = x + attend(block, h, h, bias)
            x = x + jax.nn.relu(rms_norm(x, block["norm"][1]) @ block["up"]) @ block["down"]
        bias = relative_bias(p["places"], y.shape[1]) + causal_bias(y.shape[1])
        for block in p["decoder"]:
            h = rms_norm(y, block["norm"][0])
            y = y + attend(block, h, h, bias)
            y = y + attend(block, rms_norm(y, block["norm"][1]), x, 0.0, "cross_")
            y = y + jax.nn.relu(rms_norm(y, block["norm"][2]) @ block["up"]) @ block["down"]
        return y @ p["words"].T

    tokens = (random.integers(0, words, (4, length), np.int32) for length in (256, 64))
    return forward, (p, *tokens)


@model
def moe_train(random: np.random.Generator) -> Model:
    """8 experts of 512 x 1024 with room for 1.25 of their share: the gradient on 1024 tokens"""
    normal = normal_of(random)
    tokens, width, experts, hidden = 1024, 512, 8, 1024
    capacity = tokens * 5 // (4 * experts)
    p = {
        "router": normal(width, experts),
        "up": normal(experts, width, hidden, scale=width**-0.5),
        "down": normal(experts, hidden, width, scale=hidden**-0.5),
    }

    def loss(p: Parameters, x: jax.Array, y: jax.Array) -> jax.Array:
        shares = jax.nn.softmax(x @ p["router"])
        chosen = jax.nn.one_hot(shares.argmax(-1), experts)
        place = (jnp.cumsum(chosen, 0) * chosen - chosen).sum(-1).astype(int)
        dispatch = chosen[..., None] * jax.nn.one_hot(place, capacity)[:, None]
        inside = jnp.einsum("tec,td->ecd", dispatch, x)
        outside = jax.nn.gelu(inside @ p["up"]) @ p["down"]
        combined = jnp.einsum("tec,ecd->td", dispatch * shares[..., None], outside)
        balance = (chosen.mean(0) * shares.mean(0)).sum() * experts
        return jnp.square(x + combined - y).mean() + 0.01 * balance

    batch = (normal(tokens, width, scale=1.0) for _ in range(2))
    return jax.value_and_grad(loss), (p, *batch)


def classification(
    stem: Callable[[jax.Array], jax.Array],
    block: Callable[[Parameters, jax.Array, int], jax.Array],
    strides: Sequence[int],
) -> Callable[[Parameters, jax.Array, jax.Array], jax.Array]:
    """The loss of a network of images: a convolution and `stem`, blocks, the mean, a head."""

    def loss(p: Parameters, images: jax.Array, labels: jax.Array) -> jax.Array:
        x = stem(batch_norm(conv(images, p["stem"], 2)))
        for weights, stride in zip(p["blocks"], strides, strict=True):
            x = block(weights, x, stride)
        return cross_entropy(x.mean((1, 2)) @ p["head"], labels)

    return loss


@model
def resnet50_train(random: np.random.Generator) -> Model:
    """Seven bottlenecks of ResNet-50: the gradient on 4 images of 128 x 128"""
    normal = normal_of(random)
    stages = [(64, 256, 1, 2), (256, 512, 2, 2), (512, 1024, 2, 2), (1024, 2048, 2, 1)]
    blocks: list[Parameters] = []
    strides: list[int] = []
    for channels, out, stride, count in stages:
        for number in range(count):
            into, middle = (out if number else channels), out // 4
            weights = {"a": normal(1, 1, into, middle), "b": normal(3, 3, middle, middle)}
            weights["c"] = normal(1, 1, middle, out)
            if not number:
                weights["shortcut"] = normal(1, 1, into, out)
            blocks.append(weights)
            strides.append(1 if number else stride)
    p = {"stem": normal(7, 7, 3, 64), "blocks": blocks, "head": normal(2048, 100)}

    def bottleneck(p: Parameters, x: jax.Array, stride: int) -> jax.Array:
        h = jax.nn.relu(batch_norm(conv(x, p["a"])))
        h = jax.nn.relu(batch_norm(conv(h, p["b"], stride)))
        shortcut = batch_norm(conv(x, p["shortcut"], stride)) if "shortcut" in p else x
        return jax.nn.relu(0.2 * batch_norm(conv(h, p["c"])) + shortcut)

    def stem(x: jax.Array) -> jax.Array:
        pooled = (1, 3, 3, 1), (1, 2, 2, 1), "SAME"
        return lax.reduce_window(jax.nn.relu(x), -jnp.inf, lax.max, *pooled)

    images = normal(4, 128, 128, 3, scale=1.0)
    loss = classification(stem, bottleneck, strides)
    return jax.value_and_grad(loss), (p, images, random.integers(0, 100, 4, np.int32))


@model
def efficientnet_train(random: np.random.Generator) -> Model:
    """Depthwise convolutions with squeeze and excitation: the gradient on 8 images of 96 x 96"""
    normal = normal_of(random)
    stages = [(32, 64, 2), (64, 64, 1), (64, 128, 2), (128, 128, 1)]
    p = {
        "stem": normal(3, 3, 3, 32),
        "blocks": [
            {
                "expand": normal(1, 1, into, 4 * into),
                "depthwise": normal(3, 3, 1, 4 * into),
                "squeeze": normal(4 * into, into // 4),
                "excite": normal(into // 4, 4 * into),
                "project": normal(1, 1, 4 * into, out),
            }
            for into, out, _ in stages
        ],
        "head": normal(128, 10),
    }

    def block(p: Parameters, x: jax.Array, stride: int) -> jax.Array:
        h = jax.nn.silu(batch_norm(conv(x, p["expand"])))
        h = jax.nn.silu(batch_norm(conv(h, p["depthwise"], stride, groups=h.shape[-1])))
        gate = jax.nn.sigmoid(jax.nn.silu(h.mean((1, 2)) @ p["squeeze"]) @ p["excite"])
        h = batch_norm(conv(h * gate[:, None, None], p["project"]))
        return h + x if h.shape == x.shape else h

    images = normal(8, 96, 96, 3, scale=1.0)
    loss = classification(jax.nn.silu, block, [stride for _, _, stride in stages])
    return jax.value_and_grad(loss), (p, images, random.integers(0, 10, 8, np.int32))


@model
def unet_sample(random: np.random.Generator) -> Model:
    """Diffusion by a U-Net: 4 guided steps on 2 images of 64 x 64"""
    normal = normal_of(random)
    widths = (32, 64)
    p = {
        "in": normal(3, 3, 3, 32),
        "label": normal(10, 32, scale=1.0),
        "down": [
            {"a": normal(3, 3, c, c), "b": normal(3, 3, c, c), "half": normal(3, 3, c, 2 * c)}
            for c in widths
        ],
        "middle": normal(3, 3, 128, 128),
        "up": [{"a": normal(3, 3, 3 * c, c), "b": normal(3, 3, c, c)} for c in widths[::-1]],
        "out": normal(3, 3, 32, 3),
    }

    def smooth(x: jax.Array, w: jax.Array) -> jax.Array:
        return conv(jax.nn.silu(group_norm(x)), w)

    def noise_in(p: Parameters, x: jax.Array, labels: jax.Array, time: jax.Array) -> jax.Array:
        angle = time * 2.0 ** jnp.arange(16)
        context = jnp.concatenate([jnp.sin(angle), jnp.cos(angle)]) + p["label"][labels]
        x, kept = conv(x, p["in"]) + context[:, None, None], []
        for level in p["down"]:
            x = x + smooth(smooth(x, level["a"]), level["b"])
            kept.append(x)
            x = conv(x, level["half"], 2)
        x = smooth(x, p["middle"])
        for level in p["up"]:
            batch, height, width, channels = x.shape
            x = jax.image.resize(x, (batch, 2 * height, 2 * width, channels), "nearest")
            x = smooth(smooth(jnp.concatenate([x, kept.pop()], -1), level["a"]), level["b"])
        return conv(x, p["out"])

    def sample(p: Parameters, x: jax.Array, labels: jax.Array) -> jax.Array:
        def step(x: jax.Array, time: jax.Array):
            both = jnp.concatenate([labels, jnp.zeros_like(labels)])
            with_label, without = jnp.split(noise_in(p, jnp.tile(x, (2, 1, 1, 1)), both, time), 2)
            return x - 0.1 * (without + 3.0 * (with_label - without)), None

        return lax.scan(step, x, jnp.linspace(1.0, 0.0, 4))[0]

    return sample, (p, normal(2, 64, 64, 3, scale=1.0), np.array([3, 7], np.int32))


@model
def wavenet_train(random: np.random.Generator) -> Model:
    """Eight dilated convolutions of 64 channels: the gradient on 4 x 1024 samples"""
    normal = normal_of(random)
    p = [{"in": normal(2, 64, 128), "out": normal(64, 64)} for _ in range(8)]
    layout = ("NWC", "WIO", "NWC")

    def loss(p: Parameters, x: jax.Array) -> jax.Array:
        total = jnp.zeros_like(x)
        for level, layer in enumerate(p):
            gap = 2**level
            h = lax.conv_general_dilated(
                x, layer["in"], (1,), [(gap, 0)], rhs_dilation=(gap,), dimension_numbers=layout
            )
            filtered, gate = jnp.split(h, 2, -1)
            h = (jnp.tanh(filtered) * jax.nn.sigmoid(gate)) @ layer["out"]
            x, total = x + h, total + h
        return jnp.square(total).mean()

    return jax.value_and_grad(loss), (p, normal(4, 1024, 64, scale=1.0))


@model
def mamba_train(random: np.random.Generator) -> Model:
    """A selective state space of 128 x 16 by associative_scan: the gradient on 2 x 256 tokens"""
    normal = normal_of(random)

    def scanned(x: jax.Array, a: jax.Array, b: jax.Array, c: jax.Array, rate: jax.Array):
        step = jax.nn.softplus(rate)
        decay = jnp.exp(-step[..., None] * jnp.abs(a))
        drive = step[..., None] * b[:, :, None] * x[..., None]

        def combine(left: Pair, right: Pair) -> Pair:
            return left[0] * right[0], right[0] * left[1] + right[1]

        _, states = lax.associative_scan(combine, (decay, drive), axis=1)
        return (states * c[:, :, None]).sum(-1)

    def loss(*arguments: jax.Array) -> jax.Array:
        return jnp.square(scanned(*arguments)).mean()

    shapes = ((2, 256, 128), (128, 16), (2, 256, 16), (2, 256, 16), (2, 256, 128))
    arguments = tuple(normal(*shape, scale=1.0) for shape in shapes)
    return jax.value_and_grad(loss, argnums=(0, 1, 2, 3, 4)), arguments
