"""The user's Python line of a node, from MLIR's `loc(...)`.

    loc("jit(f)/sin"("g"("model.py":7:11 to :21)))  ->  "model.py:7, in g"

Reading a location costs microseconds and most are never asked for, so a `Place` keeps the MLIR
location and turns it into text on access.
"""

from __future__ import annotations

import re
from typing import Any

from tinyhlo.records import dataclass

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
