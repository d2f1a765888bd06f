"""Fourier transforms of lengths with a large prime factor, as convolutions with a chirp.

In and out as in `fft_passes.py`. With w = exp(-2 pi i / n) and j*k = (j^2 + k^2 - (k - j)^2) / 2,

    y[k] = w^(k^2/2) * sum over j of (x[j] * w^(j^2/2)) * w^(-(k - j)^2/2)

is a convolution, computed by two transforms of a length without large factors (Bluestein, IEEE
Trans. Audio Electroacoust. 18, 1970). Angles are reduced in integers, the transform of the chirp
is a constant.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyhlo.import_stablehlo.fft_passes import Direction, both_planes, constant_along, passes
from tinyhlo.import_stablehlo.fft_tables import GROUP, ROW, good_length, groups, roots
from tinyhlo.import_stablehlo.planes import planes, stack
from tinyhlo.ir.build import pad, scalar, slice_
from tinyhlo.ir.graph import Node

Array = np.ndarray[Any, Any]


def convolved(x: Node, axis: int, direction: Direction) -> Node:
    """The transform of x[plane, ...] along `axis`."""
    n = x.shape[axis]
    length = good_length(2 * n - 1)
    factors = groups(length, ROW if axis == len(x.shape) - 1 else GROUP)
    assert factors is not None
    chirp = roots(squares(n), 2 * n)
    if direction.inverse:
        chirp = chirp.conj()
    kernel = np.zeros(length, complex)
    kernel[:n] = chirp.conj()
    kernel[length - n + 1 :] = chirp[:0:-1].conj()
    x = times(both_planes(x), chirp, axis)
    x = padded(x, axis, length)
    x = passes(x, axis, factors, Direction(False, 1.0), False)
    x = times(x, np.fft.fft(kernel), axis)
    x = passes(x, axis, factors, Direction(True, 1.0 / length), False)
    stop = [n if k == axis else extent for k, extent in enumerate(x.shape)]
    x = slice_(x, [0] * len(x.shape), stop)
    return times(x, chirp * direction.scale, axis)


def squares(n: int) -> Array:
    """k^2 modulo 2n, without overflow for any n that fits memory."""
    return np.arange(n, dtype=np.uint64) ** 2 % np.uint64(2 * n)


def times(x: Node, factors: Array, axis: int) -> Node:
    """x[plane, ...] times a complex vector along `axis`."""
    vector = constant_along(factors, x.shape[1:], (axis - 1,), x.dtype)
    return stack(planes(x) * vector)


def padded(x: Node, axis: int, length: int) -> Node:
    high = [length - n if k == axis else 0 for k, n in enumerate(x.shape)]
    return pad(x, scalar(0, x.dtype), [0] * len(high), high)
