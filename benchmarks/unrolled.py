"""Time programs whose loops are written in Python, tiny and XLA:CPU alternating in one process.

    python -m benchmarks.unrolled [--rounds N] [--markdown] [NAME ...]

JAX traces such a loop turn by turn, so the compiler gets a program that is as long as the loop is:
hundreds or thousands of operations, each in the shape of the one before or in one of its own.
Prints a row for each and writes the section of docs/benchmarks.md. `--markdown` prints that section
and writes nothing; with names, nothing is written either.
"""

from __future__ import annotations

import sys
from functools import reduce
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.layers import (
    Build,
    Model,
    Parameters,
    batch_norm,
    block_weights,
    causal_bias,
    conv,
    normal_of,
    transformer_block,
)
from benchmarks.models import run

PROGRAMS: dict[str, Build] = {}
INTRODUCTION = """## Loops written in Python

By `make bench-unrolled`: programs of hundreds to thousands of operations, which JAX traces turn by
turn. *Compile* is cold. The geometric mean of XLA:CPU's times over tiny's is {mean:.2f}, of the
times to compile {compiling:.2f}.
"""


def program(build: Build) -> Build:
    """Register a program; its docstring is what the table says of it."""
    PROGRAMS[build.__name__] = build
    return build


@program
def recurrent(random: np.random.Generator) -> Model:
    """A recurrent network of 32, 100 steps: the gradient"""
    normal = normal_of(random)

    def loss(own: jax.Array, taken: jax.Array, x: jax.Array) -> jax.Array:
        state = jnp.zeros((8, 32))
        for step in x:
            state = jnp.tanh(step @ taken + state @ own)
        return jnp.square(state).mean()

    return jax.grad(loss, (0, 1)), (normal(32, 32), normal(16, 32), normal(100, 8, 16, scale=1.0))


@program
def transformer(random: np.random.Generator) -> Model:
    """A GPT of 12 layers of 64: the gradient on 2 x 32 tokens"""
    normal = normal_of(random)

    def loss(blocks: Parameters, x: jax.Array) -> jax.Array:
        for block in blocks:
            x = transformer_block(block, x, 4, causal_bias(32))
        return jnp.square(x).mean()

    blocks = [block_weights(normal, 64) for _ in range(12)]
    return jax.grad(loss), (blocks, normal(2, 32, 64, scale=1.0))


@program
def dense_blocks(random: np.random.Generator) -> Model:
    """40 layers, each of all before it joined: the gradient"""
    normal = normal_of(random)

    def loss(layers: Parameters, x: jax.Array) -> jax.Array:
        for weights in layers:
            x = jnp.concatenate([x, jax.nn.relu(x @ weights)], -1)
        return jnp.square(x).mean()

    layers = [normal(16 + 8 * layer, 8) for layer in range(40)]
    return jax.grad(loss), (layers, normal(16, 16, scale=1.0))


