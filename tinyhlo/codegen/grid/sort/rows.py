"""The rows that a Sort sorts: where their elements are, and where the sorted ones go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tinyhlo.codegen.expressions import Expression, Load, Memory
from tinyhlo.codegen.loops import Body, Statement, Store, guarded
from tinyhlo.codegen.lowering.fused import Conditions, Lowering
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.graph import Output, Sort
from tinyhlo.ir.index import Index, linear, unravel
from tinyhlo.schedule.program import Kernel

Elements = Callable[[Index, Index, Conditions], list[Expression]]  # of a row, at a place
Save = Callable[[Index, Index, Sequence[Expression]], Body]


class Rows:
    """Rows of `length` elements, of which `limit` are wanted: those `given`, else the operands."""

    def __init__(
        self, kernel: Kernel, root: Sort, lowering: Lowering, length: int,
        given: Sequence[Memory] = (),
    ) -> None:  # fmt: skip
        self.kernel, self.root, self.lowering = kernel, root, lowering
        shape, axis = root.inputs[0].shape, root.axis
        self.length, self.limit, self.given = length, root.results[0].shape[axis], given
        self.others = (*shape[:axis], *shape[axis + 1 :])
        self.count = prod(self.others)

    def of(self, length: int) -> Rows:
        """So many elements of each row, in scratch."""
        given = self.memories(f"best{length}_", length)
        return Rows(self.kernel, self.root, self.lowering, length, given)

    def memories(self, name: str, length: int) -> tuple[Memory, ...]:
        """Of so many elements of each row, one an operand."""
        size = self.count * length
        types = [node.dtype for node in self.root.inputs]
        return tuple(Memory(f"{name}{k}", t, size, local=True) for k, t in enumerate(types))

    def place(self, row: Index, along: Index) -> tuple[Index, ...]:
        others, axis = unravel(row, self.others), self.root.axis
        return (*others[:axis], along, *others[axis:])

    def elements(self, row: Index, along: Index, guards: Conditions) -> list[Expression]:
        if self.given:
            return loaded(self.given, self.length)(row, along, guards)
        held = self.lowering.guards.setdefault(guards, guards)
        at = self.lowering.position(self.place(row, along))
        return [self.lowering.emit(n, at, self.lowering.root, held) for n in self.root.inputs]

    def results(self, row: Index, along: Index, values: Sequence[Expression]) -> Body:
        """Store an element of each operand, where it is wanted."""
        place = linear(self.place(row, along), self.root.results[0].shape)
        stores: list[Statement] = []
        for memory, node in zip(self.lowering.writes, self.kernel.graph.results, strict=True):
            assert isinstance(node, Output)
            stores.append(Store(memory, place, values[node.position]))
        return guarded(tuple(stores), Condition(along, 0, self.limit))


def loaded(memories: Sequence[Memory], length: int) -> Elements:
    """Where memories in scratch have them, `length` a row."""
    return lambda row, along, _: [Load(memory, row * length + along) for memory in memories]


def saved(memories: Sequence[Memory], length: int) -> Save:
    """To such memories."""

    def save(row: Index, along: Index, values: Sequence[Expression]) -> Body:
        place = row * length + along
        return tuple(Store(m, place, v) for m, v in zip(memories, values, strict=True))

    return save
