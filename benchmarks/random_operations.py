"""Operations on arrays of any type and shape, drawn by number, for benchmarks/sweep.py.

    function, arguments = drawn(1052)          # the same one each time
    arguments                                  # "f32[1,3,3969,29]"

What somebody chose to time has round extents; users' arrays have rows of 5, axes of 1, odd types.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.operations import Operation

Shape = tuple[int, ...]
TYPES = ("f32",) * 8 + ("bf16", "f16", "i32", "u8", "pred", "f64", "c64")
SIZES = 3.5, 6.5  # powers of ten: elements of an argument


class Draw(random.Random):
    """What an operation is drawn from."""

    def shape(self, rank: int = 0, most: float = SIZES[1]) -> Shape:
        rank = rank or self.choice((1, 2, 2, 3, 3, 4, 5))
        left = int(10 ** self.uniform(SIZES[0], most))
        extents: list[int] = []
        for axes in range(rank, 1, -1):
            extents.append(max(1, round(left ** (1.2 * self.random() / axes))))
            left = max(1, left // extents[-1])
        extents.append(left)
        self.shuffle(extents)
        return tuple(extents)

    def axes(self, shape: Shape) -> Shape:
        return tuple(sorted(self.sample(range(len(shape)), self.randint(1, len(shape)))))

    def some(self, shape: Shape) -> Shape:
        """The same with some extents 1, to be broadcast."""
        return tuple(extent if self.random() < 0.5 else 1 for extent in shape)


def argument(kind: str, shape: Shape, bound: int = 0) -> str:
    return f"{kind}[{','.join(map(str, shape))}]" + (f"<{bound}" if bound else "")


def ordered(kind: str, other: str = "f32") -> str:
    """The type, or another one for booleans and complex numbers, which have no order."""
    return other if kind in ("pred", "c64") else kind


def reduced(draw: Draw, kind: str) -> Operation:
    shape, way = draw.shape(), draw.choice((jnp.sum, jnp.max, jnp.mean, jnp.any))
    axes = draw.axes(shape)
    return lambda x: way(x, axis=axes), argument(ordered(kind), shape)


def moved(draw: Draw, kind: str) -> Operation:
    shape = draw.shape()
    order = draw.sample(range(len(shape)), len(shape))
    way = draw.choice((lambda x: x, lambda x: -x))
    return lambda x: way(jnp.transpose(x, order)), argument(ordered(kind), shape)


def flipped(draw: Draw, kind: str) -> Operation:
    shape = draw.shape()
    axes = draw.axes(shape)
    return lambda x: jnp.flip(x, axes), argument(kind, shape)


def padded(draw: Draw, kind: str) -> Operation:
    shape = draw.shape()
    widths = [(draw.randint(0, 3), draw.randint(0, 3)) for _ in shape]
    return lambda x: jnp.pad(x, widths), argument(kind, shape)


def joined(draw: Draw, kind: str) -> Operation:
    shape, count = draw.shape(draw.randint(1, 3), 6.0), draw.choice((2, 3, 5))
    axis, way = draw.randrange(len(shape)), draw.choice((jnp.concatenate, jnp.stack))
    return lambda *parts: way(parts, axis), " ".join([argument(kind, shape)] * count)


def repeated(draw: Draw, kind: str) -> Operation:
    shape, times = draw.shape(most=6.0), draw.choice((2, 3, 5))
    axis = draw.randrange(len(shape))
    return lambda x: jnp.repeat(x, times, axis), argument(kind, shape)


def sliced(draw: Draw, kind: str) -> Operation:
    shape = draw.shape()
    parts = tuple(
        slice(draw.randint(0, n // 4), n - draw.randint(0, n // 4), draw.choice((1, 1, 2, 3)))
        for n in shape
    )
    return lambda x: x[parts], argument(kind, shape)


def broadcast(draw: Draw, kind: str) -> Operation:
    shape = draw.shape()
    other = argument(ordered(kind), draw.some(shape))
    return lambda x, y: x * y + y, f"{argument(ordered(kind), shape)} {other}"


def chosen(draw: Draw, kind: str) -> Operation:
    shape = draw.shape()
    given = [argument("pred", draw.some(shape)), *[argument(kind, shape)] * 2]
    return jnp.where, " ".join(given)


def taken(draw: Draw, kind: str) -> Operation:
    shape = draw.shape(draw.randint(1, 3))
    axis = draw.randrange(len(shape))
    count = min(int(10 ** draw.uniform(1, 5)), max(1, 4_000_000 * shape[axis] // prod(shape)))
    places = argument("i32", (count,), shape[axis])
    return lambda x, i: jnp.take(x, i, axis=axis), f"{argument(kind, shape)} {places}"


def scattered(draw: Draw, kind: str) -> Operation:
    shape, way = draw.shape(draw.randint(1, 2)), draw.choice(("add", "set", "max"))
    count = min(int(10 ** draw.uniform(1, 5)), max(1, 4_000_000 * shape[0] // prod(shape)))
    kind = ordered(kind)
    given = argument(kind, shape), argument("i32", (count,), shape[0])
    rows = argument(kind, (count, *shape[1:]))
    return lambda x, i, y: getattr(x.at[i], way)(y), " ".join((*given, rows))


def accumulated(draw: Draw, kind: str) -> Operation:
    shape = draw.shape()
    axis, way = draw.randrange(len(shape)), draw.choice((lax.cumsum, lax.cummax, lax.cumprod))
    return lambda x: way(x, axis), argument(ordered(kind), shape)


def sorted_rows(draw: Draw, kind: str) -> Operation:
    shape = draw.shape(most=5.8)
    axis, way = draw.randrange(len(shape)), draw.choice((jnp.sort, jnp.argsort))
    return lambda x: way(x, axis=axis), argument(ordered(kind), shape)


def first_greatest(draw: Draw, kind: str) -> Operation:
    shape = draw.shape()
    axis = draw.randrange(len(shape))
    return lambda x: jnp.argmax(x, axis), argument(ordered(kind), shape)


def normalised(draw: Draw, kind: str) -> Operation:
    shape = draw.shape()
    axes = draw.axes(shape)[:2]
    kind = kind if kind in ("bf16", "f16", "f64") else "f32"
    way: Callable[..., Any] = draw.choice((jax.nn.softmax, jnp.std, jax.nn.standardize))
    return lambda x: way(x, axis=axes), argument(kind, shape)


def multiplied(draw: Draw, kind: str) -> Operation:
    batch = draw.choice(((), (), (1,), (7,), (64,)))
    size = 10 ** draw.uniform(1.3, 2.6) / prod(batch) ** (1 / 3)
    rows, depth, columns = (max(1, int(size * 2 ** draw.uniform(-2, 2))) for _ in range(3))
    left, right = (*batch, rows, depth), (*batch, depth, columns)
    turned = draw.random() < 0.5
    right = (*right[:-2], columns, depth) if turned else right
    kind = kind if kind in ("bf16", "f64", "c64") else "f32"

    def product(x: jax.Array, y: jax.Array) -> jax.Array:
        return x @ (jnp.swapaxes(y, -1, -2) if turned else y)

    return product, f"{argument(kind, left)} {argument(kind, right)}"


FAMILIES: tuple[Callable[[Draw, str], Operation], ...] = (
    *(reduced, moved, flipped, padded, joined, repeated, sliced, broadcast, chosen, taken),
    *(scattered, accumulated, sorted_rows, first_greatest, normalised, multiplied),
)


def drawn(number: int) -> tuple[str, Operation]:
    """The name and the operation of a number."""
    draw = Draw(number)
    family = draw.choice(FAMILIES)
    return f"{number} {family.__name__}", family(draw, draw.choice(TYPES))
