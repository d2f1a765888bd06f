"""Products of f32 by TF32 on a device, against f64 of what the instructions multiply.

    python -m tests.codegen.tf32_programs NV

As `grid_programs.py` it prints a JSON object, what went wrong with which program.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.codegen.grid_programs import Program, dot, of
from tinyhlo.compiler import compile_stages
from tinyhlo.config import Config

X3 = "TF32_TF32_F32_X3"
ROUNDED, SPLIT = 2e-6, 4e-6  # errors by the largest magnitude: sums of f32, in any order
LARGEST = np.finfo(np.float32).max


def conv(stride: int, layout: str = "NHWC") -> Callable[..., jax.Array]:
    numbers = (layout, "HWIO" if layout == "NHWC" else "OIHW", layout)

    def program(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=numbers)

    return program


def transposed(linear: Callable[..., jax.Array], y: jax.Array, *shape: int) -> jax.Array:
    return jax.linear_transpose(linear, jax.ShapeDtypeStruct(shape, y.dtype))(y)[0]


DOTS: dict[str, Program] = {
    "square": (dot, (of(128, 128), of(128, 128))),
    "no multiples of anything": (dot, (of(75, 53), of(53, 91))),
    "one with borders of any size": (dot, (of(200, 104), of(104, 137))),
    "columns of both side by side": (lambda x, y: x.T @ y, (of(200, 256), of(200, 136))),
    "rows and rows": (lambda x, y: x @ y.T, (of(96, 140), of(72, 140))),
    "all turned": (lambda x, y: x.T @ y.T, (of(96, 140), of(72, 96))),
    "a batch of rows and rows": (
        lambda x, y: jnp.einsum("bqhd,bkhd->bhqk", x, y),
        (of(2, 40, 3, 64), of(2, 48, 3, 64)),
    ),
    "a batch": (
        lambda x, y: jnp.einsum("bhqk,bkhd->bqhd", x, y),
        (of(2, 3, 40, 48), of(2, 48, 3, 64)),
    ),
    "work before and after": (
        lambda x, y, b: jax.nn.relu(jnp.abs(x) @ y + b),
        (of(48, 64), of(64, 80), of(80)),
    ),
    "a long depth": (dot, (of(32, 4000), of(4000, 40))),
    "large": (dot, (of(1024, 72), of(72, 2048))),
}
CONVOLUTIONS: dict[str, Program] = {
    "3x3": (conv(1), (of(2, 20, 21, 32), of(3, 3, 32, 48))),
    "3x3, channels first": (conv(1, "NCHW"), (of(2, 32, 20, 20), of(48, 32, 3, 3))),
    "7x7, strided": (conv(2), (of(1, 33, 33, 3), of(7, 7, 3, 32))),
    "1x1, strided": (conv(2), (of(2, 16, 16, 64), of(1, 1, 64, 64))),
    "1x1, channels first": (conv(1, "NCHW"), (of(2, 32, 12, 12), of(48, 32, 1, 1))),
    "gradient of an image": (
        lambda y, w: transposed(lambda x: conv(2)(x, w), y, 2, 14, 14, 32),
        (of(2, 7, 7, 48), of(3, 3, 32, 48)),
    ),
    "gradient of a kernel": (
        lambda x, y: transposed(lambda w: conv(1)(x, w), y, 3, 3, 32, 48),
        (of(2, 12, 12, 32), of(2, 12, 12, 48)),
    ),
}


def rounded(x: np.ndarray) -> np.ndarray:
    """To 10 bits behind the point, halves away from zero."""
    bits = (x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return bits.view(np.float32)


def compiled(program: Program, device: str, precision: str | None, tf32: int = 0) -> Any:
    function, shapes = program
    with jax.default_matmul_precision(precision) if precision else nullcontext():
        traced = jax.jit(function).trace(*shapes)
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
    stages, executable = compile_stages(text, Config(device=device, cache=0, tf32=tf32))
    assert "  mma_tf32(" in stages.compiled.source
    return executable


def given(program: Program) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.standard_normal(s.shape).astype(s.dtype) for s in program[1]]


def compare(program: Program, run: Any, changed: Callable[..., Any], error: float) -> None:
    """With the same in f64, of the `changed` factors: the first two arguments."""
    arguments = given(program)
    exact = [*map(changed, arguments[:2]), *arguments[2:]]
    with jax.enable_x64(True):
        want = jax.jit(program[0])(*(x.astype(np.float64) for x in exact))
    for got, right in zip(run(*arguments), jax.tree.leaves(want), strict=True):
        scale = float(np.abs(right).max())
        np.testing.assert_allclose(got, np.asarray(right), rtol=0, atol=error * scale)


def by_default(program: Program, device: str) -> None:
    compare(program, compiled(program, device, None, 1), rounded, ROUNDED)


def by_precision(program: Program, device: str) -> None:
    compare(program, compiled(program, device, "high"), rounded, ROUNDED)


def by_three(program: Program, device: str) -> None:
    compare(program, compiled(program, device, X3), lambda x: x, SPLIT)


def special(device: str, precision: str) -> None:
    """Infinities stay, NaN too, of any bits; what is large is no infinity, nor is zero times it."""
    program = DOTS["square"]
    x, y = (np.ones((128, 128), np.float32) for _ in range(2))
    payloads = np.array([0x7FFFFFFF, 0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    x[0, 5], x[1, 5], x[2:5, 5] = np.inf, -np.inf, payloads
    x[5, 5] = np.float32(LARGEST * (1 - 2**-11))
    x[5, 6:] = 0
    y[5, 7] = 0
    (got,) = compiled(program, device, precision)(x, y)
    others = np.arange(128) != 7
    assert (got[0, others] == np.inf).all() and (got[1, others] == -np.inf).all()
    assert np.isnan(got[:2, 7]).all() and np.isnan(got[2:5]).all()
    np.testing.assert_allclose(got[5, others], x[5, 5], rtol=1e-6)
    assert (got[6:, others] == 128).all() and (got[6:, 7] == 127).all()


CHECKS: dict[str, Callable[[str], None]] = {
    **{f"{title}, by default": partial(by_default, each) for title, each in DOTS.items()},
    **{f"{title}, in three": partial(by_three, DOTS[title]) for title in [*DOTS][::3]},
    **{
        f"{title}, by precision": partial(by_precision, each)
        for title, each in CONVOLUTIONS.items()
    },
    "special numbers": partial(special, precision="TF32_TF32_F32"),
    "special numbers, in three": partial(special, precision=X3),
}


def main(device: str) -> None:
    wrong: dict[str, str] = {}
    for title, check in CHECKS.items():
        try:
            check(device)
        except Exception:
            wrong[title] = traceback.format_exc()[-3000:]
    print(json.dumps(wrong))


if __name__ == "__main__":
    main(*sys.argv[1:])
