"""Numbers of Fourier transforms: roots of unity, matrices, how a length is factored.

roots(numerators, n)   ->  exp(-2 pi i numerators / n), float64, exactly symmetric
radices(1000)          ->  (10, 10, 10)
"""

from __future__ import annotations

from functools import cache
from math import inf
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

MAX_RADIX = 16  # its butterfly in registers; larger primes are a matrix product
MAX_PRIME = 127  # larger ones by a convolution (Bluestein)
PASS_COST = 10.0  # operations an element of loads, stores and twiddle factors
SPILL_COST = 0.75  # operations an element for each point beyond what registers hold
REGISTER_POINTS = 8
GROUP = 128  # points whose passes share a tile in L1, some columns of them side by side
ROW = 4096  # points of a whole row that share one in L2


def roots(numerators: Array, n: int) -> Array:
    """exp(-2 pi i k / n) for integers k. Angles are reduced to an eighth of a turn in integers, so
    each value is correctly placed and equal magnitudes are equal bits."""
    k = np.asarray(numerators, np.int64) % n
    lower = 2 * k > n
    k = np.where(lower, n - k, k)  # upper half: the conjugate
    left = 4 * k > n
    k = np.where(left, n - 2 * k, 2 * k)  # in half turns, within the right half
    steep = 4 * k > n
    k = np.where(steep, n - 2 * k, 2 * k)  # in quarter turns, within an eighth
    angle = k * (np.pi / (2 * n))
    cosine, sine = np.cos(angle), np.sin(angle)
    cosine, sine = np.where(steep, sine, cosine), np.where(steep, cosine, sine)
    cosine = np.where(left, -cosine, cosine)
    return cosine + 1j * np.where(lower, sine, -sine)


def planes_matrix(weights: Array, real_input: bool) -> Array:
    """[plane, k, plane, t] of complex weights [k, t]; a real input has one plane."""
    matrix = np.stack(
        [
            np.stack([weights.real, -weights.imag], axis=1),
            np.stack([weights.imag, weights.real], axis=1),
        ]
    )
    return matrix[:, :, :1] if real_input else matrix


@cache
def radices(n: int) -> tuple[int, ...] | None:
    """Factors of n, first pass first, that cost least; None when a prime factor is too large."""
    if n == 1:
        return ()
    largest = max(primes(n))
    if largest > MAX_PRIME:
        return None
    choices = [r for r in range(2, min(n, MAX_RADIX) + 1) if n % r == 0]
    choices += [p for p in set(primes(n)) if p > MAX_RADIX]
    best: tuple[float, tuple[int, ...]] = (inf, ())
    for radix in choices:
        rest = radices(n // radix)
        assert rest is not None
        found = tuple(sorted((radix, *rest), reverse=True))
        best = min(best, (sum(map(radix_cost, found)), found))
    return best[1]


def radix_cost(radix: int) -> float:
    """Operations an element of one pass."""
    if radix > MAX_RADIX:
        return PASS_COST + 4.0 * radix
    spills = SPILL_COST * max(0, radix - REGISTER_POINTS)
    return PASS_COST + spills + sum(2.2 if p == 2 else 1.3 * p for p in primes(radix))


@cache
def groups(n: int, whole: int) -> tuple[tuple[int, ...], ...] | None:
    """Factors of n in groups; up to `whole` points are one group, else groups are about equal."""
    if radices(n) is None:
        return None
    count = 1
    while n > (whole if count == 1 else GROUP**count):
        count += 1
    found: list[tuple[int, ...]] = []
    for left in range(count, 0, -1):
        wanted = n ** (1 / left)
        divisors = [d for d in range(1, n + 1) if n % d == 0] if left > 1 else [n]
        size = min(divisors, key=lambda d: max(d / wanted, wanted / d))
        found.append(radices(size) or ())
        n //= size
    return tuple(group for group in found if group)


@cache
def primes(n: int) -> tuple[int, ...]:
    """Prime factors with multiplicity."""
    found: list[int] = []
    p = 2
    while p * p <= n:
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1
    return (*found, n) if n > 1 else tuple(found)


def good_length(least: int) -> int:
    """The cheapest length of at least `least` points without prime factors above 5."""
    candidates = ((1 << a) * 3**b * 5**c for a in range(2, 40) for b in range(3) for c in range(3))
    near = [n for n in candidates if least <= n < 2 * least + 4]
    return min(near, key=lambda n: (n * sum(map(radix_cost, radices(n) or ())), n))
