"""What does not fit into memory is RESOURCE_EXHAUSTED in JAX, and the process goes on."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import jaxlib.xla_client
import numpy as np
import pytest

from tests.memory import memory_stats
from tinyhlo.runtime import core, jit

TINY = jax.devices("tiny")[0]


def sorted_sum(x: jax.Array) -> jax.Array:
    """Its scratch is larger than any machine's memory, its result one number."""
    return jnp.sort(jnp.broadcast_to(x, (1 << 20, 1 << 24)), axis=1).sum()


@pytest.mark.parametrize("shape", [(1 << 42,), (1 << 24, 1 << 24)])
def test_results(shape: tuple[int, ...]) -> None:
    before = memory_stats().bytes_in_use
    with jax.default_device(TINY), pytest.raises(RuntimeError, match="RESOURCE_EXHAUSTED"):
        jnp.zeros(shape, jnp.float32)
    assert memory_stats().bytes_in_use == before


def test_axes() -> None:
    with jax.default_device(TINY), pytest.raises(RuntimeError, match="more than 64 axes"):
        jax.jit(lambda: jnp.zeros((1,) * 65))()


def test_scratch() -> None:
    x = jax.device_put(np.ones((), np.float32), TINY)
    before = memory_stats().bytes_in_use
    with pytest.raises(RuntimeError, match=r"RESOURCE_EXHAUSTED: out of memory: .* scratch"):
        jax.block_until_ready(jax.jit(sorted_sum)(x))
    assert memory_stats().bytes_in_use == before
    assert float(jax.jit(lambda x: x + 1)(x)) == 2.0


def test_scratch_beyond_64_bits() -> None:
    """Numbers that C does not hold: what is left of them after wrapping around would fit."""

    def f(x: jax.Array) -> jax.Array:
        wide = jnp.broadcast_to(x, (1 << 56, 8)) + jnp.arange(8, dtype=np.float32)
        parts = [jnp.sort(wide * (k + 1) + jnp.sin(wide * k), axis=1) for k in range(8)]
        pairs = zip(parts, parts[1:] + parts[:1], strict=True)
        return sum(jnp.sort(a[::-1] * b, axis=1) for a, b in pairs).max()

    x = jax.device_put(np.ones((), np.float32), TINY)
    with pytest.raises(RuntimeError, match=r"RESOURCE_EXHAUSTED: out of memory: .* scratch"):
        jax.jit(f)(x).block_until_ready()
    assert float(jax.jit(lambda x: x + 1)(x)) == 2.0


def test_scratch_of_kernels() -> None:
    """There is room for what a sort returns, but not for what it moves the elements through."""
    x = jax.device_put(np.ones(1 << 22, np.float32), TINY)
    sort = jax.jit(jnp.sort).lower(x).compile()
    scratch = sort.memory_analysis().temp_size_in_bytes
    assert scratch >= 2 * x.nbytes
    library, taken = core.library(), list[tuple[int, int]]()

    def spare() -> int:
        stats = memory_stats()
        return stats.bytes_limit - stats.bytes_in_use - x.nbytes - scratch // 2

    while (part := spare() * 3 // 4) > 1 << 20:  # never touched, so the system does not mind
        taken.append((library.tiny_allocate(part), part))
    try:
        with pytest.raises(RuntimeError, match=r"RESOURCE_EXHAUSTED: out of memory: .* scratch"):
            sort(x).block_until_ready()
    finally:
        for block, part in taken:
            library.tiny_free(block, part)
    np.testing.assert_array_equal(sort(x), x)


# A limit of the process's own: what the system refuses although the machine has it.
REFUSED = """
import resource

import jax
import jax.numpy as jnp
import numpy as np
from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
from tinyhlo.errors import ExecutionError
from tinyhlo.runtime import core

x = np.random.default_rng(0).random(8 << 20, np.float32)
lowered = jax.jit(jnp.sort).lower(x)
given = jax.device_put(x, jax.devices("tiny")[0])
through_jax = jax.jit(jnp.sort).lower(given).compile()
alone = compile_module(lowered.as_text(), Config(cache=0))


def size():
    with open("/proc/self/statm") as sizes:
        return int(sizes.read().split()[0]) * resource.getpagesize()


for call in (lambda: through_jax(given), lambda: alone(x)[0]):
    core.library().tiny_trim()
    limit = size() + x.nbytes + x.nbytes // 2  # the result fits, what elements move through not
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    try:
        jax.block_until_ready(call())
    except (RuntimeError, ValueError, ExecutionError) as error:
        assert f"out of memory: {2 * x.nbytes} bytes of scratch" in str(error), error
    else:
        raise AssertionError("there was room")
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    np.testing.assert_array_equal(call(), np.sort(x))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
def test_scratch_that_the_system_refuses() -> None:
    command = [sys.executable, "-c", REFUSED]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr


def test_together_more_than_the_machine_has() -> None:
    """Each would fit alone; the second is refused, not handed out and then fatal."""
    count = memory_stats().bytes_limit * 3 // 4 // 4
    library = core.library()
    first = library.tiny_allocate(4 * count)
    try:
        with jax.default_device(TINY), pytest.raises(RuntimeError, match="RESOURCE_EXHAUSTED"):
            jnp.zeros((count,), jnp.float32)
    finally:
        library.tiny_free(first, 4 * count)


def test_damaged_executables_are_refused() -> None:
    """Whatever byte was changed on the disk of whoever kept it."""
    client = TINY.client
    executable = jax.jit(lambda x: x + 1).lower(jax.device_put(np.ones(3), TINY)).compile()
    whole = client.serialize_executable(executable.runtime_executable())
    devices = jaxlib.xla_client.DeviceList((TINY,))
    client.deserialize_executable(whole, devices, None)
    refusals = 0
    for position in range(0, len(whole), 37):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        for given in (bytes(damaged), whole[:position]):
            try:  # what is damaged may also be in jaxlib's own wrapping, and of no matter
                client.deserialize_executable(given, devices, None)
            except RuntimeError as error:
                refusals += "not an executable of tinyhlo, or are damaged" in str(error)
    assert refusals > 20


def test_code(monkeypatch: pytest.MonkeyPatch) -> None:
    x = jax.device_put(np.float32(3), TINY)
    with monkeypatch.context() as patched:
        patched.setattr(jit, "FIRST_BYTES", 1 << 60)
        with pytest.raises(RuntimeError, match="RESOURCE_EXHAUSTED: out of memory: no room"):
            jax.jit(lambda x: x * 7 - 3)(x)
    assert float(jax.jit(lambda x: x * 7 - 3)(x)) == 18.0
