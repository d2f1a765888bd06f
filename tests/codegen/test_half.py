"""float16 on a processor without conversions of it: against NumPy, bit for bit."""

from __future__ import annotations

import platform

import numpy as np
import pytest

from tinyhlo.compiler import compile_module
from tinyhlo.config import Config

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64 without F16C")
CONVERT = """func.func public @main(%x: tensor<{n}x{source}>) -> tensor<{n}x{target}> {{
  %0 = stablehlo.convert %x : (tensor<{n}x{source}>) -> tensor<{n}x{target}>
  return %0 : tensor<{n}x{target}>
}}"""


def converted(x: np.ndarray, source: str, target: str) -> np.ndarray:
    text = CONVERT.format(n=x.size, source=source, target=target)
    (y,) = compile_module(text, Config(cpu="x86-64", cache=0))(x)
    return y


def test_every_half_widens_exactly() -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    np.testing.assert_array_equal(converted(x, "f16", "f32"), x.astype(np.float32))


def test_floats_round_to_nearest_even() -> None:
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)  # finite
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, np.uint32, endpoint=False)
    between = (halves[:-1].astype(np.float64) + halves[1:]).astype(np.float32) / 2  # ties
    x = np.concatenate([halves, between, bits.view(np.float32), [65519.9, 65520, 1e-8, -0.0]])
    x = x.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        want = x.astype(np.float16)
    np.testing.assert_array_equal(converted(x, "f32", "f16"), want)
    np.testing.assert_array_equal(np.signbit(converted(x, "f32", "f16")), np.signbit(want))
