"""QR factorisations and singular values of small matrices, as loops, against LAPACK."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.codegen.harness import TARGET, run_kernel
from tests.codegen.test_grid_programs import NV
from tinyhlo.codegen.loops import Axis, Loop
from tinyhlo.codegen.lowering.kernel import library_call_of
from tinyhlo.codegen.small_matrices.lower import lower_small_matrices
from tinyhlo.import_stablehlo.families.linalg import lapack
from tinyhlo.ir import build
from tinyhlo.ir.dtypes import F32, F64, I32, DType
from tinyhlo.ir.graph import Graph, TensorType
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.schedule.program import Kernel

SIZES = [(1, 1, 1), (1, 5, 3), (37, 3, 3), (16, 4, 9), (9, 9, 4), (21, 1, 5), (50, 8, 8)]
UNITS = 60.0  # of the last digit of a matrix's largest number


def matrices(batch: int, rows: int, columns: int, dtype: DType) -> np.ndarray:
    generator = np.random.default_rng(batch + rows)
    return generator.standard_normal((batch, rows, columns)).astype(dtype.numpy)


def turned(a: np.ndarray) -> np.ndarray:
    """LAPACK's order of a batch of matrices, and back."""
    return np.ascontiguousarray(a.swapaxes(1, 2))


Pair = tuple[TensorType, TensorType]


def pair(batch: int, rows: int, columns: int, dtype: DType) -> Pair:
    """A matrix's type as LAPACK sees it, and that of its memory."""
    seen, memory = (batch, rows, columns), (batch, columns, rows)
    return TensorType(seen, dtype), TensorType(memory, dtype)


def column(batch: int, rows: int, dtype: DType) -> Pair:
    return (TensorType((batch, rows), dtype),) * 2


def qr_graph(batch: int, rows: int, columns: int, dtype: DType) -> Graph:
    seen, memory = pair(batch, rows, columns, dtype)
    a = build.param(0, memory.shape, dtype)
    results = [(seen, memory), column(batch, min(rows, columns), dtype)]
    return Graph((memory,), tuple(lapack("geqrf", dtype, [(a, seen)], results, shared=0)))


def product_graph(batch: int, rows: int, columns: int, count: int, dtype: DType) -> Graph:
    seen, memory = pair(batch, rows, columns, dtype)
    a, factors = build.param(0, memory.shape, dtype), build.param(1, (batch, count), dtype)
    operands: list[Any] = [(a, seen), (factors, factors.type)]
    q = lapack("orgqr", dtype, operands, [(seen, memory)], shared=0)
    return Graph((memory, factors.type), tuple(q))


def svd_graph(batch: int, rows: int, columns: int, dtype: DType, mode: str) -> Graph:
    seen, memory = pair(batch, rows, columns, dtype)
    a, short = build.param(0, memory.shape, dtype), min(rows, columns)
    left, right = (rows, columns) if mode == "A" else (short, short)
    results = [
        (seen, memory),
        column(batch, short, dtype),
        pair(batch, rows, left, dtype),
        pair(batch, right, columns, dtype),
        (TensorType((batch,), I32),) * 2,
    ]
    found = lapack("gesdd", dtype, [(a, seen)], results, shared=0, mode=mode)
    return Graph((memory,), tuple(found[1:] if mode != "N" else found[1::3]))


def is_loops(graph: Graph) -> bool:
    return library_call_of(Kernel("kernel", graph), TARGET) is None