@program
def residual_network(random: np.random.Generator) -> Model:
    """16 convolutions of 16 to 128 channels with batch norm: the gradient on 2 images of 32 x 32"""
    normal = normal_of(random)
    widths = [16 << min(layer, 15) // 4 for layer in range(17)]

    def loss(layers: Parameters, x: jax.Array) -> jax.Array:
        for weights in layers:
            narrow, wide = weights.shape[2:]
            y = jax.nn.relu(batch_norm(conv(x, weights, 1 if narrow == wide else 2)))
            x = x + y if narrow == wide else y
        return jnp.square(x).mean()

    layers = [normal(3, 3, *two) for two in pairwise(widths)]
    return jax.grad(loss), (layers, normal(2, 32, 32, 16, scale=1.0))


@program
def writes(random: np.random.Generator) -> Model:
    """100 sums of rows, each written to a place of the table that the next reads"""

    def steps(x: jax.Array) -> jax.Array:
        for turn in range(100):
            x = x.at[turn % 50, turn % 20].set(jnp.tanh(x[turn * 3 % 50].sum()))
        return x

    return steps, (normal_of(random)(50, 20, scale=1.0),)


@program
def runge_kutta(random: np.random.Generator) -> Model:
    """8 Runge-Kutta steps of two coupled pendulums: the gradient of the last place"""

    def rate(state: jax.Array, spring: jax.Array) -> jax.Array:
        angle, speed = state[:2], state[2:]
        return jnp.concatenate([speed, spring * (angle[::-1] - angle) - jnp.sin(angle)])

    def last(state: jax.Array, spring: jax.Array) -> jax.Array:
        for _ in range(8):
            one = rate(state, spring)
            two = rate(state + 0.05 * one, spring)
            three = rate(state + 0.05 * two, spring)
            four = rate(state + 0.1 * three, spring)
            state = state + 0.1 / 6 * (one + 2 * two + 2 * three + four)
        return state[0]

    return jax.grad(last, (0, 1)), (normal_of(random)(4, scale=1.0), np.float32(0.5))


@program
def bodies(random: np.random.Generator) -> Model:
    """8 bodies, 28 pairs: 2 steps of leapfrog"""
    normal = normal_of(random)

    def step(x: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
        force = [jnp.zeros(3) for _ in range(8)]
        for one in range(8):
            for other in range(one):
                apart = x[other] - x[one]
                pull = apart / (jnp.square(apart).sum() + 0.1) ** 1.5
                force[one], force[other] = force[one] + pull, force[other] - pull
        v = v + 0.01 * jnp.stack(force)
        return x + 0.01 * v, v

    def steps(x: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
        return step(*step(x, v))

    return steps, (normal(8, 3, scale=1.0), normal(8, 3, scale=0.1))


@program
def waves(random: np.random.Generator) -> Model:
    """12 steps of a wave on 256 x 256 places, neighbours by jnp.roll"""

    def steps(now: jax.Array, before: jax.Array) -> jax.Array:
        for _ in range(12):
            around = [jnp.roll(now, shift, axis) for axis in (0, 1) for shift in (-1, 1)]
            now, before = 1.2 * now - before + 0.2 * reduce(jnp.add, around), now
        return now

    normal = normal_of(random)
    return steps, (normal(256, 256, scale=1.0), normal(256, 256, scale=1.0))


@program
def life(random: np.random.Generator) -> Model:
    """6 generations of the game of life on 256 x 256 cells"""

    def generations(cells: jax.Array) -> jax.Array:
        for _ in range(6):
            rows = cells + jnp.roll(cells, 1, 0) + jnp.roll(cells, -1, 0)
            nine = rows + jnp.roll(rows, 1, 1) + jnp.roll(rows, -1, 1)
            cells = ((nine == 3) | ((cells == 1) & (nine == 4))).astype(cells.dtype)
        return cells

    return generations, (random.integers(0, 2, (256, 256), np.int32),)


@program
def kalman(random: np.random.Generator) -> Model:
    """20 steps of a Kalman filter of 6 states and 3 measurements: the gradient of its likelihood"""
    normal = normal_of(random)

    def loss(motion: jax.Array, seen: jax.Array, measured: jax.Array) -> jax.Array:
        mean, spread, total = jnp.zeros(6), jnp.eye(6), jnp.zeros(())
        for measurement in measured:
            mean, spread = motion @ mean, motion @ spread @ motion.T + 0.1 * jnp.eye(6)
            error = measurement - seen @ mean
            expected = seen @ spread @ seen.T + jnp.eye(3)
            gain = jnp.linalg.solve(expected, seen @ spread).T
            total += error @ jnp.linalg.solve(expected, error) + jnp.linalg.slogdet(expected)[1]
            mean, spread = mean + gain @ error, spread - gain @ seen @ spread
        return total

    return jax.grad(loss), (normal(6, 6), normal(3, 6), normal(20, 3, scale=1.0))


@program
def circuit(random: np.random.Generator) -> Model:
    """40 gates on 8 qubits: the gradient of an expected value by its 20 angles"""

    def expected(angles: jax.Array) -> jax.Array:
        state = jnp.zeros(256, jnp.complex64).at[0].set(1)
        for gate, angle in enumerate(angles):
            c, s = jnp.cos(angle / 2), jnp.sin(angle / 2)
            pair = state.reshape(1 << gate % 8, 2, -1)
            state = jnp.stack([c * pair[:, 0] - s * pair[:, 1], s * pair[:, 0] + c * pair[:, 1]], 1)
            four = state.reshape(1 << gate % 7, 2, 2, -1)
            state = jnp.concatenate([four[:, :1], four[:, 1:, ::-1]], 1).reshape(-1)
        return jnp.square(jnp.abs(state[:128])).sum()

    return jax.grad(expected), (random.uniform(0, 3, 20).astype(np.float32),)


@program
def split_steps(random: np.random.Generator) -> Model:
    """4 steps of a Schroedinger equation on 64 x 64 places, two FFTs each"""
    normal = normal_of(random)

    def steps(state: jax.Array, potential: jax.Array) -> jax.Array:
        k = jnp.square(jnp.fft.fftfreq(64))
        moved = jnp.exp(-4j * (k[:, None] + k))
        for _ in range(4):
            state = jnp.fft.ifft2(moved * jnp.fft.fft2(state * jnp.exp(-0.1j * potential)))
        return state

    return steps, (normal(64, 64, scale=1.0).astype(np.complex64), normal(64, 64, scale=1.0))


def main() -> int:
    return run(PROGRAMS, INTRODUCTION, __doc__ or "")


if __name__ == "__main__":
    sys.exit(main())
