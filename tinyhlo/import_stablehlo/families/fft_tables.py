"""Numbers of Fourier transforms: roots of unity, matrices, how a length is factored.

roots(numerators, n)   ->  exp(-2 pi i numerators / n), float64, exactly symmetric
radices(1000)          ->  (10, 10, 10), a row alone (8, 5, 5, 5)
"""

from __future__ import annotations

from functools import cache
from math import ceil, inf, isqrt, prod
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

MAX_RADIX = 16  # its butterfly in registers; larger primes are matrix products
MAX_PRIME = 127  # larger ones by a convolution (Bluestein)
PASS_COST = 10.0  # operations an element of loads, stores and twiddle factors
SPILL_COST = 0.75  # operations an element for each point beyond what registers hold
REGISTER_POINTS = 8
LANES = 8  # of the shortest vectors
SINGLE = 3.0  # times as long: a pass whose columns fill none
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


def radices(n: int, alone: bool = False) -> tuple[int, ...] | None:
    """Factors of n, first pass first, that cost least; None when a prime factor is too large. Of a
    row that is `alone`, vectors of a pass take what passes before it left side by side."""
    if max(primes(n), default=1) > MAX_PRIME:
        return None
    return cheapest(n, 1 if alone else 0)[1]


@cache
def cheapest(n: int, done: int) -> tuple[float, tuple[int, ...]]:
    """The cost of the passes that are left after `done` points, 0 where columns are plenty, and
    their factors."""
    if n == 1:
        return 0.0, ()
    choices = {r for r in range(2, min(n, MAX_RADIX) + 1) if n % r == 0}
    choices |= {p for p in primes(n) if p > MAX_RADIX}
    best: tuple[float, tuple[int, ...]] = (inf, ())
    for radix in sorted(choices, reverse=True):
        after, factors = cheapest(n // radix, done * radix)
        cost = radix_cost(radix) * idle(done) + after
        if cost < best[0] - 1e-9:
            best = cost, (radix, *factors)
    return best


def idle(done: int) -> float:
    """How much longer a pass takes because so many columns do not fill its vectors."""
    if done < 2:
        return 1.0  # vectors run along the points that are left
    return LANES * ceil(done / LANES) / done if done >= LANES else SINGLE


def radix_cost(radix: int) -> float:
    """Operations an element of one pass."""
    if radix > MAX_RADIX:
        return 2 * PASS_COST + radix
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
        size = min(divisors(n), key=lambda d: max(d / wanted, wanted / d)) if left > 1 else n
        found.append(radices(size, is_alone(len(found), whole)) or ())
        n //= size
    return tuple(group for group in found if group)


def is_alone(number: int, whole: int) -> bool:
    """Whether a group of passes has no columns side by side: the first, along the last axis."""
    return number == 0 and whole == ROW


def divisors(n: int) -> list[int]:
    low = [d for d in range(1, isqrt(n) + 1) if n % d == 0]
    return low + [n // d for d in reversed(low) if d * d < n]


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


def good_length(least: int, whole: int) -> int:
    """The cheapest length of at least `least` points without prime factors above 5."""
    candidates = ((1 << a) * 3**b * 5**c for a in range(2, 40) for b in range(3) for c in range(3))
    near = [n for n in candidates if least <= n < 2 * least + 4]
    return min(near, key=lambda n: (n * length_cost(n, whole), n))


def length_cost(n: int, whole: int) -> float:
    """Operations an element of all passes."""
    sizes = [prod(group) for group in groups(n, whole) or ()]
    return sum(cheapest(size, int(is_alone(k, whole)))[0] for k, size in enumerate(sizes))
