"""Every way to make an array with every way to read it, for benchmarks/sweep.py.

    function, arguments = pairs()["repeated, sum of columns"]

A compiler is slow where one step meets another: here each producer of f32[512,512] meets each
consumer. Both see x and w of that shape, a row s, 512 row numbers i and one row number k.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import jax
import jax.numpy as jnp
from jax import Array, lax

from benchmarks.operations import Operation

SIDE, HALF = 512, 256
ARGUMENTS = f"f32[512,512] f32[512,512] f32[512] i32[512]<{SIDE} i32[]<{HALF}"

Step = Callable[[Array, Array, Array, Array, Array], Array]  # of x or what was made, w, s, i, k


def normalised(x: Array) -> Array:
    return (x - x.mean(1, keepdims=True)) * lax.rsqrt(x.var(1, keepdims=True) + 1e-5)


def heads(x: Array) -> Array:
    """Heads of attention, apart and together again."""
    return x.reshape(8, 16, 64, 32).transpose(0, 2, 1, 3).reshape(SIDE, SIDE)


PRODUCERS: dict[str, Step] = {
    "an argument": lambda x, w, s, i, k: x,
    "scaled": lambda x, w, s, i, k: x * s + 1,
    "tanh": lambda x, w, s, i, k: jnp.tanh(x),
    "bf16": lambda x, w, s, i, k: x.astype(jnp.bfloat16),
    "i8": lambda x, w, s, i, k: jnp.round(x * 20).astype(jnp.int8),
    "mask": lambda x, w, s, i, k: jnp.where(x > s, x, 0),
    "turned": lambda x, w, s, i, k: x.T,
    "symmetric": lambda x, w, s, i, k: x + x.T,
    "padded": lambda x, w, s, i, k: jnp.pad(x[1:-1, 1:-1], 1),
    "rows joined": lambda x, w, s, i, k: jnp.concatenate([x[:HALF], x[HALF:] * 2], 0),
    "columns joined": lambda x, w, s, i, k: jnp.concatenate([x[:, :250], x[:, 250:] * 2], 1),
    "rolled": lambda x, w, s, i, k: jnp.roll(x, 3, 1),
    "flipped": lambda x, w, s, i, k: x[::-1, ::-1],
    "rows": lambda x, w, s, i, k: x[i],
    "columns": lambda x, w, s, i, k: x[:, i],
    "block twice": lambda x, w, s, i, k: jnp.tile(
        lax.dynamic_slice(x, (k, 0), (HALF, SIDE)), (2, 1)
    ),
    "a row set": lambda x, w, s, i, k: x.at[k].set(s),
    "a column set": lambda x, w, s, i, k: x.at[:, 3].set(s),
    "rows added": lambda x, w, s, i, k: jnp.zeros_like(x).at[i].add(x),
    "cumulative, rows": lambda x, w, s, i, k: jnp.cumsum(x, 1),
    "cumulative, columns": lambda x, w, s, i, k: jnp.cumsum(x, 0),
    "softmax, rows": lambda x, w, s, i, k: jax.nn.softmax(x),
    "softmax, columns": lambda x, w, s, i, k: jax.nn.softmax(x, 0),
    "normalised": lambda x, w, s, i, k: normalised(x) * s,
    "sorted": lambda x, w, s, i, k: jnp.sort(x, 1),
    "product": lambda x, w, s, i, k: x @ w,
    "outer product": lambda x, w, s, i, k: s[:, None] * s,
    "triangle": lambda x, w, s, i, k: jnp.tril(x),
    "one-hot": lambda x, w, s, i, k: jax.nn.one_hot(i, SIDE),
    "heads": lambda x, w, s, i, k: heads(x),
    "pooled": lambda x, w, s, i, k: lax.reduce_window(x, -jnp.inf, lax.max, (3, 3), (1, 1), "SAME"),
    "random": lambda x, w, s, i, k: jax.random.uniform(jax.random.key(0), x.shape) + x[0, 0],
    "chosen": lambda x, w, s, i, k: jnp.where(x > 0, x * 2, w),
    "repeated": lambda x, w, s, i, k: jnp.repeat(x[:, :128], 4, 1),
    "tiled": lambda x, w, s, i, k: jnp.tile(x[:, :128], (1, 4)),
    "stacked": lambda x, w, s, i, k: jnp.stack([x[:, :HALF], w[:, :HALF]], 2).reshape(x.shape),
    "complex": lambda x, w, s, i, k: lax.complex(x, w),
    "scanned": lambda x, w, s, i, k: lax.scan(lambda c, v: (jnp.tanh(c + v), c * v), s, x)[1],
}

CONSUMERS: dict[str, Step] = {
    "sum of columns": lambda y, w, s, i, k: wide(y).sum(0),
    "sum of rows": lambda y, w, s, i, k: wide(y).sum(1),
    "largest": lambda y, w, s, i, k: jnp.abs(y).max(),
    "argmax of rows": lambda y, w, s, i, k: jnp.argmax(y.real, 1),
    "argmax of columns": lambda y, w, s, i, k: jnp.argmax(y.real, 0),
    "turned, doubled": lambda y, w, s, i, k: y.T * 2,
    "rows": lambda y, w, s, i, k: y[i],
    "columns": lambda y, w, s, i, k: y[:, i],
    "few rows": lambda y, w, s, i, k: y[i[:16]],
    "one of each row": lambda y, w, s, i, k: jnp.take_along_axis(y, i[:, None], 1),
    "a block": lambda y, w, s, i, k: lax.dynamic_slice(y, (k, k), (100, 100)),
    "a row": lambda y, w, s, i, k: y[k],
    "a column": lambda y, w, s, i, k: y[:, k],
    "every second": lambda y, w, s, i, k: y[::2, ::2],
    "a row cleared": lambda y, w, s, i, k: y.at[k].set(0),
    "rows added": lambda y, w, s, i, k: jnp.zeros_like(y).at[i].add(y),
    "segments": lambda y, w, s, i, k: jax.ops.segment_sum(wide(y), i % 10, 10),
    "product": lambda y, w, s, i, k: wide(y) @ w,
    "product, turned": lambda y, w, s, i, k: w @ wide(y).T,
    "times a vector": lambda y, w, s, i, k: wide(y) @ s,
    "vector times": lambda y, w, s, i, k: s @ wide(y),
    "cumulative, rows": lambda y, w, s, i, k: jnp.cumsum(wide(y), 1),
    "cumulative, columns": lambda y, w, s, i, k: jnp.cumsum(wide(y), 0),
    "softmax": lambda y, w, s, i, k: jax.nn.softmax(wide(y.real)),
    "deviation of columns": lambda y, w, s, i, k: wide(y).std(0),
    "sorted": lambda y, w, s, i, k: jnp.sort(y.real, 1),
    "top 5": lambda y, w, s, i, k: lax.top_k(wide(y.real), 5)[0],
    "distances": lambda y, w, s, i, k: jnp.abs(wide(y[:64, None]) - y[None, :64]).sum(-1),
    "with its transpose": lambda y, w, s, i, k: wide(y) + y.T,
    "sums of blocks": lambda y, w, s, i, k: wide(y).reshape(64, 8, 64, 8).sum((1, 3)),
    "padded": lambda y, w, s, i, k: jnp.pad(y, 2),
    "differences": lambda y, w, s, i, k: jnp.diff(wide(y), axis=1),
    "trace": lambda y, w, s, i, k: jnp.trace(wide(y)),
    "rows in a loop": lambda y, w, s, i, k: lax.fori_loop(
        0, 20, lambda t, c: c + wide(y)[t] * 2, wide(y)[0]
    ),
    "scan": lambda y, w, s, i, k: lax.scan(
        lambda c, v: (jnp.tanh(c + wide(v.real)), c.sum()), s, y
    )[1],
    "rows of length 1": lambda y, w, s, i, k: (
        wide(y) / (1e-3 + jnp.linalg.norm(wide(y), axis=1, keepdims=True))
    ),
    "any": lambda y, w, s, i, k: (y.real > 1.5).any(1),
    "a branch": lambda y, w, s, i, k: lax.cond(k > 3, lambda y: y * 2, lambda y: y - 1, wide(y)),
    "pooled": lambda y, w, s, i, k: lax.reduce_window(
        wide(y.real), -jnp.inf, lax.max, (2, 2), (2, 2), "VALID"
    ),
    "spectrum": lambda y, w, s, i, k: jnp.abs(jnp.fft.fft(wide(y), axis=1)),
}


def wide(y: Array) -> Array:
    return y.astype(jnp.promote_types(y.dtype, jnp.float32))


def pairs() -> dict[str, Operation]:
    """All of them, by `producer, consumer`."""

    def joined(first: Step, last: Step) -> Operation:
        return lambda x, *given: last(first(x, *given), *given), ARGUMENTS

    steps = product(PRODUCERS.items(), CONSUMERS.items())
    return {f"{one}, {other}": joined(first, last) for (one, first), (other, last) in steps}