@pytest.mark.parametrize(
    ("batch", "rows", "columns"), [*SIZES, (5, 20, 20), (4, 40, 32), (33, 48, 48)]
)
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("in_place", [False, True])
def test_qr(batch: int, rows: int, columns: int, dtype: DType, in_place: bool) -> None:
    """LAPACK's reflections, and Q by them: all columns, and as many as there are reflections."""
    graph, a = qr_graph(batch, rows, columns, dtype), turned(matrices(batch, rows, columns, dtype))
    assert is_loops(graph)
    got = run_kernel(graph, a, in_place=((0, 0),) if in_place else ())
    limit = 50 * np.finfo(dtype.numpy).eps
    for mine, other in zip(got, run_graph(graph, [a]), strict=True):
        np.testing.assert_allclose(mine, other, rtol=0, atol=limit * np.abs(other).max())
    short = min(rows, columns)
    for count in {short, min(rows, 64 if batch >= 32 else 32)}:
        vectors = np.zeros((batch, count, rows), dtype.numpy)
        vectors[:, :short] = got[0][:, :short]
        graph = product_graph(batch, rows, count, short, dtype)
        assert is_loops(graph)
        (q,) = run_kernel(graph, vectors, got[1], in_place=((0, 0),) if in_place else ())
        (expected,) = run_graph(graph, [vectors, got[1]])
        np.testing.assert_allclose(q, expected, rtol=0, atol=limit)


def test_qr_of_matrices_that_are_hard() -> None:
    """Zeros, and numbers whose squares overflow or vanish; NaN stays in its matrix."""
    a = matrices(12, 4, 4, F32)
    a[0], a[1, :, 1], a[2, 1:, 0], a[3, 0, 0] = 0.0, 0.0, 0.0, 0.0
    a[4] *= np.float32(1e37)
    a[5] *= np.float32(1e-37)
    a[6] *= np.float32(1e-42)
    a[7, 2, 1] = np.nan
    reflections, factors = run_kernel(qr_graph(12, 4, 4, F32), turned(a))
    (q,) = run_kernel(product_graph(12, 4, 4, 4, F32), reflections, factors)
    q, r = (turned(each).astype(np.float64) for each in (q, reflections))
    bad = np.isnan(q).any((1, 2))
    assert bad.tolist() == [k == 7 for k in range(12)]
    q, r, a = q[~bad], np.triu(r[~bad]), a[~bad].astype(np.float64)
    np.testing.assert_allclose(turned(q) @ q, np.broadcast_to(np.eye(4), q.shape), atol=2e-6)
    scale = np.abs(a).max((1, 2), keepdims=True) + 1e-300
    error = np.abs(q @ r - a) / scale
    assert error[6].max() < 1e-3 and np.delete(error, 6, 0).max() < 2e-6


def test_a_product_of_any_reflections() -> None:
    """What `householder_product` is given need not come from a factorisation: the last reflection
    may turn the last row."""
    a, factors = turned(matrices(9, 5, 5, F64)), matrices(9, 1, 5, F64)[:, 0]
    graph = product_graph(9, 5, 5, 5, F64)
    np.testing.assert_allclose(
        run_kernel(graph, a, factors)[0], run_graph(graph, [a, factors])[0], atol=1e-12
    )


def check_svd(a: np.ndarray, u: np.ndarray, values: np.ndarray, vt: np.ndarray) -> None:
    """Of matrices with finite numbers."""
    eps, (batch, rows, columns) = np.finfo(a.dtype).eps, a.shape
    scale = np.abs(a).max((1, 2), keepdims=True).astype(np.float64) + 1e-300
    a, u, values, vt = (np.asarray(each, np.float64) for each in (a / scale, u, values, vt))
    values = values / scale[:, 0]
    short = min(rows, columns)
    product = (u[:, :, :short] * values[:, None]) @ vt[:, :short]
    limit = UNITS * eps * max(1, short / 8) + 1e-45 / scale  # the results' own last digit
    assert (np.abs(product - a) <= limit).all()
    assert (np.abs(values - np.linalg.svd(a, compute_uv=False)) <= limit[:, 0]).all()
    assert (values >= 0).all() and (np.diff(values) <= 0).all()
    for m in (u, vt.swapaxes(1, 2)):
        unit = np.broadcast_to(np.eye(m.shape[2]), (batch, *m.shape[2:] * 2))
        np.testing.assert_allclose(m.swapaxes(1, 2) @ m, unit, rtol=0, atol=UNITS * eps)


