"""LAPACK's calls for small matrices, as loops, against LAPACK."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests.codegen.harness import TARGET, run_kernel
from tinyhlo.codegen.lowering.kernel import library_call_of
from tinyhlo.codegen.small_matrices.lower import lower_small_matrices
from tinyhlo.import_stablehlo.families.linalg import lapack
from tinyhlo.ir import build
from tinyhlo.ir.dtypes import F32, F64, I32, DType
from tinyhlo.ir.graph import Graph, Node, TensorType
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.schedule.program import Kernel

SIZES = [
    (1, 1),
    (1, 2),
    (3, 3),
    (37, 3),
    (16, 4),
    (50, 8),
    (7, 16),
    (35, 23),
    (32, 32),
]  # batch, rows
DIGITS = {F32: 2e-5, F64: 1e-13}


def matrices(batch: int, rows: int, columns: int, dtype: DType) -> np.ndarray:
    generator = np.random.default_rng(batch + rows)
    return generator.standard_normal((batch, rows, columns)).astype(dtype.numpy)


def lu_graph(batch: int, rows: int, dtype: DType) -> Graph:
    a = build.param(0, (batch, rows, rows), dtype)
    types = [a.type, TensorType((batch, rows), I32), TensorType((batch,), I32)]
    results = lapack("getrf", dtype, [(a, a.type)], [(t, t) for t in types], shared=0)
    return Graph((a.type,), tuple(results))


def cholesky_graph(batch: int, rows: int, dtype: DType, triangle: str) -> Graph:
    a = build.param(0, (batch, rows, rows), dtype)
    types = [a.type, TensorType((batch,), I32)]
    pairs = [(t, t) for t in types]
    results = lapack("potrf", dtype, [(a, a.type)], pairs, shared=0, uplo=triangle)
    return Graph((a.type,), tuple(results))


def compare(graph: Graph, *inputs: np.ndarray, in_place: bool = False) -> list[np.ndarray]:
    """The kernel is loops, and gives what LAPACK gives."""
    assert library_call_of(Kernel("kernel", graph), TARGET) is None
    got = run_kernel(graph, *inputs, in_place=((0, len(inputs) - 1),) if in_place else ())
    for mine, other in zip(got, run_graph(graph, list(inputs)), strict=True):
        if mine.dtype == np.int32:
            assert mine.tolist() == other.tolist()
        else:
            scale = np.abs(other[np.isfinite(other)]).max(initial=1.0)
            np.testing.assert_allclose(
                mine, other, rtol=0, atol=scale * DIGITS[graph.params[0].dtype]
            )
    return got


@pytest.mark.parametrize(("batch", "rows"), SIZES)
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("in_place", [False, True])
def test_lu(batch: int, rows: int, dtype: DType, in_place: bool) -> None:
    compare(lu_graph(batch, rows, dtype), matrices(batch, rows, rows, dtype), in_place=in_place)


def test_lu_of_singular_matrices() -> None:
    """The first column without a pivot is told, and the others are eliminated as ever."""
    a = matrices(20, 5, 5, F32)
    a[4, :, 1], a[5], a[6, 4] = 0.0, 0.0, 0.0
    _, _, failed = compare(lu_graph(20, 5, F32), a)
    assert failed[5] == 1 and failed[4] > 0 and not failed[:3].any()


@pytest.mark.parametrize(("batch", "rows"), SIZES)
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("triangle", "LU")
def test_cholesky(batch: int, rows: int, dtype: DType, triangle: str) -> None:
    root = matrices(batch, rows, rows, dtype)
    a = root @ root.swapaxes(1, 2) + np.eye(rows, dtype=dtype.numpy)
    compare(cholesky_graph(batch, rows, dtype, triangle), a)


def test_cholesky_of_what_is_not_positive_definite() -> None:
    a = np.tile(np.eye(4, dtype="f4"), (9, 1, 1))
    a[2, 0, 0], a[5, 3, 3], a[6, 2, 2] = -1.0, 0.0, np.nan
    _, failed = run_kernel(cholesky_graph(9, 4, F32, "L"), a)
    assert failed.tolist() == [0, 0, 1, 0, 0, 4, 3, 0, 0]


def eigen_graph(batch: int, rows: int, dtype: DType, triangle: str, mode: str = "V") -> Graph:
    a = build.param(0, (batch, rows, rows), dtype)
    types = [a.type, TensorType((batch, rows), dtype), TensorType((batch,), I32)]
    pairs = [(t, t) for t in types]
    found = lapack("syevd", dtype, [(a, a.type)], pairs, shared=0, mode=mode, uplo=triangle)
    return Graph((a.type,), tuple(found) if mode == "V" else tuple(found[1:]))


def symmetric(batch: int, rows: int, dtype: DType) -> np.ndarray:
    a = matrices(batch, rows, rows, dtype)
    return a + a.swapaxes(1, 2)


def check_vectors(a: np.ndarray, values: np.ndarray, vectors: np.ndarray) -> None:
    """Of matrices in float64: columns v with A v = value v, of length 1 and across each other."""
    v, digits = vectors.astype(np.float64), 30 * np.finfo(vectors.dtype).eps
    scale = np.abs(a).max((1, 2), keepdims=True) + 1e-300
    np.testing.assert_allclose((a @ v - v * values[:, None]) / scale, 0, atol=digits)
    unit = np.broadcast_to(np.eye(a.shape[1]), a.shape)
    np.testing.assert_allclose(v.swapaxes(1, 2) @ v, unit, atol=digits)


@pytest.mark.parametrize(
    ("batch", "rows"), [(4, 1), (9, 2), (37, 3), (5, 4), (100, 5), (20, 8), (35, 13)]
)
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("triangle", "LU")
@pytest.mark.parametrize("in_place", [False, True])
def test_eigenvalues(batch: int, rows: int, dtype: DType, triangle: str, in_place: bool) -> None:
    """LAPACK's; vectors may have another sign. Nothing but one triangle is read."""
    graph, full = eigen_graph(batch, rows, dtype, triangle), symmetric(batch, rows, dtype)
    assert library_call_of(Kernel("kernel", graph), TARGET) is None
    ones = np.ones((rows, rows), bool)  # column-major: of the lower triangle, the upper one
    a = full.copy()
    a[:, np.tril(ones, -1) if triangle == "L" else np.triu(ones, 1)] = np.nan
    vectors, values, failed = run_kernel(graph, a, in_place=((0, 0),) if in_place else ())
    _, expected, _ = run_graph(graph, [a])
    scale = np.abs(expected).max()
    np.testing.assert_allclose(values, expected, atol=scale * DIGITS[dtype] / 5)
    check_vectors(full.astype(np.float64), values, vectors.swapaxes(1, 2))
    assert not failed.any()


