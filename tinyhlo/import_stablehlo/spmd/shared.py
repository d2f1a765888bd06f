"""The walk of a program that several processes run (see `spread.py`).

An op some of whose operands are in pieces is computed by pieces where it can be (`piecewise.py`),
else from whole values. Calls, loops, branches and per-device bodies take pieces as they are.
"""

from __future__ import annotations

from typing import Any

from tinyhlo.import_stablehlo.records import Operation, names
from tinyhlo.import_stablehlo.spmd.pieces import Pieces
from tinyhlo.import_stablehlo.spmd.piecewise import by_pieces
from tinyhlo.import_stablehlo.spmd.spread import whole
from tinyhlo.import_stablehlo.walker import Scope, Value, Walker
from tinyhlo.placement import Placement

TAKES_PIECES = names("while case if") | {"func.call", "sdy.manual_computation"}


def takes_pieces(operation: Operation) -> bool:
    """Whether its own rule handles values in pieces; what is composed of ops is a call."""
    composed = operation.name == "stablehlo.composite"
    called = composed and not operation.attributes["name"].startswith("chlo.")
    return called or operation.name in TAKES_PIECES


class SharedWalker(Walker):
    """`name`: of the program, as all its processes know it."""

    def __init__(self, placement: Placement, name: str, *given: Any) -> None:
        super().__init__(*given)
        self.placement = placement
        self.name = name

    def prepare(self, operation: Operation, values: dict[int, Any]) -> None:
        """What regions read is whole."""
        if not takes_pieces(operation):
            for slot in (slot for block in operation.regions for slot in block.captures):
                values[slot] = whole(values[slot], self)

    def step(
        self, operation: Operation, inputs: tuple[Value, ...], scope: Scope
    ) -> tuple[Value, ...]:
        pieces = any(isinstance(value, Pieces) for value in inputs)
        if pieces and not takes_pieces(operation):
            found = by_pieces(operation, inputs, scope)
            if found is not None:
                return tuple(found)
            inputs = tuple(whole(value, self) for value in inputs)
        return super().step(operation, inputs, scope)