@pytest.mark.parametrize(
    ("batch", "rows", "columns"),
    [*SIZES[2:], (4, 1, 1), (33, 10, 10), (4, 6, 40), (5, 48, 2), (32, 16, 16)],
)
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("mode", "AS")
def test_singular_values(batch: int, rows: int, columns: int, dtype: DType, mode: str) -> None:
    a, graph = matrices(batch, rows, columns, dtype), svd_graph(batch, rows, columns, dtype, mode)
    assert is_loops(graph)
    values, u, vt, failed = run_kernel(graph, turned(a))
    check_svd(a, turned(u), values, turned(vt))
    assert not failed.any()
    alone, failed = run_kernel(svd_graph(batch, rows, columns, dtype, "N"), turned(a))
    np.testing.assert_allclose(alone, values, rtol=UNITS * np.finfo(dtype.numpy).eps)
    assert not failed.any()


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (4, 4), (10, 10), (12, 5), (5, 9), (16, 16)])
def test_singular_values_of_matrices_that_are_hard(rows: int, columns: int, dtype: DType) -> None:
    batch, short, rng = 40, min(rows, columns), np.random.default_rng(rows)
    left = np.linalg.qr(rng.standard_normal((batch, rows, short)))[0]
    right = np.linalg.qr(rng.standard_normal((batch, columns, short)))[0].swapaxes(1, 2)

    def of(values: np.ndarray) -> np.ndarray:
        return (left * values[..., None, :]) @ right

    normal = rng.standard_normal((batch, rows, columns))
    most = float(np.finfo(dtype.numpy).max)
    kinds = {
        "zero": 0 * normal,
        "equal": of(np.ones((batch, short))),
        "nearly": of(1 + 1e-7 * rng.standard_normal((batch, short))),
        "graded": of(10.0 ** -rng.uniform(0, 30, (batch, short))),
        "rank 1": left[:, :, :1] * right[:, :1],
        "few numbers": rng.integers(-1, 2, normal.shape),
        "a zero column": normal * (np.arange(columns) != 1),
        "diagonal": np.eye(rows, columns) * normal,
        "scaled columns": normal * 10.0 ** rng.uniform(-15, 15, (batch, 1, columns)),
        "large": normal * (most / 100),
        "small": normal / (most / 100),
        "denormal": normal * (1e-42 if dtype is F32 else 1e-310),
    }
    graph = svd_graph(batch, rows, columns, dtype, "S")
    for name, kind in kinds.items():
        a = kind.astype(dtype.numpy)
        values, u, vt, failed = run_kernel(graph, turned(a))
        assert not failed.any(), name
        check_svd(a, turned(u), values, turned(vt))


def test_matrices_that_are_not_finite_fail_alone() -> None:
    a = matrices(20, 3, 3, F32)
    a[4, 1, 2], a[9, 0, 0] = np.nan, -np.inf
    values, u, vt, failed = run_kernel(svd_graph(20, 3, 3, F32, "S"), turned(a))
    assert np.flatnonzero(failed).tolist() == [4, 9]
    good = failed == 0
    check_svd(a[good], turned(u)[good], values[good], turned(vt)[good])


def test_large_matrices_and_vectors_in_their_place_are_calls() -> None:
    for graph in (
        qr_graph(100, 65, 65, F32),
        qr_graph(100, 65, 3, F32),
        qr_graph(31, 33, 33, F32),
        qr_graph(1, 25, 2, F32),
        svd_graph(100, 25, 25, F32, "S"),
        svd_graph(31, 11, 11, F32, "S"),
        svd_graph(100, 17, 17, F64, "S"),
        svd_graph(100, 3, 50, F32, "S"),
        svd_graph(3, 3, 3, F32, "S"),
        svd_graph(1, 3, 2, F32, "S"),
        svd_graph(100, 3, 3, F32, "O"),
    ):
        assert not is_loops(graph)


def test_an_item_of_a_grid_has_a_matrix() -> None:
    """All by itself: no two wait for each other."""
    loops = lower_small_matrices(Kernel("kernel", svd_graph(1000, 3, 3, F32, "S")), NV)
    (grid,) = (s for s in loops.body if isinstance(s, Loop))
    (item,) = grid.body
    assert isinstance(item, Loop) and (grid.axis, item.axis) == (Axis.GRID, Axis.ITEM)
    assert grid.var.extent * item.var.extent >= 1000 > (grid.var.extent - 1) * item.var.extent
