"""Metal without a Mac: an emulated one, whose driver is strict (`emulated_gpu/metal.cpp`). What all
devices must do is in `test_devices.py`."""

from __future__ import annotations

import pytest

from tests.runtime.test_devices import jax_on, missing, python
from tinyhlo.errors import TinyhloError
from tinyhlo.runtime.devices import metal


@pytest.fixture(autouse=True, scope="module")
def _device() -> None:
    if missing("METAL"):
        pytest.skip(missing("METAL"))


def run(program: str) -> str:
    done = jax_on("METAL", program)
    assert done.stdout, done.stderr
    return done.stdout


def test_no_metal(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence."""
    metal.loaded.cache_clear()
    monkeypatch.setattr(metal, "find_library", lambda _: None)
    with pytest.raises(TinyhloError, match="there is no Metal here, which is Apple's"):
        metal.names()


def test_more_arrays_than_metal_has_places() -> None:
    program = """
    xs = [np.full((40, 40), k, np.float32) for k in range(50)]
    given = jax.jit(lambda xs: [x * 2 + xs[0] for x in xs]) (xs)
    print([float(y[1, 2]) for y in given] == [2.0 * k for k in range(50)])
    """
    assert run(program) == "True\n"


def test_more_launches_than_a_queue_takes() -> None:
    """Nobody waits between them."""
    program = """
    x = np.ones(1 << 13, np.float32)
    y = jax.jit(lambda x: jax.lax.fori_loop(0, 2200, lambda k, y: y + jnp.roll(x, k), x))(x)
    print(float(y[-1]))
    """
    assert run(program) == "2201.0\n"


def test_copies_of_any_size() -> None:
    program = """
    for count in (1, 15, 16, 1000, 4099):
        x = np.arange(count, dtype=np.int8)
        y, z = jax.jit(lambda x: (x, x))(jax.device_put(x))
        assert np.array_equal(y, x) and np.array_equal(z, x)
    print("right")
    """
    assert run(program) == "right\n"


def test_work_that_fails() -> None:
    """Somebody who waits hears of it, and what follows is right again."""
    program = """
from tests.runtime import device_checks
from tests.runtime.device_checks import AFFINE, X, Checks, affine
from tinyhlo.codegen.grid.code import DeviceKernel, Dispatch

checks = Checks("METAL")
code = checks.code(
    lambda _: DeviceKernel((Dispatch("stuck", 4, 256, (0, 1)),)),
    stuck=(("const f32* x", "f32* y"), "if (ITEM < 9) { BARRIER; }"),
)
try:
    checks.compile(AFFINE, code)(X)
except Exception as error:
    print(error)
print(checks.compile(AFFINE, checks.code(affine))(X)[0][3])
"""
    done = python("-c", program)
    assert done.stdout.splitlines() == [
        "module failed: the work of the Metal device failed: not all items of a group wait at the "
        "same barrier",
        "7.0",
    ], done.stderr


def test_no_f64() -> None:
    """The ops, and the user's line."""
    program = """
    try:
        jax.jit(lambda x: jnp.sin(x) + 1)(np.ones(3))
    except Exception as error:
        print(error)
    """
    text = jax_on("METAL", program, JAX_ENABLE_X64="1").stdout
    assert "sin on f64[3] (<string>:4, in <lambda>)" in text, text
    assert "device METAL has no 64-bit floats; run with jax_enable_x64 off" in text


def test_what_others_compute_in_f64() -> None:
    """Large angles and quotients, powers, and integers as 16-bit floats, rounded once."""
    program = """
    rng = np.random.default_rng(0)
    x = (rng.normal(size=9999) * 10.0 ** rng.integers(0, 38, 9999)).astype("f4")
    wide = x.astype("f8")
    def worst(mine, exact):
        unit = np.spacing(np.maximum(np.abs(exact), 1e-30).astype("f4")).astype("f8")
        return float((abs(np.asarray(mine, "f8") - exact) / unit).max())
    print(worst(jax.jit(jnp.sin)(x), np.sin(wide)) < 2)
    print(worst(jax.jit(jnp.cos)(x), np.cos(wide)) < 2)
    print(np.array_equal(jax.jit(jnp.fmod)(x, x[::-1]), np.fmod(x, x[::-1])))
    base, by = abs(x) ** np.float32(0.1), rng.normal(size=9999).astype("f4")
    print(worst(jax.jit(jnp.power)(base, by), base.astype("f8") ** by) < 25)
    for kind in ("i4", "u4"):
        by = rng.integers(0, 31, 99999).astype(kind)
        n = rng.integers(0, 1 << 32, 99999, dtype="u4").astype(kind) >> by
        part, exponent = np.frexp(n.astype("f8"))
        for small, digits in ((jnp.bfloat16, 8), (jnp.float16, 11)):
            right = np.ldexp(np.rint(np.ldexp(part, digits)), exponent - digits).astype(small)
            print(np.array_equal(jax.jit(lambda n: n.astype(small))(n), right))
    """
    assert run(program).split() == ["True"] * 8
