"""WebGPU through wgpu: JAX on it, and what its kernels are written in. Skipped where there is no
adapter."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tests.runtime.test_devices import PROGRAMS, jax_on, missing
from tinyhlo.ir.dtypes import ALL, DType
from tinyhlo.ir.graph import TensorType
from tinyhlo.runtime.webgpu.device import can_compute
from tinyhlo.runtime.webgpu.words import array_from, words_from


def run(program: str, **environment: str) -> str:
    if missing("WEBGPU"):
        pytest.skip(missing("WEBGPU"))
    done = jax_on("WEBGPU", program, TINYHLO_CACHE="0", **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_words(dtype: DType) -> None:
    """Arrays of every type are what they were when they come back."""
    raw = np.random.default_rng(0).integers(0, 256, (5, dtype.itemsize), np.uint8)
    if dtype.kind == "bool":
        raw &= 1
    array = raw.view(dtype.numpy)
    words = words_from(array, dtype)
    assert words.size == 5 * max(1, dtype.bits // 32)
    again = array_from(words, TensorType((5, 1), dtype))
    assert again.dtype == array.dtype and again.tobytes() == array.tobytes()


def test_programs_are_right() -> None:
    """As the interpreter has them: loops, branches, calls of the host, constants."""
    assert run(PROGRAMS) == "right\n"


def test_an_error_of_the_host_reaches_the_caller() -> None:
    program = """
    def refuse(x):
        raise ValueError("no such thing")
    try:
        np.asarray(jax.jit(lambda x: jax.pure_callback(refuse, x, x * 2) + 1)(jnp.ones(3)))
    except Exception as error:
        print("no such thing" in str(error))
    """
    assert run(program) == "True\n"


def test_threads_and_donation() -> None:
    program = """
    import threading

    step = jax.jit(lambda w, g: w - 0.5 * g, donate_argnums=0)
    def train(seed, out):
        w = jnp.full(1000, float(seed))
        for k in range(20):
            w = step(w, jnp.ones(1000))
        out[seed] = float(w[-1])
    out = {}
    threads = [threading.Thread(target=train, args=(k, out)) for k in range(2)]
    [t.start() for t in threads], [t.join() for t in threads]
    print(out[0], out[1])
    """
    assert run(program) == "-10.0 -9.0\n"


def test_what_is_no_number() -> None:
    """NaN passes through, is known, and compares as nothing; what is rarely needed is exact."""
    program = """
    x = np.array([np.nan, np.inf, -np.inf, -0.0, 1.0, 3e38, 1e-40], np.float32)
    f = lambda x: (
        jnp.maximum(x, 1), jnp.isnan(x), x != x, x == x, jnp.max(x), jnp.sort(x), x * 0.5,
        jnp.isfinite(x), x.astype(jnp.int32), x.astype(jnp.bfloat16), x.astype(jnp.float16),
        jnp.sign(x), jnp.exp(x), 1 / x,
    )
    far = np.array([1e5, -3e7, 1e20, 3.4e38, 4e4], np.float32)
    g = lambda x: (jnp.sin(x), jnp.cos(x), jnp.fmod(x, 3.7), jnp.fmod(x * 1e-38, 1e-42))
    near = np.geomspace(1e-7, 1e7, 999, dtype=np.float32)
    a, b = map(np.ravel, np.meshgrid(*2 * [np.array(
        [0, -0.0, 1, -1, 2, -2, np.inf, -np.inf, np.nan, 3, 0.5], np.float32
    )]))
    powers = jnp.power(a, b), np.power(a.astype("f8"), b).astype("f4")
    np.testing.assert_allclose(*powers, rtol=1e-6)
    h = lambda x: (jnp.log1p(x), jnp.expm1(-x), jnp.power(x, 1.7), (x + 1) - 1)
    for function, given in ((f, x), (g, far), (h, near)):
        oracle = jax.jit(function, compiler_options={"tinyhlo_device": "PYTHON"})(given)
        for mine, theirs in zip(jax.jit(function)(given), oracle):
            np.testing.assert_allclose(
                np.asarray(mine, "f8"), np.asarray(theirs, "f8"), rtol=3e-6, atol=2e-7
            )
    print("right")
    """
    assert run(program) == "right\n"


def test_too_large() -> None:
    """One error that names both sizes."""
    program = """
    try:
        jax.jit(lambda x: jnp.broadcast_to(x, (1 << 15, 1 << 15)) * 2)(np.float32(1))
    except Exception as error:
        print("4,294,968" in str(error) and "at once" in str(error))
    """
    assert run(program) == "True\n"


def test_a_loop_is_whole_or_an_error() -> None:
    """lavapipe ends loops of 65,535 turns, without a word."""
    program = """
    f = jax.jit(lambda x: jax.lax.while_loop(lambda c: c < 70000, lambda c: c + 1, x))
    try:
        print(int(f(jnp.int32(0))) == 70000)
    except Exception as error:
        print("ended a loop before it was done" in str(error) and "Traceback" not in str(error))
    print(int(f(jnp.int32(69000))) == 70000)
    """
    assert run(program) == "True\nTrue\n"


def test_which_adapters() -> None:
    """Those that compute, and know NaN: compilers of OpenGL's language do not."""

    def adapter(backend: str, items: int) -> SimpleNamespace:
        limits = {"max-compute-invocations-per-workgroup": items}
        return SimpleNamespace(info={"backend_type": backend}, limits=limits)

    assert can_compute(adapter("Vulkan", 256)) and can_compute(adapter("Metal", 256))
    assert not can_compute(adapter("Vulkan", 0))
    assert not can_compute(adapter("OpenGL", 256))
