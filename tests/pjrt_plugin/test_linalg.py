"""Linear algebra on tiny: what JAX lowers to LAPACK, and the ops of StableHLO, against NumPy."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax import lax

from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.graph import Elementwise
from tinyhlo.ir.simplify import simplify
from tinyhlo.runtime import blas, core

DTYPES = ["float32", "float64", "complex64", "complex128"]
TOLERANCE = {"float16": 3e-2, "float32": 2e-4, "complex64": 2e-4}


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def matrix(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    values = random.standard_normal(shape)
    if "complex" in dtype:
        values = values + 1j * random.standard_normal(shape)
    return values.astype(jnp.dtype(dtype))


def positive(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    a = matrix(shape, dtype).astype("complex128" if "complex" in dtype else "float64")
    a = a @ np.conj(np.swapaxes(a, -1, -2)) + shape[-1] * np.eye(shape[-1])
    return a.astype(jnp.dtype(dtype))


def on(tiny: jax.Device, function: Callable, *arguments: np.ndarray):
    return jax.jit(function)(*(jax.device_put(argument, tiny) for argument in arguments))


def close(actual: object, expected: object, dtype: str) -> None:
    tolerance = TOLERANCE.get(dtype, 1e-10)
    kind = np.complex128 if "complex" in dtype else np.float64
    np.testing.assert_allclose(
        np.asarray(actual).astype(kind), expected, rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (6, 6), (2, 3, 5, 5), (0, 0), (0, 4, 4)])
def test_cholesky(tiny: jax.Device, shape: tuple[int, ...], dtype: str) -> None:
    a = positive(shape, dtype)
    factor = on(tiny, lax.linalg.cholesky, a)
    assert factor.dtype == a.dtype
    wide = a.astype("complex128" if "complex" in dtype else "float64")
    close(factor, np.linalg.cholesky(wide) if a.size else a, dtype)


def test_cholesky_of_what_is_not_positive_definite_is_nan(tiny: jax.Device) -> None:
    a = np.stack([np.eye(3), -np.eye(3)]).astype(np.float32)
    good, bad = on(tiny, lax.linalg.cholesky, a)
    np.testing.assert_array_equal(good, np.eye(3))
    np.testing.assert_array_equal(bad, np.where(np.tri(3), np.nan, 0))


@pytest.mark.parametrize("dtype", [*DTYPES, "float16"])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("transpose", ["", "T", "C"])
@pytest.mark.parametrize("unit", [True, False])
def test_triangular_solve(
    tiny: jax.Device, dtype: str, left: bool, lower: bool, transpose: str, unit: bool
) -> None:
    a = positive((2, 4, 4), dtype) / 4
    b = matrix((2, 4, 3) if left else (2, 3, 4), dtype, seed=1)

    def solve(a, b):
        return lax.linalg.triangular_solve(
            a, b, left_side=left, lower=lower, transpose_a=bool(transpose),
            conjugate_a=transpose == "C", unit_diagonal=unit,
        )  # fmt: skip

    x = on(tiny, solve, a, b)
    assert x.dtype == b.dtype
    kept = np.tril(a) if lower else np.triu(a)
    kept = kept.astype("complex128" if "complex" in dtype else "float64")
    if unit:
        kept[:, range(4), range(4)] = 1
    kept = {"": kept, "T": kept.swapaxes(1, 2), "C": kept.conj().swapaxes(1, 2)}[transpose]
    x = np.asarray(x).astype(kept.dtype)
    close(kept @ x if left else x @ kept, b.astype(kept.dtype), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 4, 3)])
def test_factorisations(tiny: jax.Device, shape: tuple[int, ...], dtype: str) -> None:
    """What multiplies back to the matrix."""
    a = matrix(shape, dtype)

    def all_of_them(a):
        q, r = jnp.linalg.qr(a)
        u, s, v = jnp.linalg.svd(a, full_matrices=False)
        factors, _, rows = lax.linalg.lu(a)
        k = min(a.shape[-2:])
        low = jnp.tril(factors[..., :k], -1) + jnp.eye(a.shape[-2], k, dtype=a.dtype)
        product = low @ jnp.triu(factors[..., :k, :])
        back = jnp.argsort(rows)[..., None]
        unpermuted = jnp.take_along_axis(product, back, -2)
        return q @ r, (u * s[..., None, :].astype(u.dtype)) @ v, unpermuted

    for product in on(tiny, all_of_them, a):
        close(product, a, dtype)


def test_factors_are_not_chosen_by_what_is_known() -> None:
    """JAX asks whether LAPACK has complained of its arguments, which it cannot here."""

    def factors(a: jax.Array) -> jax.Array:
        return lax.linalg.lu(a)[0]

    traced = jax.jit(factors).trace(matrix((5, 4, 4), "float32"))
    text = traced.lower(lowering_platforms=("tiny",)).as_text()
    assert "stablehlo.select" in text
    graph = simplify(import_module(text).graph)
    assert not any(isinstance(node, Elementwise) for node in graph.nodes())


@pytest.mark.parametrize("dtype", DTYPES)
def test_eigenvalues(tiny: jax.Device, dtype: str) -> None:
    a = matrix((2, 5, 5), dtype)
    h = a + a.conj().swapaxes(1, 2)
    values, vectors = on(tiny, jnp.linalg.eigh, h)
    close(h @ np.asarray(vectors), np.asarray(values)[:, None] * np.asarray(vectors), dtype)
    values, vectors = on(tiny, jnp.linalg.eig, a)
    wide = "complex64" if dtype in ("float32", "complex64") else "complex128"
    close(a @ np.asarray(vectors), np.asarray(values)[:, None] * np.asarray(vectors), wide)


@pytest.mark.parametrize("dtype", DTYPES)
def test_schur_hessenberg_pivoted_qr(tiny: jax.Device, dtype: str) -> None:
    a = matrix((5, 5), dtype)

    def all_of_them(a):
        output = "complex" if jnp.iscomplexobj(a) else "real"
        t, z = jax.scipy.linalg.schur(a, output=output)
        h, q = jax.scipy.linalg.hessenberg(a, calc_q=True)
        return z @ t @ z.conj().T, q @ h @ q.conj().T

    for product in on(tiny, all_of_them, a):
        close(product, a, dtype)
    q, r, p = on(tiny, lambda a: jax.scipy.linalg.qr(a, pivoting=True), a)
    close(np.asarray(q) @ np.asarray(r), a[:, np.asarray(p)], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_solves(tiny: jax.Device, dtype: str) -> None:
    a, b = positive((4, 4), dtype), matrix((4, 2), dtype)
    close(on(tiny, jnp.linalg.solve, a, b), np.linalg.solve(a, b), dtype)
    close(on(tiny, jnp.linalg.inv, a), np.linalg.inv(a), dtype)
    close(on(tiny, jnp.linalg.det, a / 8), np.linalg.det(a / 8), dtype)
    low, main, up = np.diag(a, -1), np.diag(a), np.diag(a, 1)
    low, up = np.concatenate([[0], low]).astype(a.dtype), np.append(up, 0).astype(a.dtype)
    full = np.diag(main) + np.diag(low[1:], -1) + np.diag(up[:-1], 1)
    x = on(tiny, lax.linalg.tridiagonal_solve, low, main.copy(), up, b)
    close(full @ np.asarray(x), b, dtype)


def test_gradients(tiny: jax.Device) -> None:
    a = positive((4, 4), "float64")

    def loss(a):
        return jnp.sum(jnp.linalg.cholesky(a)) + jnp.linalg.slogdet(a)[1] + jnp.linalg.eigh(a)[0][0]

    with jax.default_device(jax.devices("cpu")[0]):
        expected = jax.grad(loss)(a)
    close(on(tiny, jax.grad(loss), a), expected, "float64")


def test_targets_of_other_platforms(tiny: jax.Device) -> None:
    """Qr and Householder products are custom calls in programs lowered for unknown platforms."""
    a = matrix((2, 5, 3), "float32")

    def product(a):
        kind = jax.ShapeDtypeStruct
        r, taus = jax.ffi.ffi_call(
            "Qr", (kind(a.shape, a.dtype), kind((2, 3), a.dtype)), custom_call_api_version=1
        )(a)
        q = jax.ffi.ffi_call(
            "ProductOfElementaryHouseholderReflectors",
            kind(a.shape, a.dtype),
            custom_call_api_version=1,
        )(r, taus)
        return q @ jnp.triu(r[:, :3])

    close(on(tiny, product, a), a, "float32")


def test_lapack_in_a_loop(tiny: jax.Device) -> None:
    a = positive((3, 3), "float64")

    def power(a):
        return lax.fori_loop(0, 3, lambda _, x: jnp.linalg.inv(x), a)

    close(on(tiny, power, a), scipy.linalg.inv(a), "float64")


def test_sparse_matrices(tiny: jax.Device) -> None:
    """Rules that JAX registers only when its sparse module is imported."""
    from jax.experimental import sparse
    from jax.experimental.sparse.linalg import spsolve

    a = np.diag([2.0, 3.0, 4.0]) + np.diag([1.0, 1.0], 1)
    with jax.default_device(tiny):
        packed = sparse.CSR.fromdense(jnp.asarray(a))
        b = jnp.arange(3.0)
        close(spsolve(packed.data, packed.indices, packed.indptr, b), np.linalg.solve(a, b), "f8")
        close(packed @ b, a @ np.asarray(b), "f8")


@pytest.mark.parametrize("dtype", DTYPES)
def test_batches_in_parts(tiny: jax.Device, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for large batches: each thread calls LAPACK for a part."""
    monkeypatch.setattr("tinyhlo.runtime.targets.SPLIT_SECONDS", 0.0)
    test_factorisations(tiny, (5, 4, 3), dtype)
    test_eigenvalues(tiny, dtype)
    test_cholesky(tiny, (2, 3, 4, 4), dtype)