def test_eigenvalues_alone() -> None:
    a = symmetric(33, 6, F32)
    values, _ = run_kernel(eigen_graph(33, 6, F32, "L", "N"), a)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(a), atol=2e-5)


@pytest.mark.parametrize(("batch", "rows"), [(8, 8), (32, 16)])
def test_eigenvalues_of_matrices_that_are_hard(batch: int, rows: int) -> None:
    """Equal ones, zeros, numbers of all sizes; those of a matrix with NaN are NaN."""
    turn, graph = (
        np.linalg.qr(matrices(batch, rows, rows, F64))[0],
        eigen_graph(batch, rows, F64, "L"),
    )

    def of(*values: float) -> np.ndarray:
        return (turn * np.resize(values, rows)) @ turn.swapaxes(1, 2)

    sizes, random = 10.0 ** np.linspace(0, 7, rows), symmetric(batch, rows, F64)
    kinds = {
        "zero": np.zeros_like(turn),
        "diagonal": np.zeros_like(turn) + np.diag(np.resize([3.0, 1, 2, 2, 5, 4, 4, -1], rows)),
        "equal": of(1.0),
        "two": of(-1, 1),
        "one": of(*[0.0] * (rows - 1), 7),
        "graded": of(*sizes**-2),
        "scaled": random * sizes * sizes[:, None],
        "large": random * 1e300,
        "small": random * 1e-300,
    }
    for name, kind in kinds.items():
        a = (kind + kind.swapaxes(1, 2)) / 2
        vectors, values, _ = run_kernel(graph, a)
        expected = np.linalg.eigvalsh(a)
        limit = 1e-14 * np.abs(expected).max()
        np.testing.assert_allclose(values, expected, rtol=0, atol=limit, err_msg=name)
        check_vectors(a, values, vectors.swapaxes(1, 2))
    random[3, -1, -1] = np.nan
    values = run_kernel(graph, random)[1]
    assert np.isnan(values[3]).all() and np.isfinite(np.delete(values, 3, 0)).all()


