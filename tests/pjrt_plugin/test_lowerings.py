"""Functions that JAX lowers in a way of our own: what arrives, and how exact the results are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from jax import export, lax
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jaxlib.mlir.dialects import stablehlo

FUNCTIONS = {
    "erf": (lax.erf, scipy.special.erf, (-4.0, 4.0)),
    "erfc": (lax.erfc, scipy.special.erfc, (-4.0, 9.0)),
    "erf_inv": (lax.erf_inv, scipy.special.erfinv, (-0.999, 0.999)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arrives_by_name(tiny: jax.Device, name: str) -> None:
    function, _, _ = FUNCTIONS[name]
    x = jax.device_put(np.array([0.25, 0.5], np.float32), tiny)
    twice = jax.jit(lambda x: function(x) + function(x / 2)).lower(x).as_text()
    assert twice.count(f'stablehlo.composite "chlo.{name}"') == 2
    assert twice.count("func.func private") == 1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_is_exact_to_a_few_units(tiny: jax.Device, name: str) -> None:
    function, exact, ends = FUNCTIONS[name]
    x = np.linspace(*ends, 20_001, dtype=np.float32)
    expected = exact(x.astype(np.float64))
    found = np.asarray(jax.jit(function)(jax.device_put(x, tiny)), np.float64)
    units = np.spacing(np.abs(expected).astype(np.float32))
    assert np.max(np.abs(found - expected) / units) < 4


@pytest.mark.parametrize("name", FUNCTIONS)
def test_shapes_may_be_unknown(tiny: jax.Device, name: str) -> None:
    function: Callable[..., Any] = FUNCTIONS[name][0]
    (size,) = export.symbolic_shape("n")
    exported = export.export(jax.jit(function), platforms=["tiny", "cpu"])(
        jax.ShapeDtypeStruct((size,), np.float32)
    )
    x = np.linspace(-0.9, 0.9, 11, dtype=np.float32)
    found = export.deserialize(exported.serialize()).call(jax.device_put(x, tiny))
    np.testing.assert_allclose(found, function(x), rtol=1e-6)


@pytest.mark.parametrize("name", [*FUNCTIONS, "sinh"])
@pytest.mark.parametrize("dtype", [jnp.float8_e4m3fn, jnp.float8_e5m2])
def test_floats_of_8_bits(tiny: jax.Device, name: str, dtype: Any) -> None:
    function = getattr(lax, name)
    x = jnp.linspace(-0.9, 0.9, 33).astype(dtype)
    found = jax.jit(function)(jax.device_put(x, tiny))
    assert found.dtype == dtype
    expected = function(x.astype(jnp.float32)).astype(dtype)
    np.testing.assert_array_equal(np.asarray(found, np.float32), np.asarray(expected, np.float32))


def test_a_primitive_with_a_rule_for_the_cpu_alone(tiny: jax.Device) -> None:
    """As in JAX's tutorial of primitives; a rule for any platform goes before the CPU's."""
    primitive = Primitive("twice")
    primitive.def_abstract_eval(lambda x: x)
    mlir.register_lowering(primitive, lambda _, x: [stablehlo.AddOp(x, x).result], platform="cpu")
    x = jax.device_put(np.array([1.0, 2.0], np.float32), tiny)
    assert jax.jit(primitive.bind)(x).tolist() == [2.0, 4.0]

    mlir.register_lowering(primitive, lambda _, x: [x])
    jax.clear_caches()
    assert jax.jit(primitive.bind)(x).tolist() == [1.0, 2.0]


def test_a_rule_that_knows_the_cpu_alone(tiny: jax.Device) -> None:
    """It asks for the platform, and calls Python."""
    primitive = Primitive("halved")
    primitive.def_abstract_eval(lambda x: x)

    def rule(ctx: Any, x: Any) -> Any:
        if tuple(ctx.module_context.platforms) != ("cpu",):
            raise ValueError("unsupported platform")
        results, _, _ = mlir.emit_python_callback(
            ctx, lambda x: (x / 2,), None, [x], ctx.avals_in, ctx.avals_out, has_side_effect=False
        )
        return results

    mlir.register_lowering(primitive, rule, platform="cpu")
    x = jax.device_put(np.array([1.0, 2.0], np.float32), tiny)
    assert jax.jit(primitive.bind)(x).tolist() == [0.5, 1.0]


@pytest.mark.parametrize("platforms", [("cpu",), ("tpu", "cpu", "cuda")])
def test_what_was_exported_for_the_cpu_can_be_called(tiny: jax.Device, platforms: Any) -> None:
    x = np.eye(3, dtype=np.float32) * 4
    made = export.export(jax.jit(jnp.linalg.cholesky), platforms=platforms)(x)
    exported = export.deserialize(made.serialize())
    found = jax.jit(lambda x: exported.call(x) + 1)(jax.device_put(x, tiny))
    assert (found.devices(), found.tolist()) == ({tiny}, (x / 2 + 1).tolist())


def test_what_was_exported_for_others_is_refused(tiny: jax.Device) -> None:
    exported = export.export(jax.jit(jnp.sin), platforms=["tpu"])(np.float32(1))
    with pytest.raises(ValueError, match="exported for platforms"):
        exported.call(jax.device_put(np.float32(1), tiny))
