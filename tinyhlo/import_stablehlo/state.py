"""The values of all copies of a per-device body as the state of one loop, or of one branch.

    State([(i, x[0]), (i, x[1])], ...)   ->   params i, x[0], x[1]

Values that are equal in some copies are one: a counter stays a counter.
"""

from __future__ import annotations

from collections import ChainMap, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from tinyhlo.import_stablehlo.lifted.complex_numbers import Complex, rebuilt
from tinyhlo.import_stablehlo.lifted.lifting import flatten
from tinyhlo.import_stablehlo.lifted.planes import as_pairs, from_pairs
from tinyhlo.import_stablehlo.lifted.updates import array_of, is_update
from tinyhlo.import_stablehlo.records import Block
from tinyhlo.import_stablehlo.spmd.teams import Team, Values
from tinyhlo.import_stablehlo.walker import OUTER_VALUE, UnsupportedError, Value, is_closed
from tinyhlo.ir.build import param
from tinyhlo.ir.graph import Gather, Graph, Node
from tinyhlo.ir.order import topological


class State:
    """A param for each distinct value of the copies. `classes`: for each value and copy the first
    copy that has the same. `whole`: which complex values are one param of pairs, not two planes."""

    def __init__(
        self,
        values: Sequence[Values],
        classes: Sequence[Sequence[int]],
        whole: Collection[int] = (),
    ) -> None:
        if any(isinstance(value, tuple) for own in values for value in own):
            raise UnsupportedError(OUTER_VALUE)
        self._classes = classes
        self._like = values
        self._whole = whole
        self._keys = [
            (k, copy) for k, members in enumerate(classes) for copy in sorted(set(members))
        ]
        self.initial = self.flat(values)

    def flat(self, values: Sequence[Values]) -> list[Node]:
        """The nodes of the distinct values among those of all copies."""
        found: list[Node] = []
        for k, copy in self._keys:
            value = values[copy][k]
            if k in self._whole and isinstance(value, Complex):
                found.append(as_pairs(value))
            else:
                found += flatten([value])
        return found

    def values(self, nodes: Sequence[Node]) -> list[Values]:
        """The values of all copies from the nodes of the distinct ones."""
        following = iter(nodes)
        found = {
            (k, copy): Complex(*from_pairs(next(following)))
            if k in self._whole
            else rebuilt(self._like[copy][k], following)
            for k, copy in self._keys
        }
        return [
            tuple(found[k, members[copy]] for k, members in enumerate(self._classes))
            for copy in range(len(self._like))
        ]

    def params(self) -> list[Values]:
        """The values of all copies inside the graph."""
        return self.values([param(k, x.shape, x.dtype) for k, x in enumerate(self.initial)])

    def left_whole(self, after: Sequence[Values], effects: Iterable[Node]) -> set[int]:
        """Which complex values are one array in memory of which a turn, with the values `after` it,
        writes some places, or reads some and no others."""
        if not any(isinstance(value, Complex) for own in self._like for value in own):
            return set()
        readers = defaultdict[Node, set[type]](set)
        for node in topological((*self.flat(after), *effects)):
            for child in node.inputs:
                readers[child].add(type(node))
        before = self.params()

        def stays(k: int, copy: int) -> bool:
            own = self._like[copy][k]
            if not isinstance(own, Complex) or array_of(*own.planes) is None:
                return False
            planes = zip(flatten([after[copy][k]]), flatten([before[copy][k]]), strict=True)
            return all(
                is_update(new, old) or (new is old and readers[old] <= {Gather})
                for new, old in planes
            )

        moved = {k for k, copy in self._keys if not stays(k, copy)}
        return {k for k, _ in self._keys} - moved

    def graph(self, nodes: Sequence[Node], effects: tuple[Node, ...], team: Team) -> Graph:
        """A graph over these params."""
        types = tuple(node.type for node in self.initial)
        return Graph(types, tuple(nodes), effects, team.walker.lines)


def in_pairs(values: Sequence[Values]) -> set[int]:
    """Which values are complex arrays that lie in memory, in every copy."""

    def lies(value: Value) -> bool:
        return isinstance(value, Complex) and array_of(*value.planes) is not None

    return {k for k, own in enumerate(zip(*values, strict=True)) if all(map(lies, own))}


def alike(values: Sequence[Any], within: Sequence[int] | None = None) -> list[int]:
    """For each copy the first one with the same value (and of the same class as `within` says)."""
    first: dict[Any, int] = {}
    given = within or [0] * len(values)
    return [first.setdefault((value, given[copy]), copy) for copy, value in enumerate(values)]


def classes_of(values: Sequence[Values]) -> list[list[int]]:
    """For each value which copies have the same."""
    return [alike(column) for column in zip(*values, strict=True)]


def captures(blocks: Sequence[Block], team: Team) -> list[int]:
    """Outer slots that the blocks read and that must become params: constants are repeated."""
    slots = sorted({slot for block in blocks for slot in block.captures})
    return [slot for slot in slots if not all(is_closed(values[slot]) for values in team.around)]


def read(slots: Sequence[int], team: Team) -> list[Values]:
    """What is in these slots around each copy."""
    return [tuple(values[slot] for slot in slots) for values in team.around]


def inside(slots: Sequence[int], values: Sequence[Values], team: Team) -> Team:
    """The team in a region in which these slots are params."""
    around = [
        ChainMap(dict(zip(slots, own, strict=True)), outer)  # type: ignore[arg-type]
        for own, outer in zip(values, team.around, strict=True)
    ]
    return replace(team, around=around)
