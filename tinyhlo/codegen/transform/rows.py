"""Lowering of a product with a small constant matrix: every row from its network, no loops.

In: the sum, and where values that it needs lie. Out: expressions of its rows at constant row
numbers, and the stores of a whole result, of which only a tile may be computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod

from tinyhlo.codegen.expressions import Expression, Load, Memory, literal
from tinyhlo.codegen.loops import Store
from tinyhlo.codegen.lowering.fused import (
    Conditions,
    Lowering,
    LoweringAround,
    Position,
    Scope,
    Tables,
)
from tinyhlo.codegen.transform.network import find_network
from tinyhlo.ir.graph import Node, Reduce
from tinyhlo.ir.index import ZERO, Index, axis_variables, constant, index, linear
from tinyhlo.ir.transform import Transform
from tinyhlo.records import dataclass
from tinyhlo.schedule.program import Kernel
from tinyhlo.schedule.transform_chain import different_rows, row_places


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """The part of an array that a tile holds: along each axis `extents` points from `starts`, each
    row of the last axis longer by `padding`."""

    starts: tuple[Index, ...]
    extents: tuple[int, ...]
    padding: int = 0

    @property
    def room(self) -> tuple[int, ...]:
        """Extents of the memory that holds it."""
        axis = max((k for k, n in enumerate(self.extents) if n > 1), default=-1)
        return tuple(n + self.padding * (k == axis) for k, n in enumerate(self.extents))

    @property
    def size(self) -> int:
        return prod(self.room)

    def inside(self, at: Position) -> Index:
        """The element of the part at a position of the array."""
        local = [place - start for place, start in zip(at, self.starts, strict=True)]
        return linear(local, self.room)


def whole(shape: tuple[int, ...]) -> Part:
    return Part((ZERO,) * len(shape), shape)


@dataclass(frozen=True, eq=False, slots=True)
class Rows:
    """What of a result to compute, and how many neighbours along each axis at once: they need
    different rows of the sum."""

    part: Part
    together: tuple[int, ...]

    def blocks(self) -> Iterator[tuple[Block, ...]]:
        """Neighbours in blocks of so many along each axis, and the blocks of what is left over."""
        return product(*map(blocks_along, self.part.extents, self.together))


@dataclass(frozen=True, slots=True)
class Block:
    """`count` times `size` neighbours, the first at `start`."""

    start: int
    count: int
    size: int


def blocks_along(extent: int, size: int) -> list[Block]:
    end = extent - extent % size
    found = Block(0, end // size, size), Block(end, 1, extent - end)
    return [block for block in found if block.count and block.size]


class NetworkLowering(Lowering):
    """Lowers a graph in which `total` is the sum: all its rows at once, at constant rows."""

    def __init__(
        self,
        kernel: Kernel,
        total: Reduce,
        transform: Transform,
        fma: bool,
        scratch: Mapping[Node, tuple[Memory, Part]],
        tables: Tables,
    ) -> None:
        super().__init__(kernel, tables)
        self.scratch = scratch
        self.total = total
        self.transform = transform
        self.network = find_network(transform.matrix)
        self.fma = fma
        self.row_places = row_places(total, transform)
        self.row_shape = tuple(total.shape[k] for k in self.row_places)
        self.columns: dict[tuple[Position, int], list[Expression]] = {}

    def compute(self, node: Node, at: Position, scope: Scope, guards: Conditions) -> Expression:
        if node in self.scratch:
            memory, part = self.scratch[node]
            return Load(memory, part.inside(at))
        if node is not self.total:
            return super().compute(node, at, scope, guards)
        row = linear([at[k] for k in self.row_places], self.row_shape)
        assert row.is_constant
        rest = self.position(tuple(ZERO if k in self.row_places else i for k, i in enumerate(at)))
        found = self.columns.get((rest, id(guards)))
        if found is None:
            found = self.columns[rest, id(guards)] = self.all_rows(rest, scope, guards)
        return found[row.offset]

    def all_rows(self, rest: Position, scope: Scope, guards: Conditions) -> list[Expression]:
        """Every row of the product where the other axes are at `rest`."""
        axes, shape = self.total.axes, self.transform.source.shape
        inputs: list[Expression] = []
        for column in product(*(range(shape[axis]) for axis in axes)):
            place = list(rest)
            for axis, position in zip(axes, column, strict=True):
                place.insert(axis, constant(position))
            at = self.position(tuple(place))
            inputs.append(self.emit(self.transform.source, at, scope, guards))
        return self.network.apply(inputs, literal(0, self.total.dtype), self.fma)

    def find_rows(self, result: Node, part: Part) -> Rows | None:
        """How to compute `result` from `part` of the sum; None where rows or tiles of the sum are
        not axes of the result, or neighbours along one."""
        variables = axis_variables(result.shape)
        around = LoweringAround(self.kernel, self.total, lambda _: literal(0, self.total.dtype))
        around.value(result, list(map(index, variables)))
        tiled = [p for p, n in enumerate(self.total.shape) if part.extents[p] != n]
        starts, extents = [ZERO] * len(variables), list(result.shape)
        for position in around.seen:
            for place in tiled:
                axis = next((k for k, v in enumerate(variables) if index(v) == position[place]), -1)
                if axis < 0 or extents[axis] not in (self.total.shape[place], part.extents[place]):
                    return None
                starts[axis], extents[axis] = part.starts[place], part.extents[place]
        rows = {position[place] for position in around.seen for place in self.row_places}
        together = different_rows(rows, variables)
        if together is None or prod(together) > 2 * len(self.transform.matrix):
            return None
        if any(k > 1 and start != ZERO for k, start in zip(together, starts, strict=True)):
            return None
        return Rows(Part(tuple(starts), tuple(extents)), together)

    def store_rows(self, node: Node, memory: Memory, rows: Rows, stored: Part) -> None:
        """Compute the part `rows.part` of a value; neighbours that need different rows get
        constants, the others loops. Elements lie in `memory` as in the part `stored`."""
        for k, blocks in enumerate(rows.blocks()):
            counts = tuple(block.count for block in blocks)
            scope, number = self.nest(self.root, counts, suffix=str(k or ""))
            for point in product(*(range(block.size) for block in blocks)):
                local = [
                    i * block.size + (block.start + offset)
                    for i, block, offset in zip(number, blocks, point, strict=True)
                ]
                at = [first + i for first, i in zip(rows.part.starts, local, strict=True)]
                value = self.emit(node, self.position(tuple(at)), scope, ())
                scope.stores.append(Store(memory, stored.inside(tuple(at)), value))
