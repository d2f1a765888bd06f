"""Matrix products and convolutions against XLA:CPU: GFLOP/s, and milliseconds to compile.

    python -m benchmarks.matmul [--seconds 5]

Both run in this process, in turns, on buffers that exist; the medians are compared. tinyhlo's
kernel is called through its native entry, XLA's through a compiled jax.jit function.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.passes import Caller
from tinyhlo.compiler import compile_stages
from tinyhlo.config import Config


@dataclass(frozen=True)
class Case:
    name: str
    function: Callable[..., jax.Array]
    shapes: tuple[tuple[int, ...], ...]
    multiply_adds: int


def convolution(x: jax.Array, w: jax.Array) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)


def matmul(m: int, k: int, n: int) -> Case:
    return Case(f"{m}x{k}x{n}", jnp.dot, ((m, k), (k, n)), m * k * n)


CASES = (
    matmul(64, 64, 64),
    matmul(256, 256, 256),
    matmul(512, 512, 512),
    matmul(1024, 1024, 1024),
    matmul(1000, 300, 700),
    Case("512 x w.T", lambda x, w: x @ w.T, ((512, 512), (512, 512)), 512**3),
    Case("512 x.T w", lambda x, w: x.T @ w, ((512, 512), (512, 512)), 512**3),
    Case("batch 32x64x128x64", jnp.matmul, ((32, 64, 128), (32, 128, 64)), 32 * 64 * 128 * 64),
    Case(
        "conv 8x56x56x64 3x3",
        convolution,
        ((8, 56, 56, 64), (3, 3, 64, 64)),
        8 * 56 * 56 * 64 * 64 * 9,
    ),
    Case(
        "conv weight gradient",
        jax.grad(lambda w, x: (convolution(x, w) ** 2).sum() / 2),
        ((3, 3, 32, 32), (4, 28, 28, 32)),
        2 * 4 * 28 * 28 * 32 * 32 * 9,
    ),
)


def compare(case: Case, seconds: float, threads: int) -> None:
    generator = np.random.default_rng(0)
    inputs = [generator.standard_normal(shape).astype(np.float32) for shape in case.shapes]
    text = jax.jit(case.function).lower(*inputs).as_text()
    stages, executable = compile_stages(text, Config(cache=0, threads=threads))
    caller = Caller(executable, inputs)
    given = [jax.device_put(x) for x in inputs]
    compiled = jax.jit(case.function).lower(*given).compile()
    expected = np.asarray(compiled(*given))
    error = np.abs(caller.results[0] - expected).max() / np.abs(expected).max()
    ours: list[float] = []
    theirs: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        ours.append(caller.seconds(1))
        begin = time.perf_counter()
        compiled(*given).block_until_ready()
        theirs.append(time.perf_counter() - begin)
    mine, xla = median(ours), median(theirs)
    scale = 2 * case.multiply_adds / 1e9
    print(
        f"{case.name:22} {scale / mine:8.1f} {scale / xla:8.1f} {xla / mine:7.2f}x "
        f"{scale / min(ours):8.1f} {scale / min(theirs):8.1f} "
        f"{stages.seconds['codegen'] * 1e3:7.0f} ms  error {error:.0e}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="per case")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="part of a case's name")
    options = parser.parse_args()
    print(f"{'GFLOP/s':22} {'tinyhlo':>8} {'XLA':>8} {'ratio':>8} {'best':>8} {'best':>8} compile")
    for case in CASES:
        if options.only in case.name:
            compare(case, options.seconds, options.threads)


if __name__ == "__main__":
    main()
