"""Kernels in Pallas: loops over their grid, made by JAX's interpreter and compiled as programs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pl = pytest.importorskip("jax.experimental.pallas")
pltpu = pytest.importorskip("jax.experimental.pallas.tpu")
X, Y = (np.arange(k, k + 8 * 128, dtype=np.float32).reshape(8, 128) for k in (0, 7))


def add(x: Any, y: Any, result: Any) -> None:
    result[...] = x[...] + 2 * y[...]


@pytest.mark.parametrize("interpret", [False, True, pltpu.InterpretParams()])
def test_pallas_call(tiny: jax.Device, interpret: Any) -> None:
    block = pl.BlockSpec((4, 128), lambda k: (k, 0))
    call = pl.pallas_call(
        add,
        out_shape=jax.ShapeDtypeStruct(X.shape, X.dtype),
        grid=2,
        in_specs=[block, block],
        out_specs=block,
        interpret=interpret,
    )
    with jax.default_device(tiny):
        result = jax.jit(call)(jnp.asarray(X), jnp.asarray(Y))
    assert result.devices() == {tiny}
    np.testing.assert_array_equal(result, X + 2 * Y)


@pytest.mark.parametrize("interpret", [False, True])
def test_kernel_on_a_mesh(tiny: jax.Device, interpret: bool) -> None:
    """Lowered by JAX for the platforms that it knows alone."""
    with jax.default_device(tiny):
        mesh = pltpu.create_tensorcore_mesh("x", num_cores=1)
        kernel = pl.kernel(
            add, out_type=jax.ShapeDtypeStruct(X.shape, X.dtype), mesh=mesh, interpret=interpret
        )
        result = kernel(jnp.asarray(X), jnp.asarray(Y))
    np.testing.assert_array_equal(result, X + 2 * Y)


def test_gradient_of_a_product_in_blocks(tiny: jax.Device) -> None:
    """Sums that the grid goes on with, under a rule for the gradient, batched."""

    def product_kernel(x: Any, y: Any, result: Any) -> None:
        @pl.when(pl.program_id(2) == 0)
        def _() -> None:
            result[...] = jnp.zeros_like(result)

        result[...] += x[...] @ y[...]

    def blocks(x: jax.Array, y: jax.Array) -> jax.Array:
        (m, k), n = x.shape, y.shape[1]
        return pl.pallas_call(
            product_kernel,
            out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
            grid=(m // 8, n // 8, k // 8),
            in_specs=[
                pl.BlockSpec((8, 8), lambda i, j, k: (i, k)),
                pl.BlockSpec((8, 8), lambda i, j, k: (k, j)),
            ],
            out_specs=pl.BlockSpec((8, 8), lambda i, j, k: (i, j)),
        )(x, y)

    product = jax.custom_vjp(blocks)
    product.defvjp(
        lambda x, y: (blocks(x, y), (x, y)),
        lambda xy, g: (blocks(g, xy[1].T), blocks(xy[0].T, g)),
    )
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 16, 24), (24, 32)))

    def loss(product: Any) -> Any:
        return lambda x, y: jnp.tanh(jax.vmap(product, (0, None))(x, y)).sum()

    with jax.default_device(tiny):
        found = jax.jit(jax.grad(loss(product), (0, 1)))(x, y)
    for ours, wanted in zip(found, jax.grad(loss(jnp.matmul), (0, 1))(x, y), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-5)
