"""Calls of LAPACK for small matrices, as loops.

In: a kernel that is such a call. Out: a LoopProgram. A group of matrices is copied to scratch, one
a lane, worked on there, and copied out; groups run in parallel:

    lapack_sgetrf_ffi of f32[2000,8,8]  ->  125 groups of 16

LAPACK's matrices are column-major. What is an upper triangle becomes a lower one on the way: its
rows and columns are copied from the last to the first.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tinyhlo.codegen.expressions import Expression, Load, Memory, literal
from tinyhlo.codegen.grid.mapping import by_item
from tinyhlo.codegen.lapack import letter, routine
from tinyhlo.codegen.loops import Allocate, Axis, Bind, Body, Loop, LoopProgram, Store, nested
from tinyhlo.codegen.lowering.fused import Lowering, Position
from tinyhlo.codegen.moves.parallel import PARALLEL_WORK
from tinyhlo.codegen.small_matrices.algorithms import Matrices, cholesky, lu, solve
from tinyhlo.codegen.small_matrices.eigenvalues import Eigenvalues
from tinyhlo.codegen.small_matrices.householder import left_vectors, product, qr
from tinyhlo.codegen.small_matrices.singular import SingularValues
from tinyhlo.ir.dtypes import I32
from tinyhlo.ir.graph import LibraryCall, Output
from tinyhlo.ir.index import Index, Var, constant, index, linear, unravel
from tinyhlo.numbers import ceil_div
from tinyhlo.records import dataclass
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

ITEMS = 64  # of a group, each of which has a matrix
FEW_MATRICES = 4  # of fewer, LAPACK's vectors lie better
Place = Callable[[Index, Index], Position]  # the last axes of a buffer, for element (i, j)


def is_small(call: LibraryCall) -> bool:
    """Whether a call is written as loops."""
    way = WAYS.get(routine(call))
    if way is None or len(call.inputs[0].shape) < 2 or keeps_vectors_in_place(call):
        return False
    *outer, columns, rows = call.inputs[0].shape
    batch = prod(outer)
    if batch < FEW_MATRICES:
        most = longest = way.most_rows_of_few
    else:
        most, longest = way.most_rows, max(way.most_rows, way.longest)
    short, long = sorted((rows, columns))
    if not 0 < short <= most or long > longest or (short < long and not way.longest):
        return False
    return 0 < call.results[0].size <= batch * rows * longest


def keeps_vectors_in_place(call: LibraryCall) -> bool:
    """Whether singular vectors are asked for where the matrix was."""
    return "mode" in dict(call.attributes) and letter(call, "mode") == "O"


def lower_small_matrices(kernel: Kernel, target: Target) -> LoopProgram:
    call = kernel.root
    assert isinstance(call, LibraryCall)
    way = WAYS[routine(call)]
    builder = Builder(kernel, call, target, way.vectors)
    body = way.build(builder)
    group = builder.group
    if target.runs_grids:
        items = min(ITEMS, target.group_items)
        body = (by_item(group.extent, items, lambda number: (Bind(group, number), *body)),)
    elif group.extent > 1:
        work = builder.batch * builder.rows**2 * max(builder.rows, builder.columns) * way.sweeps
        body = (Loop(group, Axis.PARALLEL if work >= PARALLEL_WORK else Axis.SERIAL, body),)
    lanes = f"{group.extent} groups of {builder.lane.extent} matrices"
    return builder.lowering.program(body, (lanes,))


class Builder:
    """Writes what is done with one group, of as many matrices as so many vectors have lanes."""

    def __init__(self, kernel: Kernel, call: LibraryCall, target: Target, vectors: int) -> None:
        self.lowering, self.call = Lowering(kernel), call
        matrix = call.inputs[0]
        self.dtype, self.rows = matrix.dtype, matrix.shape[-1]
        self.batch_shape, self.batch = matrix.shape[:-2], prod(matrix.shape[:-2])
        self.columns = call.results[0].size // (self.batch * self.rows)
        lanes = 1 if target.runs_grids else target.vector_bytes // self.dtype.itemsize * vectors
        while lanes > self.batch:
            lanes //= 2
        self.lane = Var("lane", lanes)
        self.group = Var("group", ceil_div(self.batch, lanes))

    def scratch(self, name: str, rows: int, columns: int) -> Matrices:
        size = rows * columns * self.lane.extent
        return Matrices(Memory(name, self.dtype, size, local=True), rows, columns, self.lane)

    def copied(self, inside: Matrices, move: Callable[[Index, Position], Store]) -> Body:
        """`move` of every element of a group: its place in scratch, and (matrix, i, j). The last
        group may be smaller."""
        i, j = Var("i", inside.rows), Var("j", inside.columns)
        matrix = Var("matrix", self.batch)
        first = index(self.group) * self.lane.extent
        lane = index(matrix) - first
        near = (index(i) * inside.columns + index(j)) * self.lane.extent + lane
        here = (*unravel(index(matrix), self.batch_shape), index(i), index(j))
        loop = Loop(matrix, Axis.SERIAL, (move(near, here),), 1, first, self.lane.extent)
        return nested([i, j], (loop,))

    def read(self, operand: int, inside: Matrices, place: Place) -> Body:
        def move(near: Index, here: Position) -> Store:
            *batch, i, j = here
            at = self.lowering.position((*batch, *place(i, j)))
            value = self.lowering.emit(self.call.inputs[operand], at, self.lowering.root, ())
            return Store(inside.memory, near, value)

        return (Allocate(inside.memory), *self.copied(inside, move))

    def write(
        self, inside: Matrices, result: int, place: Place,
        value: Callable[[Expression], Expression] = lambda value: value,
    ) -> Body:  # fmt: skip
        """Nothing where nobody reads the result."""
        body: Body = ()
        shape = self.call.results[result].shape
        results = self.lowering.kernel.graph.results
        for memory, node in zip(self.lowering.writes, results, strict=True):
            if isinstance(node, Output) and node.position == result:

                def move(near: Index, here: Position, memory: Memory = memory) -> Store:
                    *batch, i, j = here
                    where = linear((*batch, *place(i, j)), shape)
                    return Store(memory, where, value(Load(inside.memory, near)))

                body += self.copied(inside, move)
        return body


def by_columns(i: Index, j: Index) -> Position:
    """Where a buffer in LAPACK's order has element (i, j)."""
    return (j, i)


