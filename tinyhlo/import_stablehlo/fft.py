"""stablehlo.fft: transforms of all kinds over the last axes, in primitives of the IR.

In: an array, real or as `Complex`. Out: its transform; no library, so on every device.

    fft(x[n]), ifft, rfft(x[n]) -> [n//2 + 1], irfft(x[n//2 + 1]) -> [n]

Real signals of even length are complex ones of half that length, their even elements the real and
their odd ones the imaginary parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyhlo.import_stablehlo.complex_numbers import Complex
from tinyhlo.import_stablehlo.fft_chirp import convolved
from tinyhlo.import_stablehlo.fft_passes import Direction, constant_along, passes
from tinyhlo.import_stablehlo.fft_tables import GROUP, ROW, groups, roots
from tinyhlo.import_stablehlo.joining import join
from tinyhlo.import_stablehlo.planes import planes, stack
from tinyhlo.import_stablehlo.records import Operation
from tinyhlo.import_stablehlo.walker import Rule, Scope
from tinyhlo.ir.build import (
    flip,
    full,
    iota,
    permute,
    reshape,
    slice_,
    where,
)
from tinyhlo.ir.dtypes import I32
from tinyhlo.ir.graph import Node


def fft_planes(
    re: Node, im: Node | None, kind: str, lengths: Sequence[int]
) -> tuple[Node, Node | None]:
    """The transform over the last axes. `kind` is FFT, IFFT, RFFT (no `im`) or IRFFT (no imaginary
    part in the result); `lengths` are those of the signal, as in stablehlo.fft."""
    rank = len(re.shape)
    if 0 in re.shape or 0 in lengths:
        return empty(re, kind, lengths[-1])
    outer = range(rank - len(lengths) + 1, rank)  # of [plane, ...]: all but the last axis
    inverse = kind in ("IFFT", "IRFFT")
    x = stack(re, im)
    if kind == "IRFFT":
        for axis in outer:
            x = along(x, axis, inverse)
        return real_signal(x, lengths[-1]), None
    x = real_spectrum(x) if kind == "RFFT" else along(x, rank, inverse, paired=not outer)
    for axis in outer:
        x = along(x, axis, inverse, paired=axis == outer[-1])
    return planes(x)


def along(x: Node, axis: int, inverse: bool, paired: bool = False) -> Node:
    """The complex transform of x[plane, ...] along one axis."""
    n = x.shape[axis]
    direction = Direction(inverse, 1 / n if inverse else 1.0)
    factors = groups(n, ROW if axis == len(x.shape) - 1 else GROUP)
    if factors is None:
        return convolved(x, axis, direction)
    return passes(x, axis, factors, direction, paired)


def real_spectrum(x: Node) -> Node:
    """[2, ..., n//2 + 1] from the real x[1, ..., n], along the last axis."""
    axis, n = len(x.shape) - 1, x.shape[-1]
    half = n // 2
    if n % 2:
        return last_axis(along(x, axis, inverse=False), 0, half + 1)
    pairs = reshape(x, (*x.shape[1:-1], half, 2))
    z = along(permute(pairs, (axis, *range(axis))), axis, inverse=False)
    # x = even + i odd: z[k] and conj(z[half-k]) tell the spectra of both apart.
    re, im = planes(z)
    assert im is not None
    re_first, im_first = (last_axis(part, 0, 1) for part in (re, im))
    first, last = re_first + im_first, re_first - im_first
    zero = full(0, first.shape, x.dtype)
    if half == 1:
        return stack(join([first, last], axis - 1), join([zero, zero], axis - 1))
    a, b = (last_axis(part, 1, half) for part in (re, im))
    c, d = (flip(part, (axis - 1,)) for part in (a, b))
    factors = constant_along(roots(np.arange(1, half), n) / 2, a.shape, (axis - 1,), x.dtype)
    even_re, even_im = (a + c) * 0.5, (b - d) * 0.5
    spectrum = Complex(even_re, even_im) + Complex(b + d, c - a) * factors
    return stack(
        join([first, spectrum.re, last], axis - 1), join([zero, spectrum.im, zero], axis - 1)
    )


def real_signal(x: Node, n: int) -> Node:
    """The real [..., n] of which x[2, ..., n//2 + 1] is the spectrum. The imaginary parts of what
    is real in any such spectrum do not count."""
    axis, half = len(x.shape) - 1, n // 2
    re, im = planes(last_axis(x, 0, half + 1))
    assert im is not None
    position = iota(im.shape, I32, axis - 1)
    real = position.equals(0)
    if n % 2 == 0:
        real = real | position.equals(half)
    im = where(real, 0, im)
    if n % 2:
        return odd_signal(re, im, n)
    a, b = (last_axis(part, 0, half) for part in (re, im))
    c, d = (flip(last_axis(part, 1, half + 1), (axis - 1,)) for part in (re, im))
    factors = roots(np.arange(half), n).conj() / 2
    even_re, even_im = (a + c) * 0.5, (b - d) * 0.5
    odd = Complex(a - c, b + d) * constant_along(factors, a.shape, (axis - 1,), x.dtype)
    z = stack(even_re - odd.im, even_im + odd.re)
    z = along(z, axis, inverse=True, paired=True)
    pairs = permute(z, (*range(1, axis + 1), 0))
    return reshape(pairs, (*x.shape[1:-1], n))


def odd_signal(re: Node, im: Node, n: int) -> Node:
    """By the complex transform of the whole spectrum; its other half is the conjugate."""
    axis = len(re.shape) - 1
    if n > 1:
        mirrored = [flip(last_axis(part, 1, n // 2 + 1), (axis,)) for part in (re, im)]
        re = join([re, mirrored[0]], axis)
        im = join([im, -mirrored[1]], axis)
    signal, _ = planes(along(stack(re, im), axis + 1, inverse=True))
    return signal


def empty(re: Node, kind: str, n: int) -> tuple[Node, Node | None]:
    """Of an array without elements."""
    extent = {"RFFT": n // 2 + 1, "IRFFT": n}.get(kind, n)
    plane = full(0, (*re.shape[:-1], extent), re.dtype)
    return plane, None if kind == "IRFFT" else plane


def last_axis(x: Node, start: int, stop: int) -> Node:
    begin = [0] * (len(x.shape) - 1)
    return slice_(x, [*begin, start], [*x.shape[:-1], stop])


def fft(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> list[Any]:
    kind, lengths = operation.attributes["fft_type"], operation.attributes["fft_length"]
    (x,) = inputs
    re, im = x.planes if isinstance(x, Complex) else (x, None)
    result_re, result_im = fft_planes(re, im, kind, lengths)
    return [result_re if result_im is None else Complex(result_re, result_im)]


RULES: dict[str, Rule] = {"stablehlo.fft": fft}
