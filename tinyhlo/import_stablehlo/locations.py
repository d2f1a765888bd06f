"""The user's Python line of a node, from MLIR's `loc(...)`.

    loc("jit(f)/sin"("g"("model.py":7:11 to :21)))  ->  "model.py:7, in g"

Reading a location costs microseconds and most are never asked for, so `SourceLines` keeps the
MLIR location and turns it into text on access.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tinyhlo.dataclass import dataclass
from tinyhlo.ir.graph import Node

FRAME = re.compile(r'(?:"((?:[^"\\]|\\.)*)"\()?"((?:[^"\\]|\\.)*)":(\d+):')
NOT_A_FUNCTION = re.compile(r"[/(]|^<module>$")  # op paths such as jit(f)/sin, and module level


def source_line(location: Any) -> str:
    """ "file:line, in function" of the innermost Python frame, or "" when unknown."""
    frame = FRAME.search(str(location)) if location is not None else None
    if frame is None:
        return ""
    function, file, line = frame.groups()
    if file == "-":  # text that carries no locations of its own
        return f"line {line} of the program"
    place = f"{file}:{line}"
    if function and not NOT_A_FUNCTION.search(function):
        return f"{place}, in {function}"
    return place


@dataclass(frozen=True, slots=True)
class Place:
    """A location within a function, and the place of the call that led there.

    JAX's own functions (`jnp.fft.fft`) carry no user line inside: then the caller's counts.
    """

    location: Any
    caller: Place | None

    @property
    def line(self) -> str:
        """The innermost source line that is known, or ""."""
        place: Place | None = self
        while place is not None:
            line = source_line(place.location)
            if line:
                return line
            place = place.caller
        return ""


class SourceLines(Mapping[Node, str]):
    """Node -> source line; filled by the importer through `note`, read-only for others."""

    def __init__(self) -> None:
        self._places: dict[Node, tuple[Any, Place | None]] = {}

    def note(self, node: Node, location: Any, caller: Place | None) -> None:
        """Remember where `node` came from; the first place wins."""
        if node not in self._places:
            self._places[node] = (location, caller)

    def __getitem__(self, node: Node) -> str:
        return Place(*self._places[node]).line

    def __contains__(self, node: object) -> bool:
        return node in self._places

    def __iter__(self) -> Iterator[Node]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
