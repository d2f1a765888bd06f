"""The updates of a scatter, for each way to run their loops.

updates.values(lowering, at, scope)  ->  (x1[i],)                # of the update at a position
updates.tested(lowering, at, scope)  ->  if 0 <= x2[i] < 50: y0[x2[i]] = ...
updates.stores(place, values)        ->  (y0[place] = y0[place] + x1[i],)
"""

from __future__ import annotations

from itertools import repeat

from tinyhlo.codegen.expressions import Expression, Load, Memory, as_index
from tinyhlo.codegen.loops import Body, Store, guarded
from tinyhlo.codegen.lowering.fused import Lowering, Position, Scope
from tinyhlo.codegen.regions import inline
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.graph import Node, Scatter, Shape
from tinyhlo.ir.index import ZERO, Index, linear
from tinyhlo.records import dataclass
from tinyhlo.schedule.program import Kernel

FEWEST = 1 << 16  # elements of updates that outweigh waking threads


@dataclass(frozen=True, slots=True)
class Updates:
    """The updates of a scatter, which are combined into the memories `targets`, one a result."""

    root: Scatter
    targets: tuple[Memory, ...]

    @property
    def sources(self) -> tuple[Node, ...]:
        count = len(self.targets)
        return self.root.inputs[count : 2 * count]

    @property
    def indices(self) -> tuple[Node, ...]:
        return self.root.inputs[2 * len(self.targets) :]

    @property
    def shape(self) -> Shape:
        return self.sources[0].shape

    @property
    def size(self) -> int:
        return self.sources[0].type.size

    @property
    def operand(self) -> Shape:
        return self.root.results[0].shape

    def values(self, lowering: Lowering, at: Position, scope: Scope) -> tuple[Expression, ...]:
        return tuple(lowering.emit(update, at, scope, ()) for update in self.sources)

    def places(self, lowering: Lowering, at: Position, scope: Scope) -> tuple[Index, ...]:
        """Where an update goes, on each axis of the operand; maybe outside."""
        emitted = [(node, lowering.emit(node, at, scope, ())) for node in self.indices]
        return tuple(as_index(value, dtype_bounds(node)) for node, value in emitted)

    def tested(self, lowering: Lowering, at: Position, scope: Scope, start: Index = ZERO) -> Body:
        """What puts an update into its place, if that lies inside; nothing where it never does."""
        values = self.values(lowering, at, scope)
        places = self.places(lowering, at, scope)
        conditions = [Condition(*each) for each in zip(places, repeat(0), self.operand)]
        return guarded(self.stores(start + linear(places, self.operand), values), *conditions)

    def stores(self, address: Index, values: tuple[Expression, ...]) -> Body:
        current = tuple(Load(memory, address) for memory in self.targets)
        combined = inline(self.root.combiner, (*current, *values))
        return tuple(
            Store(memory, address, value)
            for memory, value in zip(self.targets, combined, strict=True)
        )


def dtype_bounds(node: Node) -> tuple[int, int]:
    """All values that an index of this type can have."""
    bits = min(node.dtype.bits, 63)
    return (-(1 << (bits - 1)), (1 << bits) - 1)


def result_memories(kernel: Kernel, writes: tuple[Memory, ...]) -> tuple[Memory, ...]:
    """The memory of each result of the scatter, by result number."""
    order = {node.position: k for k, node in enumerate(kernel.graph.results)}  # type: ignore[attr-defined]
    return tuple(writes[order[position]] for position in range(len(order)))
