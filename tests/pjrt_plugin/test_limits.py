"""What does not fit into memory is RESOURCE_EXHAUSTED in JAX, and the process goes on."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tinyhlo.runtime import core

TINY = jax.devices("tiny")[0]


def sorted_sum(x: jax.Array) -> jax.Array:
    """Its scratch is larger than any machine's memory, its result one number."""
    return jnp.sort(jnp.broadcast_to(x, (1 << 20, 1 << 24)), axis=1).sum()


@pytest.mark.parametrize("shape", [(1 << 42,), (1 << 24, 1 << 24)])
def test_results(shape: tuple[int, ...]) -> None:
    before = core.memory_stats().bytes_in_use
    with jax.default_device(TINY), pytest.raises(RuntimeError, match="RESOURCE_EXHAUSTED"):
        jnp.zeros(shape, jnp.float32)
    assert core.memory_stats().bytes_in_use == before


def test_scratch() -> None:
    x = jax.device_put(np.ones((), np.float32), TINY)
    before = core.memory_stats().bytes_in_use
    with pytest.raises(RuntimeError, match=r"RESOURCE_EXHAUSTED: out of memory: .* scratch"):
        jax.block_until_ready(jax.jit(sorted_sum)(x))
    assert core.memory_stats().bytes_in_use == before
    assert float(jax.jit(lambda x: x + 1)(x)) == 2.0


def test_together_more_than_the_machine_has() -> None:
    """Each would fit alone; the second is refused, not handed out and then fatal."""
    count = core.memory_stats().bytes_limit * 3 // 4 // 4
    library = core.library()
    first = library.tiny_allocate(4 * count)
    try:
        with jax.default_device(TINY), pytest.raises(RuntimeError, match="RESOURCE_EXHAUSTED"):
            jnp.zeros((count,), jnp.float32)
    finally:
        library.tiny_free(first, 4 * count)
