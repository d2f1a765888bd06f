"""Complex Fourier transforms as products with small constant matrices.

In: an array with the plane axis (real and imaginary part) first, and an axis of it. Out: its
transform along that axis. A length n = r0 * r1 * ... takes one pass over the array a factor
(Stockham's autosort form of Cooley and Tukey, Math. Comp. 19, 1965):

    x[t, p, q]  ->  y[p, k, q] = sum over t of w_r^(t*k) * (w_(r*s)^(t*q) * x[t, p, q])

for t, k < r and q < s, the product of the factors before. The sum over t and both planes is a
product with a constant matrix, which `ir/transform.py` recognises and code generation turns into
the butterflies of a fast transform; twiddle factors are multiplied on the way in.

An odd r beyond those is products with matrices of half the size (`by_halves`); a length with a
large prime factor is a convolution (`convolved` in `fft.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tinyhlo.import_stablehlo.families.fft_tables import MAX_RADIX, Array, planes_matrix, roots
from tinyhlo.import_stablehlo.lifted.complex_numbers import Complex
from tinyhlo.import_stablehlo.lifted.planes import is_real_part
from tinyhlo.ir.build import (
    broadcast,
    constant,
    expand,
    flip,
    iota,
    permute,
    reduce,
    reshape,
    where,
)
from tinyhlo.ir.dtypes import I32, DType
from tinyhlo.ir.graph import Node, Shape
from tinyhlo.ir.joining import join, part
from tinyhlo.ir.ops import Op
from tinyhlo.ir.transform import MAX_SIDE
from tinyhlo.records import dataclass

TABLE = 1 << 13  # twiddle factors up to which all of them are in one table
FINE = 32


@dataclass(frozen=True, slots=True)
class Pass:
    """One factor of a group: `radix` points, `rest` times as many before the factors that follow
    in the group, after factors of the group with the product `done`. A `paired` result has the
    parts of each number side by side, in their own order again if the planes are `exchanged`."""

    radix: int
    rest: int
    done: int
    scale: float
    paired: bool
    exchanged: bool


def passes(
    x: Node,
    axis: int,
    groups: tuple[tuple[int, ...], ...],
    scale: float = 1.0,
    inverse: bool = False,
    paired: bool = False,
) -> Node:
    """The complex transform of x[plane, ...] along one axis, whose length is the product of all
    factors, times `scale`; `x` may have the real plane only. `paired` puts the parts of each number
    of the result next to each other in memory.

    The inverse is the transform itself, real and imaginary parts exchanged before and after, so
    that both have the same kernels and constants."""
    n = x.shape[axis]
    if n == 1:
        return scaled(both_planes(x), scale)
    before, after = prod(x.shape[1:axis]), prod(x.shape[axis + 1 :])
    y, s = exchanged(x) if inverse else x, 1
    for group in groups:
        points = prod(group)
        last = n == s * points
        y = reshape(y, (y.shape[0], before, points, n // (s * points), s, after))
        y = run_group(y, group, scale if last else 1.0, paired and last, inverse)
        s *= points
    if not paired:
        y = reshape(y, (2, *x.shape[1:]))
        return exchanged(y) if inverse else y
    rank = len(x.shape)
    return permute(reshape(y, (*x.shape[1:], 2)), (rank - 1, *range(rank - 1)))


def run_group(x: Node, group: tuple[int, ...], scale: float, paired: bool, inverse: bool) -> Node:
    """Passes over x[plane, before, t, p, q, after] that transform t; p and q stay what they are,
    so that a part of them can be taken through all passes at once."""
    planes, before, points, p, q, after = x.shape
    if q > 1:
        x = twiddled(x, (2, 4), scale, first=len(group) == 1)
        scale = 1.0
    y = reshape(x, (planes, before, points, p, 1, q, after))
    done = 1
    for radix in group:
        rest = points // (done * radix)
        last = rest == 1
        step = Pass(radix, rest, done, scale if last else 1.0, paired and last, inverse)
        y = run_pass(y, step)
        done *= radix
    return y


def run_pass(x: Node, step: Pass) -> Node:
    """One pass over x[plane, before, t, p, done, q, after]."""
    planes, before, _, p, _, q, after = x.shape
    r, rest, done = step.radix, step.rest, step.done
    x = reshape(x, (planes, before, r, rest, p, done, q, after))
    scale = step.scale
    if done > 1:
        x = twiddled(x, (2, 5), scale, first=True)
        scale = 1.0
    t = np.arange(r)
    weights = roots(np.outer(t, t), r) * scale
    if r > MAX_RADIX:
        y = by_halves(x, weights)
        if step.paired:
            return permute(exchanged(y) if step.exchanged else y, (*range(1, 8), 0))
        return reshape(y, (2, before, rest, p, r * done, q, after))
    matrix = planes_matrix(weights, planes == 1).astype(x.dtype.numpy)
    if step.paired:
        matrix = matrix[::-1] if step.exchanged else matrix
        shape = (before, rest, p, r, done, q, after, 2, planes, r)
        return product(matrix, (7, 3, 8, 9), x, (8, 0, 9, 1, 2, 4, 5, 6), shape)
    shape = (2, before, rest, p, r, done, q, after, planes, r)
    y = product(matrix, (0, 4, 8, 9), x, (8, 1, 9, 2, 3, 5, 6, 7), shape)
    return reshape(y, (2, before, rest, p, r * done, q, after))


def by_halves(x: Node, weights: Array) -> Node:
    """The sum over t of weights[k, t] * x[plane, before, t, rest, ...] for an odd number of points,
    as [plane, before, rest, p, k, ...]. Cosines of t and -t are equal and sines opposite: they are
    products with sums and differences, a quarter of the work and half as many terms to round."""
    half = len(weights) // 2
    low, high = part(x, 2, 1, half + 1), flip(part(x, 2, half + 1, 2 * half + 1), (2,))
    sums = join([part(x, 2, 0, 1), low + high], 2)
    even = halves_product(weights.real[: half + 1, : half + 1], sums)
    odd = halves_product(weights.imag[1 : half + 1, 1 : half + 1], low - high)
    even, turned = both_planes(even), exchanged(odd)
    turned = where(is_real_part(turned.shape), -turned, turned)
    first, others = part(even, 4, 0, 1), part(even, 4, 1, half + 1)
    return join([first, others + turned, flip(others - turned, (4,))], 4)


def halves_product(matrix: Array, x: Node) -> Node:
    """Sum over t of matrix[k, t] * x[plane, before, t, ...], each plane apart."""
    planes, before, _, rest, p, done, q, after = x.shape
    shape = (planes, before, rest, p, len(matrix), done, q, after, len(matrix))
    weights = broadcast(constant(matrix.astype(x.dtype.numpy)), shape, (4, 8))
    return reduce(Op.ADD, weights * broadcast(x, shape, (0, 1, 8, 2, 3, 5, 6, 7)), (8,))


def product(
    matrix: Array, rows: tuple[int, ...], x: Node, places: tuple[int, ...], shape: Shape
) -> Node:
    """Sum of matrix * x over the last two axes of `shape`; where the matrix is small enough for
    registers, zeros in it are no terms at all."""
    last = len(shape) - 2
    terms = broadcast(constant(matrix), shape, rows) * broadcast(x, shape, places)
    if max(matrix.shape[0] * matrix.shape[1], matrix.shape[2] * matrix.shape[3]) <= MAX_SIDE:
        mask = broadcast(constant(matrix != 0), shape, rows)
        terms = where(mask, terms, 0)
    return reduce(Op.ADD, terms, (last, last + 1))


def twiddled(x: Node, axes: tuple[int, int], scale: float, first: bool) -> Node:
    """x[plane, ...] times w_(r*s)^(t*q) and the scale, where t < r and q < s count along `axes`.
    `first`: t = 0 is left out, which pays where t is a constant in the end."""
    t, q = axes
    cosine, sine = twiddles(x.shape[t], x.shape[q], scale, x.dtype)
    cosine, sine = (broadcast(part, x.shape, axes) for part in (cosine, sine))
    straight = x * cosine
    crossed = flip(x, (0,)) * sine
    turned = where(is_real_part(x.shape), straight - crossed, straight + crossed)
    if not first:
        return turned
    is_first = iota(x.shape, I32, t) < 1
    return where(is_first, scaled(x, scale), turned)


def twiddles(r: int, s: int, scale: float, dtype: DType) -> tuple[Node, Node]:
    """Real and imaginary parts [t, q] of the factors: from a table, or as products of two smaller
    ones (the angles of every FINE-th q, and of those between), which stay in the cache."""
    fine = s
    if r * s > TABLE:
        fine = max(d for d in range(1, FINE + 1) if s % d == 0)
    t, q = np.arange(r)[:, None], np.arange(s)[None, :]
    table = roots(t * q[:, :fine], r * s) * scale
    shape = (r, s // fine, fine)
    found = constant_along(table, shape, (0, 2), dtype)
    if fine < s:
        coarse = roots(t * q[:, ::fine], r * s)
        found = found * constant_along(coarse, shape, (0, 1), dtype)
    return reshape(found.re, (r, s)), reshape(found.im, (r, s))


def constant_along(table: Array, shape: Shape, axes: Sequence[int], dtype: DType) -> Complex:
    """Constants whose axes are `axes` of `shape`, repeated along the others."""
    parts = (np.ascontiguousarray(part, dtype.numpy) for part in (table.real, table.imag))
    return Complex(*(broadcast(constant(part), shape, axes) for part in parts))


def both_planes(x: Node) -> Node:
    """With an imaginary part of zeros where there is none."""
    if x.shape[0] == 2:
        return x
    shape = (2, *x.shape[1:])
    return where(is_real_part(shape), expand(x, shape), 0)


def exchanged(x: Node) -> Node:
    """The imaginary plane first."""
    return flip(both_planes(x), (0,))


def scaled(x: Node, scale: float) -> Node:
    return x if scale == 1 else x * scale