def test_what_is_done_with_a_matrix_does_not_depend_on_others() -> None:
    """Sweeps end when nothing was turned in any lane."""
    a = symmetric(32, 9, F32)
    a[1::2] = np.diag(np.arange(9))
    graph = eigen_graph(32, 9, F32, "L")
    first = run_kernel(graph, a)
    second = run_kernel(graph, np.roll(a, 5, 0) * np.float32(1))
    for mine, other in zip(first, second, strict=True):
        assert np.array_equal(np.roll(mine, 5, 0), other)


def solve_graph(batch: int, rows: int, columns: int, dtype: DType, **options: str) -> Graph:
    left = options["side"] == "L"
    a = build.param(0, (batch, rows, rows), dtype)
    b = build.param(1, (batch, columns, rows) if left else (batch, rows, columns), dtype)
    seen = TensorType((batch, *b.shape[:0:-1]), dtype)  # column-major
    operands: list[tuple[Node, TensorType]] = [(a, a.type), (b, seen)]
    results = lapack("trsm", dtype, operands, [(seen, b.type)], shared=1, **options)  # type: ignore[arg-type]
    return Graph((a.type, b.type), tuple(results))


@pytest.mark.parametrize(
    "options", list(product("LR", "LU", "NTC", "NU")), ids=lambda options: "".join(options)
)
@pytest.mark.parametrize(("batch", "rows", "columns"), [(1, 3, 2), (21, 4, 1), (5, 8, 3)])
def test_triangular_solve(batch: int, rows: int, columns: int, options: tuple[str, ...]) -> None:
    side, triangle, turned, diagonal = options
    graph = solve_graph(
        batch, rows, columns, F32, side=side, uplo=triangle, trans_x=turned, diag=diagonal
    )
    a = matrices(batch, rows, rows, F32) / 4 + 2 * np.eye(rows, dtype="f4")
    _, *sides = graph.params[1].shape
    b = matrices(batch, sides[0], sides[1], F32)
    compare(graph, a, b)
    compare(graph, a, b, in_place=True)


@pytest.mark.parametrize("size", [1e-42, 1e-38, 1e-20, 1e20, 1e38])
def test_what_is_divided_by_may_have_any_size(size: float) -> None:
    """Inverses of the smallest numbers overflow, those of the largest are denormal."""
    rng = np.random.default_rng(0)
    t = np.tril(rng.uniform(0.5, 1, (9, 5, 5)), -1) * 0.1 + np.eye(5)
    t[:, 2], t[:, 2, 2] = 0, size
    b = rng.uniform(0.5, 1, (9, 2, 5)) * [1, 1, size, 1, 1]
    options = {"side": "L", "uplo": "L", "trans_x": "N", "diag": "N"}
    a, b = t.swapaxes(1, 2).astype("f4"), b.astype("f4")
    (x,) = run_kernel(solve_graph(9, 5, 2, F32, **options), a, b)
    expected = np.linalg.solve(a.swapaxes(1, 2).astype("f8"), b.swapaxes(1, 2).astype("f8"))
    np.testing.assert_allclose(x, expected.swapaxes(1, 2), rtol=1e-5)
    square = (rng.uniform(0.5, 1, (9, 5, 5)) + 2 * np.eye(5)) * size
    square = square.astype("f4")
    factors, pivots, failed = run_kernel(lu_graph(9, 5, F32), square)
    assert not failed.any() and (pivots == np.arange(1, 6)).all()
    factors = factors.swapaxes(1, 2).astype("f8")
    product_ = (np.tril(factors, -1) + np.eye(5)) @ np.triu(factors)
    np.testing.assert_allclose(product_, square.swapaxes(1, 2), rtol=1e-2 if size < 1e-40 else 1e-5)


def test_large_matrices_and_many_sides_are_calls() -> None:
    options = {"side": "L", "uplo": "L", "trans_x": "N", "diag": "N"}
    for graph in (
        lu_graph(100, 65, F32),
        lu_graph(100, 33, F64),
        lu_graph(31, 17, F32),
        lu_graph(1, 9, F32),
        solve_graph(100, 8, 97, F32, **options),
        eigen_graph(100, 25, F32, "L"),
        eigen_graph(20, 9, F32, "L"),
        eigen_graph(3, 3, F32, "L"),
    ):
        assert library_call_of(Kernel("kernel", graph), TARGET) is not None


def test_groups_run_in_parallel_where_there_is_work() -> None:
    loops = lower_small_matrices(Kernel("kernel", lu_graph(2000, 8, F32)), TARGET)
    assert "parallel" in str(loops) and "matrices" in loops.moves[0]
    few = lower_small_matrices(Kernel("kernel", lu_graph(20, 4, F32)), TARGET)
    assert "parallel" not in str(few)
