"""A product with a small constant matrix as straight-line code over many columns at once.

In: a Kernel with one such sum (`ir/transform.py`), elementwise work and views before and after
it. Out: a LoopProgram without loops over the matrix: its network of additions
(`codegen/network.py`) stands in the body, every row is stored from there. Two points:

    for j in 1024 vector 8:
      y[0*1024 + j] = x[0*1024 + j] + x[1*1024 + j]
      y[1*1024 + j] = x[0*1024 + j] - x[1*1024 + j]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod

from tinyhlo.codegen.folding import apply
from tinyhlo.codegen.heuristics import PARALLEL_WORK, parallel
from tinyhlo.codegen.loops import (
    Axis,
    Body,
    Expression,
    Loop,
    LoopProgram,
    Memory,
    Statement,
    Store,
    literal,
)
from tinyhlo.codegen.lower import Conditions, Lowering, Position, Scope, argument_memories
from tinyhlo.codegen.moves import collapse, for_each_index
from tinyhlo.codegen.network import find_network
from tinyhlo.codegen.target import Target
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.graph import MultiReduce, Node, Reduce
from tinyhlo.ir.index import ZERO, Index, Var, constant, index, linear
from tinyhlo.ir.ops import Op
from tinyhlo.ir.transform import Transform, find_transform
from tinyhlo.schedule.program import Kernel

NEAR = 64  # elements apart: interleaved loads and stores


def lower_transform(kernel: Kernel, target: Target) -> LoopProgram | None:
    """The LoopProgram of such a kernel, its moves chosen; None for any other kernel."""
    reduces = [n for n in kernel.graph.nodes() if isinstance(n, (Reduce, MultiReduce))]
    if len(reduces) != 1 or kernel.in_place:
        return None
    (node,) = reduces
    transform = find_transform(node)
    if transform is None or not isinstance(node, Reduce):
        return None
    reads, writes = argument_memories(kernel)
    rows = [unrolled_axes(reads, node, transform, r) for r in kernel.graph.results]
    lowering = NetworkLowering(reads, node, transform, target.fma)
    for result, memory, axes in zip(kernel.graph.results, writes, rows, strict=True):
        if axes is None:
            return None
        lowering.store_rows(result, memory, axes)
    moves = ["unroll {}x{}".format(*transform.matrix.shape)]
    lanes = target.vector_bytes // node.dtype.itemsize
    body = tuple(vectorised(s, lanes, moves) for s in collapse(lowering.root.body()))
    steps = len(lowering.network.steps) + sum(transform.matrix.shape)
    if steps * points(body) >= PARALLEL_WORK * lanes:
        body = tuple(parallel(s, moves) if isinstance(s, Loop) else s for s in body)
    tables = tuple((memory, n.value) for n, memory in lowering.tables.items())
    return LoopProgram(kernel.name, reads, writes, body, (), tables, tuple(moves))


class NetworkLowering(Lowering):
    """Lowers a graph in which `total` is the sum: all its rows at once, at constant rows."""

    def __init__(
        self, memories: Sequence[Memory], total: Reduce, transform: Transform, fma: bool
    ) -> None:
        super().__init__(memories)
        self.total = total
        self.transform = transform
        self.network = find_network(transform.matrix)
        self.terms = ExpressionTerms(total.dtype, fma)
        kept = [k for k in range(len(transform.source.shape)) if k not in total.axes]
        self.row_places = tuple(kept.index(axis) for axis in transform.row_axes)
        self.row_shape = tuple(total.shape[k] for k in self.row_places)
        self.columns: dict[tuple[Position, int], list[Expression]] = {}
        self.seen: set[Position] = set()
        self.probing = False

    def compute(self, node: Node, at: Position, scope: Scope, guards: Conditions) -> Expression:
        if node is not self.total:
            return super().compute(node, at, scope, guards)
        if self.probing:
            self.seen.add(at)
            return literal(0, node.dtype)
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
        return self.network.apply(inputs, self.terms)

    def store_rows(self, node: Node, memory: Memory, axes: frozenset[int]) -> None:
        """Compute a whole result; `axes` get constants, the others loops."""
        shape = tuple(1 if k in axes else n for k, n in enumerate(node.shape))
        scope, start = self.nest(self.root, shape)
        for point in product(*(range(node.shape[k]) for k in sorted(axes))):
            where = dict(zip(sorted(axes), map(constant, point), strict=True))
            at = self.position(tuple(where.get(k, i) for k, i in enumerate(start)))
            value = self.emit(node, at, scope, ())
            scope.stores.append(Store(memory, linear(at, node.shape), value))


class ExpressionTerms:
    """How `apply_matrix` builds loop expressions of one type."""

    def __init__(self, dtype: DType, fma: bool) -> None:
        self.dtype, self.fma = dtype, fma

    def zero(self) -> Expression:
        return literal(0, self.dtype)

    def add(self, left: Expression, right: Expression) -> Expression:
        return apply(Op.ADD, (left, right), self.dtype)

    def subtract(self, left: Expression, right: Expression) -> Expression:
        return apply(Op.SUB, (left, right), self.dtype)

    def negate(self, value: Expression) -> Expression:
        return apply(Op.NEG, (value,), self.dtype)

    def scale(self, factor: float, value: Expression) -> Expression:
        return apply(Op.MUL, (literal(factor, self.dtype), value), self.dtype)

    def add_scaled(self, factor: float, value: Expression, total: Expression) -> Expression:
        if self.fma:
            return apply(Op.FMA, (literal(factor, self.dtype), value, total), self.dtype)
        return self.add(self.scale(factor, value), total)


def unrolled_axes(
    memories: Sequence[Memory], node: Reduce, transform: Transform, result: Node
) -> frozenset[int] | None:
    """Axes of `result` that say which row of the sum is needed; None where that is not an axis."""
    probe = NetworkLowering(memories, node, transform, False)
    probe.probing = True
    variables = [Var(f"o{axis}", extent) for axis, extent in enumerate(result.shape)]
    probe.emit(result, probe.position(tuple(map(index, variables))), probe.root, ())
    axes: set[int] = set()
    for position in probe.seen:
        for place in probe.row_places:
            row = position[place]
            for atom, _ in row.terms:
                if atom not in variables:
                    return None
                axes.add(variables.index(atom))  # type: ignore[arg-type]
    if prod(result.shape[axis] for axis in axes) > 2 * len(transform.matrix):
        return None
    return frozenset(axes)


def vectorised(statement: Statement, lanes: int, moves: list[str]) -> Statement:
    """Give the loop of a nest along which memory runs best a vector width."""
    nest: list[Loop] = []
    while isinstance(statement, Loop):
        nest.append(statement)
        statement = statement.body[0]
    usable = [loop for loop in nest if loop.var.extent >= lanes]
    if not usable:
        return nest[0] if nest else statement
    best = min(reversed(usable), key=lambda loop: access_cost(loop, lanes))
    moves.append(f"vector {best.var.name} {lanes}")
    inner: Body = nest[-1].body
    for loop in reversed(nest):
        vector = {"axis": Axis.VECTOR, "width": lanes} if loop is best else {}
        inner = (replace(loop, body=inner, **vector),)
    return inner[0]


def points(body: Body) -> int:
    """How often the innermost statements run."""
    return sum(s.var.extent * points(s.body) if isinstance(s, Loop) else 0 for s in body) or 1


def access_cost(loop: Loop, lanes: int) -> float:
    """Instructions for a vector of every access below `loop`, its variable across the lanes."""
    places: set[Index] = set()
    for_each_index(loop, places.add)
    total = 0.0
    for place in places:
        stride = place.coefficient(loop.var)
        match stride:
            case 0:
                total += 0.25
            case 1:
                total += 1
            case int() if abs(stride) <= NEAR:
                total += 3  # neighbours are taken together and shuffled
            case _:
                total += 2 * lanes
    return total
