"""Convolutions of a dilated input, as the gradient of a strided one is: no product with the zeros.

    y[p] = sum over k of dilated(x, 2)[p + k - 1] * w[k]          3 taps
    ->  y[2q]     = x[q] * w[1]                                   the even places see one tap
        y[2q + 1] = x[q] * w[0] + x[q + 1] * w[2]                 the odd ones two

With a dilation of b, places that are b apart see the same taps, those that are b apart themselves.
Phases (places below b) with equally many taps from the same place of x on are one convolution with
as many more features; their results are joined side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby

from tinyhlo.ir.build import flip, pad, permute, reshape, scalar, slice_
from tinyhlo.ir.graph import Node
from tinyhlo.records import dataclass


@dataclass(frozen=True, slots=True)
class Phases:
    """Phases `start` .. `stop` of an axis: `taps` of the kernel from block `first` on, with the
    input from place `offset` on."""

    start: int
    stop: int
    first: int
    taps: int
    offset: int

    @property
    def count(self) -> int:
        return self.stop - self.start


def phases_of(kernel: int, base: int, low: int) -> list[Phases]:
    """The phases of an axis with dilation `base` and padding `low`, in order. The kernel is cut in
    blocks of `base` taps, so that phase r sees tap base - 1 - r of each block."""
    before = taps_before(base, low)
    origin = (base - 1 - low - before) // base
    seen: list[tuple[int, int]] = []
    for phase in range(base):
        places = range(base - 1 - phase - before, kernel, base)
        first = sum(place < 0 for place in places)
        seen.append((first, len(places) - first))
    found: list[Phases] = []
    for (first, taps), group in groupby(range(base), key=lambda phase: seen[phase]):
        members = list(group)
        found.append(Phases(members[0], members[-1] + 1, first, taps, origin + first))
    return found


def taps_before(base: int, low: int) -> int:
    """Taps that are missing at the beginning of the first block."""
    return (base - 1 - low) % base


def taps_of(rhs: Node, phases: Sequence[Phases], bases: Sequence[int], lows: Sequence[int]) -> Node:
    """[features, channels, taps..., phases...] of a kernel [features, channels, taps...]."""
    fill, rank = scalar(0, rhs.dtype), len(bases)
    before = [taps_before(base, low) for base, low in zip(bases, lows, strict=True)]
    sizes = rhs.shape[2:]
    after = [-(n + z) % base for n, z, base in zip(sizes, before, bases, strict=True)]
    rhs = pad(rhs, fill, (0, 0, *before), (0, 0, *after))
    blocks = [(n // base, base) for n, base in zip(rhs.shape[2:], bases, strict=True)]
    rhs = reshape(rhs, (*rhs.shape[:2], *chain.from_iterable(blocks)))
    rhs = permute(rhs, (0, 1, *range(2, 2 + 2 * rank, 2), *range(3, 2 + 2 * rank, 2)))
    start = [p.first for p in phases] + [b - p.stop for p, b in zip(phases, bases, strict=True)]
    extent = [p.taps for p in phases] + [p.count for p in phases]
    stop = [a + n for a, n in zip(start, extent, strict=True)]
    rhs = slice_(rhs, (0, 0, *start), (*rhs.shape[:2], *stop))
    return flip(rhs, range(2 + rank, 2 + 2 * rank))
