"""A group of small matrices: how they come to scratch, one a lane, and from there to memory.

Elements of a matrix lie in scratch in the order of memory, those of all lanes side by side. So each
copy is a matrix turned around, of whole matrices by elements:

    scratch[element*16 + lane] = x[(group*16 + lane)*64 + element]

Sixteen elements of sixteen matrices at a time are vectors of memory, turned in registers
(`llvm/interleave.py`). The last elements of a matrix overlap those before; the last group may be
smaller, and has its last matrix several times.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tinyhlo.codegen.contraction.cut import at_most
from tinyhlo.codegen.expressions import Expression, Load, Memory
from tinyhlo.codegen.loops import Allocate, Axis, Body, Loop, Store, nested
from tinyhlo.codegen.lowering.fused import Lowering, Position
from tinyhlo.codegen.small_matrices.matrices import Matrices, Place, by_rows
from tinyhlo.ir.graph import LibraryCall, Output
from tinyhlo.ir.index import Index, Var, constant, index, linear, unravel
from tinyhlo.numbers import ceil_div, power_of_two
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

FEWEST = 4  # elements that are turned together


class Group:
    """Writes what is done with one group, of as many matrices as so many vectors have lanes."""

    def __init__(self, kernel: Kernel, call: LibraryCall, target: Target, vectors: int) -> None:
        self.lowering, self.call = Lowering(kernel), call
        matrix = call.inputs[0]
        self.dtype, self.rows = matrix.dtype, matrix.shape[-1]
        self.batch_shape, self.batch = matrix.shape[:-2], prod(matrix.shape[:-2])
        self.columns = call.results[0].size // (self.batch * self.rows)
        self.vector = 1 if target.runs_grids else target.vector_bytes // self.dtype.itemsize
        lanes = self.vector * (1 if target.runs_grids else vectors)
        while lanes > self.batch:
            lanes //= 2
        self.lane = Var("lane", lanes)
        self.width = 4 if target.vector_registers >= 32 else 2  # of blocks in registers
        self.number = Var("group", ceil_div(self.batch, lanes))

    def scratch(self, name: str, rows: int, columns: int, place: Place = by_rows) -> Matrices:
        size = rows * columns * self.lane.extent
        return Matrices(Memory(name, self.dtype, size, local=True), rows, columns, self.lane, place)

    def copied(self, shape: tuple[int, ...], move: Callable[[Index, Position], Store]) -> Body:
        """`move` of every element of a group: its place in scratch, and its position in a buffer
        of that shape."""
        inner = shape[len(self.batch_shape) :]
        size, lanes = prod(inner), self.lane.extent
        together = min(self.vector, lanes, power_of_two(size))

        def moved(element: Index, lane: Index) -> Store:
            matrix = at_most(index(self.number) * lanes + lane, self.batch - 1)
            at = *unravel(matrix, self.batch_shape), *unravel(element, inner)
            return move(element * lanes + lane, at)

        if together < FEWEST:
            element, lane = Var("element", size), Var("lane", lanes)
            return nested([element, lane], (moved(index(element), index(lane)),))
        block, k = Var("block", ceil_div(size, together)), Var("k", together)
        element = at_most(index(block) * together, size - together) + index(k)
        square = tuple(moved(element, constant(lane)) for lane in range(lanes))
        return nested([block], (Loop(k, Axis.VECTOR, square, together),))

    def read(self, operand: int, inside: Matrices) -> Body:
        def move(near: Index, here: Position) -> Store:
            at = self.lowering.position(here)
            value = self.lowering.emit(self.call.inputs[operand], at, self.lowering.root, ())
            return Store(inside.memory, near, value)

        return (Allocate(inside.memory), *self.copied(self.call.inputs[operand].shape, move))

    def write(
        self, inside: Matrices, result: int,
        value: Callable[[Expression], Expression] = lambda value: value,
    ) -> Body:  # fmt: skip
        """Nothing where nobody reads the result."""
        body: Body = ()
        shape = self.call.results[result].shape
        results = self.lowering.kernel.graph.results
        for memory, node in zip(self.lowering.writes, results, strict=True):
            if isinstance(node, Output) and node.position == result:

                def move(near: Index, here: Position, memory: Memory = memory) -> Store:
                    return Store(memory, linear(here, shape), value(Load(inside.memory, near)))

                body += self.copied(shape, move)
        return body
