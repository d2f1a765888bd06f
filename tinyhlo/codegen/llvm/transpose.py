"""A square of vectors turned around in registers.

In: as many vectors as each has lanes. Out: vector k holds lane k of all of them. Rows are first
interleaved within 16-byte groups, then whole groups change places: on every SIMD unit that we
know each of these shuffles is one instruction, where interleaving whole vectors needs several.

    a0 a1 a2 a3 | a4 a5 a6 a7      4 rows, within groups      a0 b0 c0 d0 | a4 b4 c4 d4
    b0 b1 b2 b3 | b4 b5 b6 b7      ---------------------->    a1 b1 c1 d1 | a5 b5 c5 d5   ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

GROUP_BYTES = 16

Shuffle = Callable[[str, str, Sequence[int]], str]  # lanes 0.. of the first, then of the second


def turn(vectors: Sequence[str], group: int, shuffle: Shuffle) -> list[str]:
    """`group` elements fill 16 bytes: 2 or 4."""
    lanes = len(vectors)
    blocks = [
        within_groups(vectors[first : first + group], lanes, shuffle)
        for first in range(0, lanes, group)
    ]
    result = [""] * lanes
    for column in range(group):
        moved = across_groups([block[column] for block in blocks], lanes, group, shuffle)
        result[column::group] = moved
    return result


def within_groups(rows: Sequence[str], lanes: int, shuffle: Shuffle) -> list[str]:
    """Column k of each group of `len(rows)` lanes, for k in order."""
    group = len(rows)
    units = 1
    while units < group:  # pairs of elements, then pairs of pairs
        low, high = (
            [
                first + half * group // 2 + place % units + place // (2 * units) * units
                + (lanes if place // units % 2 else 0)
                for first in range(0, lanes, group)
                for place in range(group)
            ]
            for half in (0, 1)
        )  # fmt: skip
        distance = group // 2 if units > 1 else 1
        pairs = [k for k in range(group) if not k // distance % 2]
        rows = [shuffle(rows[k], rows[k + distance], order) for k in pairs for order in (low, high)]
        units *= 2
    return list(rows)


def across_groups(vectors: list[str], lanes: int, group: int, shuffle: Shuffle) -> list[str]:
    """Group b of vector a goes to group a of vector b."""
    vectors = list(vectors)
    distance = 1
    while distance < len(vectors):
        low: list[int] = []
        high: list[int] = []
        for place in range(lanes):
            upper = place // group & distance
            low.append(place - distance * group + lanes if upper else place)
            high.append(place + lanes if upper else place + distance * group)
        for k in range(len(vectors)):
            if not k & distance:
                first, second = vectors[k], vectors[k + distance]
                vectors[k] = shuffle(first, second, low)
                vectors[k + distance] = shuffle(first, second, high)
        distance *= 2
    return vectors