def by_rows(i: Index, j: Index) -> Position:
    return (i, j)


def factor_lu(builder: Builder) -> Body:
    a = builder.scratch("a", builder.rows, builder.rows)
    pivots, failed = builder.scratch("pivots", builder.rows, 1), builder.scratch("failed", 1, 1)
    return (
        *map(Allocate, (pivots.memory, failed.memory)),
        *builder.read(0, a, by_columns),
        *lu(a, pivots, failed),
        *builder.write(a, 0, by_columns),
        *builder.write(pivots, 1, lambda i, j: (i,), lambda row: (row + 1.0).cast(I32)),
        *builder.write(failed, 2, lambda i, j: (), lambda column: column.cast(I32)),
    )


def factor_cholesky(builder: Builder) -> Body:
    a, failed = builder.scratch("a", builder.rows, builder.rows), builder.scratch("failed", 1, 1)
    place = by_columns if letter(builder.call, "uplo") == "L" else by_rows
    return (
        Allocate(failed.memory),
        *builder.read(0, a, place),
        *cholesky(a, failed),
        *builder.write(a, 0, place),
        *builder.write(failed, 1, lambda i, j: (), lambda column: column.cast(I32)),
    )


def solve_triangle(builder: Builder) -> Body:
    """X op(A) = B is solved as op(A)' X' = B'."""
    rows, columns = builder.rows, builder.columns
    left = letter(builder.call, "side") == "L"
    turned = (letter(builder.call, "trans_x") == "N") != left
    lower = (letter(builder.call, "uplo") == "L") != turned
    t, x = builder.scratch("t", rows, rows), builder.scratch("x", rows, columns)

    def row(i: Index) -> Index:
        return i if lower else constant(rows - 1) - i

    def of_triangle(i: Index, j: Index) -> Position:
        return by_rows(row(i), row(j)) if turned else by_columns(row(i), row(j))

    def of_solution(i: Index, c: Index) -> Position:
        return by_columns(row(i), c) if left else by_rows(row(i), c)

    return (
        *builder.read(0, t, of_triangle),
        *builder.read(1, x, of_solution),
        *solve(t, x, letter(builder.call, "diag") == "U"),
        *builder.write(x, 0, of_solution),
    )


