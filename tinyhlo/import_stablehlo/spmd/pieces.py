"""A whole value of which a process has the pieces at its own places.

    x: f32[8] = [x[0:4] on a device of this process, x[4:8] on another one's]

What reads only the pieces that are here needs no more; `spread.py` fetches the others for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tinyhlo.import_stablehlo.spmd.sharding import Division, Part
from tinyhlo.ir.graph import TensorType
from tinyhlo.records import dataclass

Holders = frozenset[int]  # the processes that have something
Key = tuple[Part, int | None]  # what a place has of an array: a part, or a summand of one


@dataclass(frozen=True, eq=False, slots=True)
class Pieces:
    """`own`: values at this process's places. `holders`: of each place who has it."""

    type_: TensorType
    division: Division
    own: Mapping[int, Any]
    holders: Sequence[Holders]

    @property
    def is_reduced(self) -> bool:
        """Whether the pieces are parts, not summands."""
        return all(share is None for share in self.division.shares)

    def having(self) -> dict[Key, Holders]:
        """Who has each piece."""
        found: dict[Key, Holders] = {}
        for key, who in zip(keys(self.division), self.holders, strict=True):
            found[key] = found.get(key, frozenset()) | who
        return found

    def values(self) -> dict[Key, Any]:
        """The pieces that are here."""
        every = keys(self.division)
        return {every[place]: value for place, value in self.own.items()}

    def suffice(self, division: Division, holders: Sequence[Holders]) -> bool:
        """Whether all who need what is at the places of another division have it."""
        having = self.having()
        alike = division.reduction is self.division.reduction
        needed: Iterator[tuple[Key, Holders]] = zip(keys(division), holders, strict=True)
        return alike and all(who <= having.get(key, frozenset()) for key, who in needed)


def keys(division: Division) -> list[Key]:
    return list(zip(division.parts, division.shares, strict=True))