def test_threads_of_blas(tiny: jax.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """One for batches and small matrices: others would wait for each other. Else no more than we
    have. Afterwards as many as before."""
    threads, asked = [8], list[int]()

    def set_threads(count: int) -> None:
        asked.append(count)
        threads[0] = count

    get = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: threads[0])
    set_ = ctypes.CFUNCTYPE(None, ctypes.c_int)(set_threads)
    core.library().tiny_blas_threads(core.address_of(get), core.address_of(set_))
    monkeypatch.setattr(blas, "hand_over", lambda: True)
    granted = core.library().tiny_thread_count()
    core.set_threads(3)
    try:
        for shape, most in (((3, 90, 90), 1), ((40, 40), 1), ((150, 150), 1), ((500, 500), 3)):
            asked.clear()
            a = np.broadcast_to(np.eye(shape[-1]), shape)
            values, _ = on(tiny, jnp.linalg.eigh, a)
            np.testing.assert_allclose(values, np.ones(shape[:-1]), atol=1e-12)
            assert asked == [most, 8]
        for sides in (1, 8):  # few flops, however large the matrix is
            asked.clear()
            a, b = np.eye(150), matrix((150, sides), "float64")
            solve = functools.partial(lax.linalg.triangular_solve, left_side=True)
            np.testing.assert_array_equal(on(tiny, solve, a, b), b)
            assert asked == [1, 8]
    finally:
        monkeypatch.undo()
        core.set_threads(granted)
        core.library().tiny_blas_threads(None, None)
        blas.hand_over.cache_clear()
        blas.hand_over()


def test_the_blas_of_scipys_wheels_is_found() -> None:
    assert blas.hand_over() or not list(blas.libraries())
