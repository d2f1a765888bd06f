"""stablehlo.fft: transforms of all kinds over the last axes, in primitives of the IR.

In: an array, real or as `Complex`. Out: its transform; no library, so on every device.

    fft(x[n]), ifft, rfft(x[n]) -> [n//2 + 1], irfft(x[n//2 + 1]) -> [n]

Real signals of even length are complex ones of half that length, their even elements the real and
their odd ones the imaginary parts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinyhlo.import_stablehlo.families.fft_passes import (
    both_planes,
    constant_along,
    exchanged,
    passes,
)
from tinyhlo.import_stablehlo.families.fft_tables import (
    GROUP,
    ROW,
    Array,
    good_length,
    groups,
    roots,
)
from tinyhlo.import_stablehlo.lifted.complex_numbers import Complex, by_plane
from tinyhlo.import_stablehlo.lifted.planes import planes, stack
from tinyhlo.import_stablehlo.walker import Rule, on_values
from tinyhlo.ir.build import flip, full, iota, permute, reshape, where
from tinyhlo.ir.dtypes import I32
from tinyhlo.ir.graph import Node
from tinyhlo.ir.joining import join, padded, part


def transform(signal: Node | Complex, kind: str, lengths: Sequence[int]) -> Node | Complex:
    """The transform over the last axes. `kind` is FFT, IFFT, RFFT (of a real array) or IRFFT (which
    gives one); `lengths` are those of the signal, as in stablehlo.fft."""
    rank = len(signal.shape)
    if 0 in signal.shape or 0 in lengths:
        return empty(signal, kind, lengths[-1])
    outer = range(rank - len(lengths) + 1, rank)  # of [plane, ...]: all but the last axis
    inverse = kind in ("IFFT", "IRFFT")
    x = stack(signal)
    if kind == "IRFFT":
        for axis in outer:
            x = along(x, axis, inverse)
        return real_signal(x, lengths[-1])
    x = real_spectrum(x) if kind == "RFFT" else along(x, rank, inverse, paired=not outer)
    for axis in outer:
        x = along(x, axis, inverse, paired=axis == outer[-1])
    return planes(x)


def along(x: Node, axis: int, inverse: bool, paired: bool = False) -> Node:
    """The complex transform of x[plane, ...] along one axis."""
    n = x.shape[axis]
    scale = 1 / n if inverse else 1.0
    factors = groups(n, ROW if axis == len(x.shape) - 1 else GROUP)
    if factors is None:
        return convolved(x, axis, scale, inverse)
    return passes(x, axis, factors, scale, inverse, paired)


def real_spectrum(x: Node) -> Node:
    """[2, ..., n//2 + 1] from the real x[1, ..., n], along the last axis."""
    axis, n = len(x.shape) - 1, x.shape[-1]
    half = n // 2
    if n % 2:
        return part(along(x, axis, inverse=False), -1, 0, half + 1)
    pairs = reshape(x, (*x.shape[1:-1], half, 2))
    z = along(permute(pairs, (axis, *range(axis))), axis, inverse=False)
    # x = even + i odd: z[k] and conj(z[half-k]) tell the spectra of both apart.
    every = planes(z)
    re_first, im_first = by_plane(lambda plane: part(plane, -1, 0, 1), every).planes
    first, last = re_first + im_first, re_first - im_first
    zero = full(0, first.shape, x.dtype)
    if half == 1:
        return stack(Complex(join([first, last], axis - 1), join([zero, zero], axis - 1)))
    z = by_plane(lambda plane: part(plane, -1, 1, half), every)
    back = by_plane(lambda plane: flip(plane, (axis - 1,)), z)
    factors = constant_along(roots(np.arange(1, half), n) / 2, z.shape, (axis - 1,), x.dtype)
    even = Complex((z.re + back.re) * 0.5, (z.im - back.im) * 0.5)
    spectrum = even + Complex(z.im + back.im, back.re - z.re) * factors
    re = join([first, spectrum.re, last], axis - 1)
    return stack(Complex(re, join([zero, spectrum.im, zero], axis - 1)))


def real_signal(x: Node, n: int) -> Node:
    """The real [..., n] of which x[2, ..., n//2 + 1] is the spectrum. The imaginary parts of what
    is real in any such spectrum do not count."""
    axis, half = len(x.shape) - 1, n // 2
    given = planes(part(x, -1, 0, half + 1))
    position = iota(given.shape, I32, axis - 1)
    real = position.equals(0)
    if n % 2 == 0:
        real = real | position.equals(half)
    given = Complex(given.re, where(real, 0, given.im))
    if n % 2:
        return odd_signal(given, n)
    z = by_plane(lambda plane: part(plane, -1, 0, half), given)
    back = by_plane(lambda plane: flip(part(plane, -1, 1, half + 1), (axis - 1,)), given)
    factors = constant_along(roots(np.arange(half), n).conj() / 2, z.shape, (axis - 1,), x.dtype)
    even = Complex((z.re + back.re) * 0.5, (z.im - back.im) * 0.5)
    odd = Complex(z.re - back.re, z.im + back.im) * factors
    z = stack(Complex(even.re - odd.im, even.im + odd.re))
    z = along(z, axis, inverse=True, paired=True)
    pairs = permute(z, (*range(1, axis + 1), 0))
    return reshape(pairs, (*x.shape[1:-1], n))


def odd_signal(spectrum: Complex, n: int) -> Node:
    """By the complex transform of the whole spectrum; its other half is the conjugate."""
    axis = len(spectrum.shape) - 1
    if n > 1:
        back = by_plane(lambda plane: flip(part(plane, -1, 1, n // 2 + 1), (axis,)), spectrum)
        whole = Complex(back.re, -back.im)
        spectrum = by_plane(lambda *halves: join(list(halves), axis), spectrum, whole)
    return planes(along(stack(spectrum), axis + 1, inverse=True)).re


def empty(signal: Node | Complex, kind: str, n: int) -> Node | Complex:
    """Of an array without elements."""
    shape = (*signal.shape[:-1], n // 2 + 1 if kind == "RFFT" and n else n)
    plane = full(0, shape, signal.dtype)
    return plane if kind == "IRFFT" else Complex(plane, plane)


def convolved(x: Node, axis: int, scale: float, inverse: bool) -> Node:
    """The transform of x[plane, ...] along `axis`, of a length with a large prime factor. With
    w = exp(-2 pi i / n) and j*k = (j^2 + k^2 - (k - j)^2) / 2,

        y[k] = w^(k^2/2) * sum over j of (x[j] * w^(j^2/2)) * w^(-(k - j)^2/2)

    is a convolution, computed by two transforms of a length without large factors (Bluestein, IEEE
    Trans. Audio Electroacoust. 18, 1970). Angles are reduced in integers, the transform of the
    chirp is a constant."""
    if inverse:
        return exchanged(convolved(exchanged(x), axis, scale, inverse=False))
    n = x.shape[axis]
    whole = ROW if axis == len(x.shape) - 1 else GROUP
    length = good_length(2 * n - 1, whole)
    factors = groups(length, whole)
    assert factors is not None
    chirp = roots(squares(n), 2 * n)
    kernel = np.zeros(length, complex)
    kernel[:n] = chirp.conj()
    kernel[length - n + 1 :] = chirp[:0:-1].conj()
    x = times(both_planes(x), chirp, axis)
    x = padded(x, axis, 0, length - n)
    x = passes(x, axis, factors)
    x = times(x, np.fft.fft(kernel), axis)
    x = passes(x, axis, factors, 1.0 / length, inverse=True)
    return times(part(x, axis, 0, n), chirp * scale, axis)


def squares(n: int) -> Array:
    """k^2 modulo 2n, without overflow for any n that fits memory."""
    return np.arange(n, dtype=np.uint64) ** 2 % np.uint64(2 * n)


def times(x: Node, factors: Array, axis: int) -> Node:
    """x[plane, ...] times a complex vector along `axis`."""
    vector = constant_along(factors, x.shape[1:], (axis - 1,), x.dtype)
    return stack(planes(x) * vector)


RULES: dict[str, Rule] = {"stablehlo.fft": on_values(transform, "fft_type", "fft_length")}
