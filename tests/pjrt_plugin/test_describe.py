"""What can be asked of a compiled function."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import serialize_executable

from tests.pjrt_plugin.kernels import compiled, f32, stand_in


def fill(inputs: list[np.ndarray], outputs: list[np.ndarray]) -> None:
    outputs[0][...] = inputs[0] + 1


EXECUTABLE = stand_in(fill, [f32(8)], [f32(8)])
X = np.arange(8, dtype=np.float32)


def small() -> jax.stages.Compiled:
    with compiled(EXECUTABLE):
        return jax.jit(lambda x: x + 1, backend="tiny").lower(X).compile()


def test_text() -> None:
    assert "HloModule" in small().as_text()


def test_text_of_a_big_program() -> None:
    def f(x: jax.Array) -> jax.Array:
        for k in range(300):
            x = jnp.sin(x) * k
        return x

    with compiled(EXECUTABLE):
        text = jax.jit(f, backend="tiny").lower(X).compile().as_text()
    assert text.count("sine") >= 300


def test_cost() -> None:
    cost = small().cost_analysis()
    assert cost["flops"] == 8
    assert cost["bytes accessed"] == 64


def test_cost_counts_transcendentals_apart() -> None:
    """As XLA does: of 2*exp(x) + sqrt(x), four operations an element, two are."""
    costs = [
        jax.jit(lambda x: 2 * jnp.exp(x) + jnp.sqrt(x), backend=platform)
        .lower(np.ones(100, "f4"))
        .compile()
        .cost_analysis()
        for platform in ("tiny", "cpu")
    ]
    assert [(cost["flops"], cost["transcendentals"]) for cost in costs] == [(200, 200)] * 2


def test_cost_of_what_is_only_lowered() -> None:
    costs = [
        jax.jit(lambda x: jnp.tanh(x @ x), backend=platform).lower(np.ones((8, 8))).cost_analysis()
        for platform in ("tiny", "cpu")
    ]
    assert costs[0]["flops"] > 1000
    assert costs[0] == costs[1]


def test_memory() -> None:
    memory = small().memory_analysis()
    assert memory.argument_size_in_bytes == 32
    assert memory.output_size_in_bytes == 32
    assert memory.temp_size_in_bytes == 256
    assert memory.generated_code_size_in_bytes == 100


def test_formats() -> None:
    layouts = jax.tree.leaves(small().input_formats)
    assert layouts[0].layout.major_to_minor == (0,)


def test_shardings() -> None:
    device = jax.devices("tiny")[0]
    (output,) = jax.tree.leaves(small().output_shardings)
    assert output.device_set == {device}


def test_serialised_executables_load_again() -> None:
    payload = serialize_executable.serialize(small())
    with compiled(EXECUTABLE):
        loaded = serialize_executable.deserialize_and_load(
            *payload, backend="tiny", execution_devices=jax.devices("tiny")
        )
    np.testing.assert_array_equal(loaded(X), X + 1)
    assert "HloModule" in loaded.as_text()