def find_eigenvalues(builder: Builder) -> Body:
    """And vectors, if asked for. It cannot fail: NaN gives NaN."""
    rows = builder.rows
    a, v = builder.scratch("a", rows, rows), builder.scratch("v", rows, rows)
    values, turn = builder.scratch("values", rows, 1), builder.scratch("turn", 4, 1)
    failed = builder.scratch("failed", 1, 1)
    vectors = v if letter(builder.call, "mode") == "V" else None
    place = by_columns if letter(builder.call, "uplo") == "L" else by_rows
    return (
        *(Allocate(each.memory) for each in (values, turn, vectors) if each is not None),
        *builder.read(0, a, place),
        *Eigenvalues(a, values, vectors, turn).body(),
        *builder.write(vectors or a, 0, by_columns),
        *builder.write(values, 1, lambda i, j: (i,)),
        *builder.write(failed, 2, lambda i, j: (), lambda _: literal(0, I32)),
    )


def factor_qr(builder: Builder) -> Body:
    rows, columns = builder.rows, builder.columns
    a, factors = (
        builder.scratch("a", rows, columns),
        builder.scratch("factors", min(rows, columns), 1),
    )
    return (
        Allocate(factors.memory),
        *builder.read(0, a, by_columns),
        *qr(a, factors),
        *builder.write(a, 0, by_columns),
        *builder.write(factors, 1, lambda i, j: (i,)),
    )


def multiply_reflections(builder: Builder) -> Body:
    rows, columns, count = builder.rows, builder.columns, builder.call.inputs[1].shape[-1]
    a, q = (builder.scratch(name, rows, columns) for name in "aq")
    factors = builder.scratch("factors", count, 1)
    return (
        Allocate(q.memory),
        *builder.read(0, a, by_columns),
        *builder.read(1, factors, lambda i, j: (i,)),
        *product(a, factors, q),
        *builder.write(q, 0, by_columns),
    )


def find_singular_values(builder: Builder) -> Body:
    """And vectors, if asked for. Of a matrix with more columns than rows: of it turned."""
    wide = builder.columns > builder.rows
    rows, columns = max(builder.rows, builder.columns), min(builder.rows, builder.columns)
    mode = letter(builder.call, "mode")
    a, v = builder.scratch("a", rows, columns), builder.scratch("v", columns, columns)
    u = builder.scratch("u", rows, rows if mode == "A" else columns)
    values, factors, turn = (
        builder.scratch(name, count, 1)
        for name, count in (("values", columns), ("factors", columns), ("turn", 2))
    )
    scale, failed = builder.scratch("scale", 1, 1), builder.scratch("failed", 1, 1)
    vectors, place = mode != "N", by_rows if wide else by_columns
    left, right = (v, u) if wide else (u, v)
    parts = [values, turn, scale, failed, *([v, u, factors] if vectors else [])]
    return (
        *(Allocate(part.memory) for part in parts),
        *builder.read(0, a, place),
        *SingularValues(a, values, v if vectors else None, turn, scale, failed).body(),
        *(left_vectors(a, factors, u) if vectors else ()),
        *builder.write(a, 0, place),  # anything: LAPACK works there
        *builder.write(values, 1, lambda i, j: (i,)),
        *(builder.write(left, 2, by_columns) if vectors else ()),
        *(builder.write(right, 3, by_rows) if vectors else ()),
        *builder.write(failed, 4, lambda i, j: (), lambda wrong: wrong.cast(I32)),
    )


@dataclass(frozen=True, slots=True)
class Way:
    """To compute what a call of LAPACK does, of matrices with so many rows and columns at most;
    `longest`: the most of either where there are fewer of the other, 0: all are square. `sweeps`:
    how often what an elimination does, about. Where one step waits for the last, several vectors
    are worked on in turn."""

    build: Callable[[Builder], Body]
    most_rows: int = 16
    most_rows_of_few: int = 8
    longest: int = 0
    sweeps: int = 1
    vectors: int = 1


WAYS: dict[str | None, Way] = {
    "getrf": Way(factor_lu),
    "potrf": Way(factor_cholesky),
    "trsm": Way(solve_triangle),
    "geqrf": Way(factor_qr, 32, 24, longest=48),
    "orgqr": Way(multiply_reflections, 32, 24, longest=48),
    # vectors have other signs than LAPACK's: not of the few matrices that somebody looks at
    "syevd": Way(find_eigenvalues, 8, 0, sweeps=32, vectors=2),
    "gesdd": Way(find_singular_values, 10, 0, longest=48, sweeps=32, vectors=2),
}
