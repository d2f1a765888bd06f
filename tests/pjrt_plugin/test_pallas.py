"""Kernels in Pallas, which JAX interprets where it has no compiler for them."""

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


@pytest.mark.parametrize("interpreter", ["jax", "tpu"])
def test_pallas_call(tiny: jax.Device, interpreter: str) -> None:
    interpret = True if interpreter == "jax" else pltpu.InterpretParams()
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


def test_kernel_on_a_mesh(tiny: jax.Device) -> None:
    """Lowered by JAX for the platforms that it knows alone."""
    with jax.default_device(tiny):
        mesh = pltpu.create_tensorcore_mesh("x", num_cores=1)
        kernel = pl.kernel(
            add, out_type=jax.ShapeDtypeStruct(X.shape, X.dtype), mesh=mesh, interpret=True
        )
        result = kernel(jnp.asarray(X), jnp.asarray(Y))
    np.testing.assert_array_equal(result, X + 2 * Y)
