"""Complex Fourier transforms as products with small constant matrices.

In: an array with the plane axis (real and imaginary part) first, and an axis of it. Out: its
transform along that axis. A length n = r0 * r1 * ... takes one pass over the array a factor
(Stockham's autosort form of Cooley and Tukey, Math. Comp. 19, 1965):

    x[t, p, q]  ->  y[p, k, q] = sum over t of w_r^(t*k) * (w_(r*s)^(t*q) * x[t, p, q])

for t, k < r and q < s, the product of the factors before. The sum over t and both planes is a
product with a constant matrix, which `ir/transform.py` recognises and code generation turns into
the butterflies of a fast transform; twiddle factors are multiplied on the way in.

A length with a large prime factor is left to `fft_chirp.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tinyhlo.import_stablehlo.fft_tables import planes_matrix, roots
from tinyhlo.import_stablehlo.planes import is_real_part
from tinyhlo.ir.build import (
    broadcast,
    constant,
    elementwise,
    expand,
    flip,
    full,
    iota,
    permute,
    reduce,
    reshape,
    where,
)
from tinyhlo.ir.dtypes import I32, DType
from tinyhlo.ir.graph import Node, Shape
from tinyhlo.ir.ops import Op
from tinyhlo.ir.transform import MAX_SIDE

Array = np.ndarray[Any, Any]
TABLE = 1 << 13  # twiddle factors up to which a pass has all of them in one table


@dataclass(frozen=True, slots=True)
class Direction:
    """Of a transform: exponents are conjugated when `inverse`, results multiplied by `scale`."""

    inverse: bool
    scale: float

    def weights(self, numerators: Array, n: int) -> Array:
        found = roots(numerators, n)
        return found.conj() if self.inverse else found


@dataclass(frozen=True, slots=True)
class Pass:
    """One factor: `radix` points at distance m * s, after factors with the product `s`. `paired`:
    real and imaginary parts end next to each other in memory."""

    radix: int
    m: int
    s: int
    last: bool
    paired: bool


def passes(
    x: Node, axis: int, factors: tuple[int, ...], direction: Direction, paired: bool
) -> Node:
    """The complex transform of x[plane, ...] along one axis, whose length is the product of
    `factors`; `x` may have the real plane only. `paired` puts the parts of each number of the
    result next to each other in memory."""
    n = x.shape[axis]
    if n == 1:
        return scaled(both_planes(x), direction.scale)
    before, after = prod(x.shape[1:axis]), prod(x.shape[axis + 1 :])
    y = reshape(x, (x.shape[0], before, n, after))
    s = 1
    for radix in factors:
        m = n // (s * radix)
        y = run_pass(y, Pass(radix, m, s, m == 1, paired and m == 1), direction)
        s *= radix
    if not paired:
        return reshape(y, (2, *x.shape[1:]))
    rank = len(x.shape)
    return permute(reshape(y, (*x.shape[1:], 2)), (rank - 1, *range(rank - 1)))


def run_pass(x: Node, step: Pass, direction: Direction) -> Node:
    """One pass over x[plane, before, n, after]."""
    planes, before, n, after = x.shape
    r, m, s = step.radix, step.m, step.s
    x = reshape(x, (planes, before, r, m, s, after))
    scale = direction.scale if step.last else 1.0
    if s > 1:
        x = twiddled(x, step, direction, scale)
        scale = 1.0
    t = np.arange(r)
    weights = direction.weights(np.outer(t, t), r) * scale
    matrix = planes_matrix(weights, planes == 1).astype(x.dtype.numpy)
    if step.paired:
        shape = (before, m, r, s, after, 2, planes, r)
        return product(matrix, (5, 2, 6, 7), x, (6, 0, 7, 1, 3, 4), shape)
    shape = (2, before, m, r, s, after, planes, r)
    y = product(matrix, (0, 3, 6, 7), x, (6, 1, 7, 2, 4, 5), shape)
    return reshape(y, (2, before, n, after))


def product(
    matrix: Array, rows: tuple[int, ...], x: Node, places: tuple[int, ...], shape: Shape
) -> Node:
    """Sum of matrix * x over the last two axes of `shape`; where the matrix is small enough for
    registers, zeros in it are no terms at all."""
    dtype, last = x.dtype, len(shape) - 2
    terms = elementwise(
        Op.MUL, broadcast(constant(matrix), shape, rows), broadcast(x, shape, places)
    )
    if max(matrix.shape[0] * matrix.shape[1], matrix.shape[2] * matrix.shape[3]) <= MAX_SIDE:
        mask = broadcast(constant(matrix != 0), shape, rows)
        terms = where(mask, terms, full(0, shape, dtype))
    return reduce(Op.ADD, terms, (last, last + 1))


def twiddled(x: Node, step: Pass, direction: Direction, scale: float) -> Node:
    """x[plane, before, t, p, q, after] times w_(r*s)^(t*q) and the scale."""
    cosine, sine = twiddles(x.shape, step, direction, scale, x.dtype)
    other = flip(x, (0,))
    straight = elementwise(Op.MUL, x, cosine)
    crossed = elementwise(Op.MUL, other, sine)
    turned = where(
        is_real_part(x.shape),
        elementwise(Op.SUB, straight, crossed),
        elementwise(Op.ADD, straight, crossed),
    )
    first = elementwise(Op.LT, iota(x.shape, I32, 2), full(1, x.shape, I32))
    return where(first, scaled(x, scale), turned)


def twiddles(
    shape: Shape, step: Pass, direction: Direction, scale: float, dtype: DType
) -> tuple[Node, Node]:
    """Real and imaginary part of the factors: from a table, or as products of two small tables
    (angles of a coarse and of a fine step), which stay in the cache."""
    r, s = step.radix, step.s
    fine = s
    if r * s > TABLE:
        fine = max(d for d in range(1, s + 1) if s % d == 0 and d * d <= 2 * s)
    t, q = np.arange(r)[:, None], np.arange(s)[None, :]
    table = direction.weights(t * q[:, :fine], r * s) * scale
    cosine, sine = table_nodes(table, (r, 1, fine), (r, s // fine, fine), dtype)
    if fine < s:
        coarse = direction.weights(t * q[:, ::fine], r * s)
        cosine, sine = multiply(
            (cosine, sine), table_nodes(coarse, (r, s // fine, 1), (r, s // fine, fine), dtype)
        )
    parts = (reshape(part, (r, s)) for part in (cosine, sine))
    cosine, sine = (broadcast(part, shape, (2, 4)) for part in parts)
    return cosine, sine


def table_nodes(table: Array, ones: Shape, shape: Shape, dtype: DType) -> tuple[Node, Node]:
    """Constants of the real and the imaginary part, repeated to `shape`."""
    parts = (np.ascontiguousarray(part, dtype.numpy) for part in (table.real, table.imag))
    cosine, sine = (
        broadcast(reshape(constant(part), ones), shape, range(len(shape))) for part in parts
    )
    return cosine, sine


def multiply(x: tuple[Node, Node], y: tuple[Node, Node]) -> tuple[Node, Node]:
    """Product of complex numbers."""
    (a, b), (c, d) = x, y
    re = elementwise(Op.SUB, elementwise(Op.MUL, a, c), elementwise(Op.MUL, b, d))
    im = elementwise(Op.ADD, elementwise(Op.MUL, a, d), elementwise(Op.MUL, b, c))
    return re, im


def both_planes(x: Node) -> Node:
    """With an imaginary part of zeros where there is none."""
    if x.shape[0] == 2:
        return x
    shape = (2, *x.shape[1:])
    return where(is_real_part(shape), expand(x, shape), full(0, shape, x.dtype))


def scaled(x: Node, scale: float) -> Node:
    return x if scale == 1 else elementwise(Op.MUL, x, full(scale, x.shape, x.dtype))
