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
    """`group` elements fill 16 bytes."""
    lanes = len(vectors)
    blocks = [
        interleaved(vectors[first : first + group], group, lanes, shuffle)
        for first in range(0, lanes, group)
    ]
    result = [""] * lanes
    for column in range(group):
        moved = across_groups([block[column] for block in blocks], lanes, group, shuffle)
        result[column::group] = moved
    return result


def interleaved(vectors: Sequence[str], group: int, lanes: int, shuffle: Shuffle) -> list[str]:
    """The elements of all vectors lane by lane, within each group of lanes: rounds of a perfect
    shuffle."""
    half = len(vectors) // 2
    low = [
        first + place // 2 + (lanes if place % 2 else 0)
        for first in range(0, lanes, group)
        for place in range(group)
    ]
    high = [place + group // 2 for place in low]
    for _ in range(len(vectors).bit_length() - 1):
        vectors = [
            shuffle(vectors[k], vectors[k + half], order)
            for k in range(half)
            for order in (low, high)
        ]
    return list(vectors)


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
