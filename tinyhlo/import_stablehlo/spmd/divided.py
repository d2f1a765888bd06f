"""Whole arrays from their parts, and parts of whole arrays.

divided.whole([a, b], division)   ->   join(a, b), or a + b where they are summands of it
divided.part(x, division, 1)      ->   b again, where x is that whole; else a slice
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from typing import Any

from tinyhlo.import_stablehlo.lifted.complex_numbers import by_plane
from tinyhlo.import_stablehlo.operands import arithmetic
from tinyhlo.import_stablehlo.spmd.sharding import Division, Part
from tinyhlo.ir.build import full, slice_
from tinyhlo.ir.graph import Node
from tinyhlo.ir.joining import join
from tinyhlo.ir.ops import Op


class Divided:
    """The parts that whole arrays were joined from: what is divided in the same way again is
    neither joined nor cut. A division of None: what is no array is the same everywhere."""

    def __init__(self) -> None:
        self._parts: dict[Node, dict[Part, Node]] = {}
        self._shares: dict[tuple[Node, Op], dict[int, Node]] = {}

    def whole(self, values: Sequence[Any], division: Division | None) -> Any:
        """The value of which these are at the places. Where several have the same, it is the first
        one's."""
        if division is None:
            return values[0]
        return by_plane(lambda *nodes: self._whole(nodes, division), *values)

    def part(self, value: Any, division: Division | None, place: int) -> Any:
        """What is at a place of a value."""
        if division is None:
            return value
        part, share, how = division.parts[place], division.shares[place], division.reduction
        return by_plane(lambda node: self._share(self._part(node, part), share, how), value)

    def _whole(self, nodes: Sequence[Node], division: Division) -> Node:
        found: dict[Part, dict[int | None, Node]] = {}
        for node, part, share in zip(nodes, division.parts, division.shares, strict=True):
            found.setdefault(part, {}).setdefault(share, node)
        how = division.reduction
        pieces = {part: self._total(shares, how) for part, shares in found.items()}
        result = joined(pieces, 0)
        self._parts.setdefault(result, {}).update(pieces)
        return result

    def _total(self, shares: Mapping[int | None, Node], how: Op) -> Node:
        """The sum (maximum, minimum) of what places have of an array that is not reduced yet."""
        result = reduce(partial(arithmetic, how), shares.values())
        if len(shares) > 1:
            known = self._shares.setdefault((result, how), {})
            known.update((share, node) for share, node in shares.items() if share is not None)
        return result

    def _share(self, array: Node, share: int | None, how: Op) -> Node:
        """What a place has of a sum: its summand, or else the first place has it all. What is
        reduced (None), and extremes, all have."""
        if share is None:
            return array
        known = self._shares.get((array, how), {})
        if share in known:
            return known[share]
        return full(0, array.shape, array.dtype) if share and how is Op.ADD else array

    def _part(self, array: Node, part: Part) -> Node:
        """A part of an array; axes behind those of the part are whole."""
        known = self._parts.setdefault(array, {})
        if part not in known:
            bounds = (*part, *((0, extent) for extent in array.shape[len(part) :]))
            firsts, ends = zip(*bounds, strict=True) if bounds else ((), ())
            known[part] = slice_(array, firsts, ends)
        return known[part]


def joined(pieces: Mapping[Part, Node], axis: int) -> Node:
    """The parts side by side along this axis and all after it."""
    if len(pieces) == 1:
        return next(iter(pieces.values()))
    groups: dict[tuple[int, int], dict[Part, Node]] = {}
    for part, node in sorted(pieces.items(), key=lambda item: item[0]):
        groups.setdefault(part[axis], {})[part] = node
    return join([joined(group, axis + 1) for group in groups.values()], axis)
