"""Taps of a convolution's kernel that meet padding alone are left out."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
import pytest
from jax import lax

from tests.import_stablehlo.imports import import_module
from tests.plugs import interpret
from tinyhlo.ir.graph import Window

Program = tuple[Callable[[jax.Array, jax.Array], jax.Array], tuple[np.ndarray, np.ndarray]]


def lowered(
    steps: int, taps: int, pad: tuple[int, int], stride: int, base: int, apart: int
) -> Program:
    """Of an array [2, steps, 3]: (function, its inputs)."""
    generator = np.random.default_rng(0)
    x, w = (generator.standard_normal(s).astype("f4") for s in ((2, steps, 3), (taps, 3, 4)))

    def convolve(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            x, w, (stride,), [pad], (base,), (apart,), ("NWC", "WIO", "NWC")
        )

    return convolve, (x, w)


@pytest.mark.parametrize(
    ("steps", "taps", "pad", "stride", "base", "apart", "left"),
    [
        (3, 11, (10, 0), 1, 1, 1, 3),  # the last three
        (3, 11, (0, 10), 1, 1, 1, 3),  # the first
        (3, 5, (10, 10), 1, 1, 1, 5),
        (3, 5, (4, 6), 9, 1, 1, 1),  # one window
        (3, 3, (64, 64), 1, 1, 32, 3),
        (30, 3, (64, 0), 1, 1, 32, 1),
        (4, 9, (9, -1), 2, 3, 1, 8),
    ],
)
def test_taps_that_meet_padding_alone(
    steps: int, taps: int, pad: tuple[int, int], stride: int, base: int, apart: int, left: int
) -> None:
    function, inputs = lowered(steps, taps, pad, stride, base, apart)
    text = jax.jit(function).lower(*inputs).as_text()
    windows = [n.size for n in import_module(text).graph.nodes() if isinstance(n, Window)]
    assert max((max(size) for size in windows), default=1) == left
    (got,) = interpret(text, inputs)
    np.testing.assert_allclose(got, np.asarray(function(*inputs)), rtol=1e-5, atol=1e-5)


def test_no_tap_meets_anything() -> None:
    function, inputs = lowered(3, 4, (20, -6), 1, 1, 1)
    (got,) = interpret(jax.jit(function).lower(*inputs).as_text(), inputs)
    assert got.shape == np.asarray(function(*inputs)).shape and not got.any()
