"""Training steps at their true size, each backend in a process of its own: seconds and memory.

    python -m benchmarks.large [--markdown] [NAME ...]

GPT-2 with 124 million weights, once and twice as deep; tables of embeddings; a large graph. Writes
its section of docs/benchmarks.md; with names, or with `--markdown`, it only prints.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.layers import (
    Model,
    Parameters,
    adam_step,
    block_weights,
    causal_bias,
    cross_entropy,
    mlp,
    mlp_weights,
    normal_of,
    transformer_block,
    zeros_like,
)
from benchmarks.memory import apart, peak, resident
from benchmarks.record import markdown_table, write_section
from benchmarks.runner import BACKENDS, compile_cold, warm_devices

STEPS = 3
COLUMNS = (
    "program", "what", "tiny s", "XLA:CPU s", "ratio", "compile tiny s", "compile XLA s",
    "memory tiny MiB", "memory XLA MiB", "difference",
)  # fmt: skip
INTRODUCTION = """## Training steps at their true size

By `make bench-large`: medians of three steps, each backend in a process of its own; what a step
updates is donated. *Compile* is cold. *Memory* is what the process holds at most while it steps,
less what it held before with its arguments on the device. *Difference* is that of the losses after
three steps.
"""
Figures = dict[str, float]


def gpt2(layers: int, type_: Any, random: np.random.Generator) -> Model:
    """Adam on a text of 512 tokens."""
    normal = normal_of(random)
    width, heads, words, length = 768, 12, 50257, 512
    p = {
        "words": normal(words, width, scale=0.02),
        "places": normal(length, width, scale=0.02),
        "blocks": [block_weights(normal, width) for _ in range(layers)],
    }

    def loss(p: Parameters, tokens: jax.Array) -> jax.Array:
        p = jax.tree.map(lambda leaf: leaf.astype(type_), p)
        x = p["words"][tokens[:, :-1]] + p["places"]
        for block in p["blocks"]:
            x = transformer_block(block, x, heads, causal_bias(length).astype(type_))
        return cross_entropy((x @ p["words"].T).astype(jnp.float32), tokens[:, 1:])

    return adam_step(loss), (
        (p, zeros_like(p), zeros_like(p)),
        random.integers(0, words, (1, length + 1), np.int32),
    )


def tables(random: np.random.Generator) -> Model:
    """A recommendation from 8 tables of 1,000,000 x 16, all updated."""
    normal = normal_of(random)
    count, rows, width, batch = 8, 1_000_000, 16, 8192
    p = {
        "tables": [normal(rows, width, scale=0.01) for _ in range(count)],
        "mlp": mlp_weights(normal, count * width, 512, 256, 1),
    }

    def loss(p: Parameters, rows: jax.Array, y: jax.Array) -> jax.Array:
        x = jnp.concatenate([table[rows[:, k]] for k, table in enumerate(p["tables"])], -1)
        return jnp.square(mlp(p["mlp"], x, jax.nn.relu)[:, 0] - y).mean()

    def step(p: Parameters, *batch: jax.Array) -> Any:
        value, gradient = jax.value_and_grad(loss)(p, *batch)
        return jax.tree.map(lambda w, g: w - 0.1 * g, p, gradient), value

    found = random.integers(0, rows, (batch, count), np.int32)
    return step, ((p,), found, normal(batch, scale=1.0))


def graph(random: np.random.Generator) -> Model:
    """Two layers of means over 1,000,000 edges between 100,000 nodes of 64, Adam."""
    normal = normal_of(random)
    nodes, edges, width, classes = 100_000, 1_000_000, 64, 16
    p = [{"own": normal(width, width), "sent": normal(width, width)} for _ in range(2)]
    p.append({"head": normal(width, classes)})

    def loss(p: Parameters, x: jax.Array, source: jax.Array, target: jax.Array, y: jax.Array):
        count = jax.ops.segment_sum(jnp.ones(edges), target, nodes)[:, None]
        for layer in p[:-1]:
            mean = jax.ops.segment_sum(x[source], target, nodes) / jnp.maximum(count, 1.0)
            x = jax.nn.relu(x @ layer["own"] + mean @ layer["sent"])
        return cross_entropy(x @ p[-1]["head"], y)

    ends = (random.integers(0, nodes, edges, np.int32) for _ in range(2))
    labels = random.integers(0, classes, nodes, np.int32)
    state = (p, zeros_like(p), zeros_like(p))
    return adam_step(loss), (state, normal(nodes, width, scale=1.0), *ends, labels)


PROGRAMS: dict[str, tuple[str, Callable[[np.random.Generator], Model]]] = {
    "gpt2": ("GPT-2, 12 layers: Adam on 512 tokens", lambda r: gpt2(12, jnp.float32, r)),
    "gpt2_bf16": ("the same, computed in bfloat16", lambda r: gpt2(12, jnp.bfloat16, r)),
    "gpt2_deep": ("24 such layers, in float32", lambda r: gpt2(24, jnp.float32, r)),
    "tables": ("8 tables of 1,000,000 x 16, 8,192 rows read and all updated", tables),
    "graph": ("1,000,000 edges between 100,000 nodes of 64: Adam", graph),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROGRAMS))
    parser.add_argument("--markdown", action="store_true", help="print the section of the page")
    parser.add_argument("--measure", nargs=2, metavar=("NAME", "BACKEND"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*options.measure)))
        return 0
    rows = [row(name) for name in options.names or PROGRAMS]
    section = INTRODUCTION + "\n" + markdown_table(COLUMNS, rows, 2)
    if options.markdown or options.names:
        print(section, end="")
    else:
        write_section(section)
    return 0


def row(name: str) -> tuple[str, ...]:
    both = [apart("benchmarks.large", name, backend) for backend in BACKENDS]
    ours, theirs = both
    return (
        name,
        PROGRAMS[name][0],
        *(f"{figures['seconds']:.3f}" for figures in both),
        f"{theirs['seconds'] / ours['seconds']:.2f}",
        *(f"{figures['compile']:.2f}" for figures in both),
        *(f"{figures['memory'] / 2**20:.0f}" for figures in both),
        f"{abs(ours['loss'] / theirs['loss'] - 1):.0e}",
    )


def measure(name: str, backend: str) -> Figures:
    """Seconds to compile and of a step, bytes that stepping takes, the loss at last."""
    device = warm_devices()[backend]
    function, (state, *batch) = PROGRAMS[name][1](np.random.default_rng(0))
    state, batch = jax.block_until_ready(jax.device_put((state, batch), device))
    count = len(state)
    jitted = jax.jit(function, donate_argnums=range(count))
    compiled, seconds = compile_cold(jitted, (*state, *batch), device)
    before = resident()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    samples: list[float] = []
    loss = 0.0
    for _ in range(STEPS):
        started = time.perf_counter()
        *state, loss = jax.block_until_ready(compiled(*state, *batch))  # type: ignore[misc]
        samples.append(time.perf_counter() - started)
    found = {"compile": seconds, "seconds": statistics.median(samples), "loss": float(loss)}
    return found | {"memory": peak() - before}


if __name__ == "__main__":
    sys.exit(main())
