"""ragged_dot and its gradients as loops over blocks of rows, against NumPy."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax import lax

from tests.plugs import interpret
from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.graph import Loop

SIZES = [
    [8],
    [2, 3, 3],
    [0, 130, 70, 100],
    [100, 0, 1, 399, 64, 128, 200, 8],
    [5, 6],  # the last rows belong to no group
]


def module(rows: int, depth: int, columns: int, groups: int, gradient: bool) -> str:
    """A program with ragged_dot as one op, for any platform."""

    def forward(x: Any, w: Any, sizes: Any) -> Any:
        return lax.ragged_dot(x, w, sizes)

    def backward(x: Any, w: Any, sizes: Any) -> Any:
        return jax.grad(lambda x, w: (forward(x, w, sizes) ** 2).sum(), (0, 1))(x, w)

    arguments = (
        jax.ShapeDtypeStruct((rows, depth), np.float32),
        jax.ShapeDtypeStruct((groups, depth, columns), np.float32),
        jax.ShapeDtypeStruct((groups,), np.int32),
    )
    trace = jax.jit(backward if gradient else forward).trace(*arguments)
    return trace.lower(lowering_platforms=("tpu",)).as_text()


def reference(x: np.ndarray, w: np.ndarray, sizes: list[int]) -> np.ndarray:
    result, start = np.zeros((len(x), w.shape[2])), 0
    for matrix, size in zip(w, sizes, strict=True):
        result[start : start + size] = x[start : start + size] @ matrix
        start += size
    return result


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_products_and_gradients(sizes: list[int]) -> None:
    rows = sum(sizes) + (7 if len(sizes) == 2 else 0)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, 12)).astype(np.float32)
    w = rng.standard_normal((len(sizes), 12, 20)).astype(np.float32)
    text = module(rows, 12, 20, len(sizes), gradient=False)
    assert "chlo.ragged_dot" in text
    (found,) = compile_module(text, Config())(x, w, np.array(sizes, np.int32))
    expected = reference(x.astype(float), w.astype(float), sizes)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)

    dx, dw = compile_module(module(rows, 12, 20, len(sizes), gradient=True), Config())(
        x, w, np.array(sizes, np.int32)
    )
    start = 0
    for group, size in enumerate(sizes):
        part = slice(start, start + size)
        np.testing.assert_allclose(dx[part], 2 * expected[part] @ w[group].T, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(dw[group], 2 * x[part].T @ expected[part], rtol=1e-4, atol=2e-4)
        start += size


@pytest.mark.parametrize("sizes", [[4, 10], [70, 90, 3], [500, 1, 3]], ids=str)
def test_sizes_may_reach_beyond_the_last_row(sizes: list[int]) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((100 if sizes[0] > 4 else 8, 3)).astype(np.float32)
    w = rng.standard_normal((len(sizes), 3, 4)).astype(np.float32)
    (found,) = interpret(
        module(*x.shape, 4, len(sizes), gradient=False), [x, w, np.array(sizes, np.int32)]
    )
    np.testing.assert_allclose(found, reference(x, w, sizes), rtol=1e-5, atol=1e-5)


def test_complex_numbers_and_no_groups() -> None:
    """As text, which jaxlib's pass for this op never sees."""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((*shape, 2)).astype(np.float32) for shape in ((9, 4), (3, 4, 5)))
    x, w = (array.view(np.complex64)[..., 0] for array in (x, w))
    text = module(9, 4, 5, 3, gradient=False).replace("xf32>", "xcomplex<f32>>")
    sizes = np.array([4, 0, 3], np.int32)
    (found,) = compile_module(text, Config())(x, w, sizes)
    real = reference(x.real, w.real, [*sizes]) - reference(x.imag, w.imag, [*sizes])
    imaginary = reference(x.real, w.imag, [*sizes]) + reference(x.imag, w.real, [*sizes])
    np.testing.assert_allclose(found, real + 1j * imaginary, rtol=1e-5, atol=1e-5)
    none = np.zeros((0, 4, 5), np.float32), np.zeros(0, np.int32)
    (found,) = compile_module(module(9, 4, 5, 0, gradient=False), Config())(x.real, *none)
    assert found.shape == (9, 5) and not found.any()


def test_work_does_not_grow_with_the_groups() -> None:
    """One loop whose blocks are of one group each; no product with every group's matrix."""
    graph = import_module(module(256, 16, 16, 8, gradient=False)).graph
    loops = [node for node in graph.nodes() if isinstance(node, Loop)]
    assert len(loops) == 1
    assert max(node.type.size for node in loops[0].body.nodes()) == 64 * 16 * 16
