"""Calls of LAPACK for small matrices, as loops.

In: a kernel that is such a call. Out: a LoopProgram. A group of matrices is copied to scratch, one
a lane, worked on there, and copied out; groups run in parallel:

    lapack_sgetrf_ffi of f32[2000,8,8]  ->  125 groups of 16

LAPACK's matrices are column-major. What is an upper triangle is a lower one to the loops: they
count its rows and columns from the last to the first.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tinyhlo.codegen.expressions import literal
from tinyhlo.codegen.grid.mapping import by_item
from tinyhlo.codegen.lapack import TriangularSystem, letter, routine
from tinyhlo.codegen.loops import Allocate, Axis, Bind, Body, Loop, LoopProgram
from tinyhlo.codegen.moves.parallel import PARALLEL_WORK
from tinyhlo.codegen.small_matrices.eigenvalues import Eigenvalues
from tinyhlo.codegen.small_matrices.elimination import cholesky, solve
from tinyhlo.codegen.small_matrices.group import Group
from tinyhlo.codegen.small_matrices.householder import left_vectors, product, qr
from tinyhlo.codegen.small_matrices.lu import Factors
from tinyhlo.codegen.small_matrices.matrices import by_columns, by_rows
from tinyhlo.codegen.small_matrices.singular import SingularValues
from tinyhlo.ir.dtypes import I32
from tinyhlo.ir.graph import LibraryCall
from tinyhlo.records import dataclass
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

ITEMS = 64  # of a group, each of which has a matrix
BATCHES = 1, 4, 32  # matrices: LAPACK is better at fewer, on lanes and threads


def is_small(call: LibraryCall, target: Target) -> bool:
    """Whether a call is written as loops. An item of a device keeps no large matrix."""
    way = WAYS.get(routine(call))
    if way is None or len(call.inputs[0].shape) < 2 or keeps_vectors_in_place(call):
        return False
    *outer, columns, rows = call.inputs[0].shape
    batch = prod(outer)
    tiers = list(zip(BATCHES, way.most_rows, strict=True))[: 2 if target.runs_grids else None]
    most = max((rows for least, rows in tiers if batch >= least), default=0)
    most = min(most, way.most_bytes // call.inputs[0].dtype.itemsize)
    longest = most if batch < BATCHES[1] else max(most, way.longest)
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
    group = Group(kernel, call, target, way.vectors)
    body, number = way.build(group), group.number
    if target.runs_grids:
        items = min(ITEMS, target.group_items)
        body = (by_item(number.extent, items, lambda item: (Bind(number, item), *body)),)
    elif number.extent > 1:
        work = group.batch * group.rows**2 * max(group.rows, group.columns) * way.sweeps
        body = (Loop(number, Axis.PARALLEL if work >= PARALLEL_WORK else Axis.SERIAL, body),)
    lanes = f"{number.extent} groups of {group.lane.extent} matrices"
    return group.lowering.program(body, (lanes,))


def factor_lu(group: Group) -> Body:
    a = group.scratch("a", group.rows, group.rows, by_columns)
    pivots, failed = group.scratch("pivots", group.rows, 1), group.scratch("failed", 1, 1)
    return (
        *map(Allocate, (pivots.memory, failed.memory)),
        *group.read(0, a),
        *Factors(a, pivots, failed).body(),
        *group.write(a, 0),
        *group.write(pivots, 1, lambda row: (row + 1.0).cast(I32)),
        *group.write(failed, 2, lambda column: column.cast(I32)),
    )


def factor_cholesky(group: Group) -> Body:
    place = by_columns if letter(group.call, "uplo") == "L" else by_rows
    a = group.scratch("a", group.rows, group.rows, place)
    failed, inverses = group.scratch("failed", 1, 1), group.scratch("inverses", group.rows, 1)
    return (
        *map(Allocate, (failed.memory, inverses.memory)),
        *group.read(0, a),
        *cholesky(a, inverses, failed, group.width),
        *group.write(a, 0),
        *group.write(failed, 1, lambda column: column.cast(I32)),
    )


def solve_triangle(group: Group) -> Body:
    rows, system = group.rows, TriangularSystem(group.call)
    t = group.scratch("t", rows, rows, system.of_triangle)
    x = group.scratch("x", rows, group.columns, system.of_solution)
    inverses = None if system.unit else group.scratch("inverses", rows, 2)
    return (
        *group.read(0, t),
        *group.read(1, x),
        *([Allocate(inverses.memory)] if inverses is not None else []),
        *solve(t, x, inverses, group.width),
        *group.write(x, 0),
    )


def find_eigenvalues(group: Group) -> Body:
    """And vectors, if asked for. It cannot fail: NaN gives NaN."""
    rows, by_triangle = group.rows, letter(group.call, "uplo") == "L"
    a = group.scratch("a", rows, rows, by_columns if by_triangle else by_rows)
    v = group.scratch("v", rows, rows, by_columns)
    values, turn = group.scratch("values", rows, 1), group.scratch("turn", 5, 1)
    failed = group.scratch("failed", 1, 1)
    vectors = v if letter(group.call, "mode") == "V" else None
    return (
        *(Allocate(each.memory) for each in (values, turn, vectors) if each is not None),
        *group.read(0, a),
        *Eigenvalues(a, values, vectors, turn).body(),
        *group.write(vectors or a, 0),  # without vectors anything: LAPACK works there
        *group.write(values, 1),
        *group.write(failed, 2, lambda _: literal(0, I32)),
    )


def factor_qr(group: Group) -> Body:
    rows, columns = group.rows, group.columns
    a = group.scratch("a", rows, columns, by_columns)
    factors = group.scratch("factors", min(rows, columns), 1)
    return (
        Allocate(factors.memory),
        *group.read(0, a),
        *qr(a, factors),
        *group.write(a, 0),
        *group.write(factors, 1),
    )


def multiply_reflections(group: Group) -> Body:
    rows, columns, count = group.rows, group.columns, group.call.inputs[1].shape[-1]
    a, q = (group.scratch(name, rows, columns, by_columns) for name in "aq")
    factors = group.scratch("factors", count, 1)
    return (
        Allocate(q.memory),
        *group.read(0, a),
        *group.read(1, factors),
        *product(a, factors, q),
        *group.write(q, 0),
    )


def find_singular_values(group: Group) -> Body:
    """And vectors, if asked for. Of a matrix with more columns than rows: of it turned."""
    wide = group.columns > group.rows
    rows, columns = max(group.rows, group.columns), min(group.rows, group.columns)
    mode = letter(group.call, "mode")
    place, turned = (by_rows, by_columns) if wide else (by_columns, by_rows)
    a, v = group.scratch("a", rows, columns, place), group.scratch("v", columns, columns, turned)
    u = group.scratch("u", rows, rows if mode == "A" else columns, place)
    values, factors, turn = (
        group.scratch(name, count, 1)
        for name, count in (("values", columns), ("factors", columns), ("turn", 3))
    )
    scale, failed = group.scratch("scale", 1, 1), group.scratch("failed", 1, 1)
    vectors = mode != "N"
    left, right = (v, u) if wide else (u, v)
    parts = [values, turn, scale, failed, *([v, u, factors] if vectors else [])]
    return (
        *(Allocate(part.memory) for part in parts),
        *group.read(0, a),
        *SingularValues(a, values, v if vectors else None, turn, scale, failed).body(),
        *(left_vectors(a, factors, u) if vectors else ()),
        *group.write(a, 0),  # anything: LAPACK works there
        *group.write(values, 1),
        *(group.write(left, 2) if vectors else ()),
        *(group.write(right, 3) if vectors else ()),
        *group.write(failed, 4, lambda wrong: wrong.cast(I32)),
    )


@dataclass(frozen=True, slots=True)
class Way:
    """To compute what a call of LAPACK does, of matrices with so many rows and columns at most, for
    each number of BATCHES, and so many bytes a row; `longest`: the most of either where there are
    fewer of the other, 0: all are square. `sweeps`: how often what an elimination does, about.
    Where one step waits for the last, several vectors are worked on in turn."""

    build: Callable[[Group], Body]
    most_rows: tuple[int, int, int] = 8, 16, 96
    most_bytes: int = 512
    longest: int = 0
    sweeps: int = 1
    vectors: int = 1


WAYS: dict[str | None, Way] = {
    "getrf": Way(factor_lu, most_bytes=256),  # rows that change places take as long again
    "potrf": Way(factor_cholesky),
    "trsm": Way(solve_triangle),
    "geqrf": Way(factor_qr, (24, 32, 64), 384, longest=48),
    "orgqr": Way(multiply_reflections, (24, 32, 64), 384, longest=48),
    # vectors have other signs than LAPACK's: not of the few matrices that somebody looks at
    "syevd": Way(find_eigenvalues, (0, 8, 24), 128, sweeps=32, vectors=2),
    "gesdd": Way(find_singular_values, (0, 10, 24), 128, longest=48, sweeps=32, vectors=2),
}
