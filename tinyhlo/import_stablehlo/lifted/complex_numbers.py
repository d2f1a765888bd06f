"""Complex arrays as two planes, with the operators of numbers.

    x * y  ->  (x.re*y.re - x.im*y.im, x.re*y.im + x.im*y.re)

Quotients and absolute values neither overflow nor vanish on the way. `by_plane` is for what is done
to each plane by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tinyhlo.import_stablehlo.operands import copy_sign, is_infinite, is_nan, known_scalar
from tinyhlo.import_stablehlo.spmd.pieces import Pieces
from tinyhlo.ir.build import sqrt, where
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.graph import Node
from tinyhlo.records import dataclass


@dataclass(frozen=True, slots=True)
class Complex:
    """A complex array: its real and its imaginary part."""

    re: Node
    im: Node

    @property
    def planes(self) -> tuple[Node, Node]:
        return self.re, self.im

    @property
    def shape(self) -> tuple[int, ...]:
        return self.re.shape

    @property
    def dtype(self) -> DType:
        """Of its planes."""
        return self.re.dtype

    def __add__(self, other: Complex) -> Complex:
        return Complex(self.re + other.re, self.im + other.im)

    def __neg__(self) -> Complex:
        return Complex(-self.re, -self.im)

    def __mul__(self, other: Complex) -> Complex:
        re = self.re * other.re - self.im * other.im
        return Complex(re, self.re * other.im + self.im * other.re)

    def __truediv__(self, other: Complex) -> Complex:
        """Smith's method ("Algorithm 116: complex division", 1962)."""
        c, d = other.planes
        zero = known_scalar(d)
        if zero is not None and zero == 0 and not np.signbit(zero):
            return over_real(self, c)
        is_wide = abs(d) <= abs(c)
        long, short = where(is_wide, c, d), where(is_wide, d, c)
        ratio = short / long
        scale = long + short * ratio
        # for |c| >= |d|; the other case is the same with both parts of self exchanged
        first, second = where(is_wide, self.re, self.im), where(is_wide, self.im, self.re)
        im = (second - first * ratio) / scale
        found = Complex((first + second * ratio) / scale, where(is_wide, im, -im))
        return limit_of_quotient(self, other, found)

    def __abs__(self) -> Node:
        """hypot(re, im)."""
        a, b = abs(self.re), abs(self.im)
        large, small = a.at_least(b), a.at_most(b)
        ratio = small / large
        root = large * sqrt(1 + ratio * ratio)
        root = where(small.equals(0), large, root)
        # equal parts: the ratio of infinities is NaN, and the root of two is better rounded
        root = where(a.equals(b), np.sqrt(2.0) * a, root)
        return where(self.is_infinite(), np.inf, root)

    def __lt__(self, other: Complex) -> Node:
        """In lexicographic order."""
        return (self.re < other.re) | (self.re.equals(other.re) & (self.im < other.im))

    def equals(self, other: Complex) -> Node:
        return self.re.equals(other.re) & self.im.equals(other.im)

    def is_infinite(self) -> Node:
        return is_infinite(self.re) | is_infinite(self.im)

    def is_nan(self) -> Node:
        return is_nan(self.re) | is_nan(self.im)

    def turned(self) -> Complex:
        """i * self."""
        return Complex(-self.im, self.re)

    def constant(self, number: float) -> Complex:
        """A splat of a real number like this array."""
        return Complex(self.re.constant(number), self.im.constant(0))


def over_real(x: Complex, c: Node) -> Complex:
    """x / (c + 0i), such as a state vector over its norm: bit for bit what Smith's method and its
    limits give. Its ratio is the zero, with the sign of c."""
    number = known_scalar(c)
    zero = copy_sign(c.constant(0), c) if number is None else c.constant(np.copysign(0, number))
    divides = number is not None and number != 0

    def chosen(part: Node, total: Node) -> Node:
        """An infinity stays, of which the other part may make NaN; and what zero divides."""
        finite = abs(part) < np.inf
        return where(finite if divides else finite & c.differs(0), total, part)

    re, im = x.re + x.im * zero, x.im - x.re * zero
    return Complex(chosen(x.re, re) / c, chosen(x.im, im) / c)


def limit_of_quotient(x: Complex, y: Complex, found: Complex) -> Complex:
    """The quotient x / y: `found`, but its limit where that came out as NaN and there is one (C99,
    Annex G.5.1)."""
    (a, b), (c, d) = x.planes, y.planes
    # +-1 for infinities, +-0 for the rest
    (p, q), (r, s) = (
        [copy_sign(where(is_infinite(part), part.constant(1), 0), part) for part in z.planes]
        for z in (x, y)
    )
    infinity = copy_sign(a.constant(np.inf), c)
    x_is_finite, y_is_finite = (~(z.is_nan() | z.is_infinite()) for z in (x, y))
    lost = is_nan(found.re) & is_nan(found.im)
    for test, re, im in (
        (y.is_infinite() & x_is_finite, 0 * (a * r + b * s), 0 * (b * r - a * s)),
        (x.is_infinite() & y_is_finite, np.inf * (p * c + q * d), np.inf * (q * c - p * d)),
        (c.equals(0) & d.equals(0) & ~(is_nan(a) & is_nan(b)), infinity * a, infinity * b),
    ):
        found = choose(lost & test, Complex(re, im), found)
    return found


def choose(test: Node, x: Complex, y: Complex) -> Complex:
    return Complex(where(test, x.re, y.re), where(test, x.im, y.im))


# ---- values that may be complex, or tokens (None) ------------------------------------------------


def by_plane(function: Callable[..., Node], *values: Any) -> Any:
    """A function of nodes applied to values of one kind: to each plane of complex ones."""
    if values[0] is None:
        return None
    if not isinstance(values[0], Complex):
        return function(*values)
    return Complex(*map(function, *(value.planes for value in values)))


def rebuilt(like: Any, nodes: Iterator[Node]) -> Any:
    """A value of the same kind, from the next nodes."""
    if isinstance(like, Pieces):
        return replace(like, own={place: rebuilt(one, nodes) for place, one in like.own.items()})
    return by_plane(lambda _: next(nodes), like)
