"""Arrays: in and out without copies, alive as long as somebody looks, every dtype and layout."""

from __future__ import annotations

import gc
from collections.abc import Callable

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.experimental.layout import Format, Layout
from jax.sharding import SingleDeviceSharding

from tinyhlo.pjrt_plugin import dlpack

ALIGNMENT = 64


def aligned(count: int, dtype: object = np.float32) -> np.ndarray:
    """An array that starts on a cache line, as zero copy needs it."""
    item = np.dtype(dtype).itemsize
    raw = np.zeros(count * item + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + count * item].view(dtype)


def test_device_put_shares_aligned_memory(tiny: jax.Device) -> None:
    x = aligned(1000)
    x[:] = np.arange(1000)
    y = jax.device_put(x, tiny)
    assert y.unsafe_buffer_pointer() == x.ctypes.data
    np.testing.assert_array_equal(np.asarray(y), x)


def test_a_copy_does_not_share_what_others_may_change(tiny: jax.Device) -> None:
    x = aligned(1000)
    y = jax.device_put(x, tiny)
    copy = jax.device_put(y, tiny, may_alias=False)
    moved = jax.device_put(y, SingleDeviceSharding(tiny, memory_kind="pinned_host"))
    x[:] = 1
    assert not np.asarray(copy).any() and not np.asarray(moved).any()


def test_device_put_copies_unaligned_memory(tiny: jax.Device) -> None:
    x = aligned(1001)[1:]
    y = jax.device_put(x, tiny)
    assert y.unsafe_buffer_pointer() != x.ctypes.data
    assert y.unsafe_buffer_pointer() % ALIGNMENT == 0


def test_asarray_shares_memory(tiny: jax.Device) -> None:
    y = jax.device_put(np.arange(1000.0, dtype=np.float32), tiny)
    view = np.asarray(y)
    assert view.ctypes.data == y.unsafe_buffer_pointer()
    assert not view.flags.writeable


def test_view_survives_delete(tiny: jax.Device) -> None:
    y = jax.device_put(np.arange(999.0, dtype=np.float32), tiny)
    view = np.asarray(y)
    y.delete()
    assert y.is_deleted()
    others = [jax.device_put(np.full(999, -1, np.float32), tiny) for _ in range(50)]
    np.testing.assert_array_equal(view, np.arange(999))
    del y, others
    gc.collect()
    np.testing.assert_array_equal(view, np.arange(999))


def test_deleted_arrays_say_so(tiny: jax.Device) -> None:
    y = jax.device_put(np.ones(8, np.float32), tiny)
    y.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        np.asarray(y)


def test_memory_comes_back(tiny: jax.Device) -> None:
    gc.collect()
    before = tiny.memory_stats()["bytes_in_use"]
    y = jax.device_put(np.ones((1 << 20) + 1, np.float32)[1:], tiny)
    assert tiny.memory_stats()["bytes_in_use"] >= before + (4 << 20)
    del y
    assert tiny.memory_stats()["bytes_in_use"] == before
    assert tiny.memory_stats()["peak_bytes_in_use"] >= before + (4 << 20)
    assert tiny.memory_stats()["bytes_limit"] > 0


def test_live_arrays(tiny: jax.Device) -> None:
    before = len(jax.live_arrays("tiny"))
    y = [jax.device_put(np.ones(3), tiny) for _ in range(5)]
    assert len(jax.live_arrays("tiny")) == before + 5
    del y
    assert len(jax.live_arrays("tiny")) == before


@pytest.mark.parametrize(
    "dtype",
    [
        np.bool_,
        *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32)),
        np.float16,
        np.float32,
        np.complex64,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e5m2,
        ml_dtypes.int4,
    ],
)
def test_every_dtype_goes_in_and_out(tiny: jax.Device, dtype: object) -> None:
    x = np.arange(12).reshape(3, 4).astype(dtype)
    np.testing.assert_array_equal(np.asarray(jax.device_put(x, tiny)), x)


@pytest.mark.skipif(jax.__version_info__ < (0, 11), reason="floats of 6 bits came with JAX 0.11")
@pytest.mark.parametrize("dtype", [ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn])
def test_floats_of_six_bits(tiny: jax.Device, dtype: type) -> None:
    x = np.linspace(-8, 8, 50).astype(dtype)
    y = jax.jit(lambda x: (x.astype(jnp.float32) * 1.3).astype(dtype))(jax.device_put(x, tiny))
    np.testing.assert_array_equal(np.asarray(y), (x.astype(np.float32) * 1.3).astype(dtype))


@pytest.mark.skipif(jax.__version_info__ < (0, 12), reason="integers of one bit came with JAX 0.12")
def test_integers_of_one_bit_are_refused(tiny: jax.Device) -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match="no array of element type 30"):
        jax.device_put(np.zeros(3, jnp.int1), tiny)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.T,
        lambda x: x[::-1, ::2],
        lambda x: np.asfortranarray(x),
        lambda x: np.broadcast_to(x[:1], (7, 6)),
        lambda x: x[:, :0],
        lambda x: x[0, 0],
        lambda x: x.reshape(1, 5, 1, 6)[:, ::2],
    ],
)
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.float32, np.complex64])
def test_strided_arrays(tiny: jax.Device, make: object, dtype: object) -> None:
    x = make(np.arange(30).reshape(5, 6).astype(dtype))  # type: ignore[operator]
    np.testing.assert_array_equal(np.asarray(jax.device_put(x, tiny)), x)


def test_between_tiny_and_cpu_without_a_copy(tiny: jax.Device) -> None:
    x = jax.device_put(np.arange(1000.0, dtype=np.float32), tiny)
    y = jax.device_put(x, jax.devices("cpu")[0])
    assert y.unsafe_buffer_pointer() == x.unsafe_buffer_pointer()
    z = jax.device_put(y, tiny)
    np.testing.assert_array_equal(np.asarray(z), np.arange(1000))


def test_dlpack_export(tiny: jax.Device) -> None:
    """The same memory, alive as long as somebody reads it."""
    x = jax.device_put(np.arange(10, dtype=np.float32), tiny) + 1
    assert x.__dlpack_device__() == (1, 0)
    view = np.from_dlpack(x)
    assert view.ctypes.data == x.unsafe_buffer_pointer()
    del x
    gc.collect()
    assert view.tolist() == list(range(1, 11))
    half = jax.device_put(np.arange(4, dtype=ml_dtypes.bfloat16), tiny)
    assert jnp.from_dlpack(half).tolist() == [0, 1, 2, 3]


def test_dlpack_without_a_cpu_device(python: Callable[..., str]) -> None:
    program = """
    import jax.numpy as jnp, numpy as np
    x = jnp.from_dlpack(np.arange(3.0))
    print(np.from_dlpack(x + 1), jnp.from_dlpack(x, copy=True), *x.devices())
    """
    assert python(program, JAX_PLATFORMS="tiny") == "[1. 2. 3.] [0. 1. 2.] tiny:0\n"


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float32", "bool"])
def test_dlpack_of_types_that_numpy_does_not_know(name: str) -> None:
    """What leaves and comes by NumPy, where there is no CPU device, is what jaxlib's is."""
    values = jnp.asarray([0, 1, 2, 4], name, device=jax.devices("cpu")[0])
    given = dlpack.HandedOut(np.asarray(values))
    taken = dlpack.taken_in(values)
    for read in (jax.dlpack.from_dlpack(given), dlpack.taken_in(given), taken):
        assert read.dtype == values.dtype
        assert read.tolist() == values.tolist()
    assert taken.ctypes.data == values.unsafe_buffer_pointer()


def test_dlpack_import(tiny: jax.Device) -> None:
    x = jnp.from_dlpack(np.arange(10, dtype=np.float32), device=tiny)
    np.testing.assert_array_equal(np.asarray(x), np.arange(10))


def test_dlpack_import_of_our_own_stays_where_it_is(tiny: jax.Device) -> None:
    x = jax.device_put(np.arange(10, dtype=np.float32), tiny)
    for device in (None, tiny, jax.sharding.SingleDeviceSharding(tiny)):
        kept = jnp.from_dlpack(x, device=device, copy=False)
        assert kept.device == tiny
        assert kept.unsafe_buffer_pointer() == x.unsafe_buffer_pointer()
    copied = jnp.from_dlpack(x, copy=True)
    assert copied.device == tiny
    assert copied.unsafe_buffer_pointer() != x.unsafe_buffer_pointer()
    assert jnp.from_dlpack(x, device=jax.devices("cpu")[0]).device.platform == "cpu"


def test_names(tiny: jax.Device) -> None:
    assert tiny.platform == "tiny"
    assert tiny.default_memory().kind == "device"
    assert jax.devices("tiny") == [tiny]
    assert (str(tiny), repr(tiny)) == ("tiny:0", "TinyDevice(id=0)")
    assert str(tiny.default_memory()) == "TinyMemory(id=0, device)"
    assert "tinyhlo " in tiny.client.platform_version


def test_tokens_hold_nothing(tiny: jax.Device) -> None:
    """One goes in and out, also a second time; nobody reads it."""
    step = jax.jit(lambda token, x: (token, x + 1))
    with jax.default_device(tiny):
        token, _ = step(jax.lax.create_token(), jnp.float32(1))
        token, x = step(token, jnp.float32(2))
    assert x == 3
    with pytest.raises(RuntimeError, match="token"):
        token._buf._value  # noqa: B018


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.int8])
def test_arrays_lie_as_the_user_says(tiny: jax.Device, dtype: type) -> None:
    """Column-major in, through programs, donated, and out again."""
    columns = Format(Layout(major_to_minor=(1, 0)), SingleDeviceSharding(tiny))
    x = np.arange(12).reshape(3, 4).astype(dtype) * dtype(1j if dtype is np.complex64 else 2)
    given = jax.device_put(x, columns)
    assert given.format.layout.major_to_minor == (1, 0)
    np.testing.assert_array_equal(np.asarray(given), x)
    assert np.asarray(given).strides == (x.itemsize, 3 * x.itemsize)
    assert given[1, 2] == x[1, 2] and np.asarray(given + given)[2, 1] == 2 * x[2, 1]
    twice = jax.jit(
        lambda a: (a + a, a.T),
        in_shardings=columns,
        out_shardings=(columns, None),
        donate_argnums=0,
    )
    double, turned = twice(given)
    assert given.is_deleted() and double.format.layout.major_to_minor == (1, 0)
    assert turned.format.layout.major_to_minor == (0, 1)
    np.testing.assert_array_equal(double, x + x)
    np.testing.assert_array_equal(turned, x.T)
    np.testing.assert_array_equal(jax.device_put(double, jax.devices("cpu")[0]), x + x)


def test_memory_kinds_are_names_of_one_memory(tiny: jax.Device) -> None:
    """As XLA's CPU has them; programs that offload to the host say pinned_host."""
    kinds = [memory.kind for memory in tiny.addressable_memories()]
    assert kinds == ["device", "pinned_host", "unpinned_host"]
    assert tiny.default_memory().kind == "device"
    x = jax.jit(lambda x: x + 0)(jax.device_put(aligned(64), tiny))
    for kind in kinds:
        place = SingleDeviceSharding(tiny, memory_kind=kind)
        moved = jax.device_put(x, place)
        assert moved.sharding.memory_kind == kind
        assert moved.unsafe_buffer_pointer() == x.unsafe_buffer_pointer()
        for _ in range(2):  # the second time from the cache of whole programs
            made = jax.jit(lambda x: x + 1, in_shardings=place, out_shardings=place)(moved)
            assert made.sharding.memory_kind == kind
            np.testing.assert_array_equal(made, np.ones(64))


def test_values_that_are_offloaded_come_back(tiny: jax.Device) -> None:
    @jax.jit
    def f(x: jax.Array) -> jax.Array:
        kept = jax.device_put(jnp.sin(x), jax.memory.Space.Host)
        return jnp.cos(x) + jax.device_put(kept, jax.memory.Space.Device)

    x = jax.device_put(np.arange(8, dtype=np.float32), tiny)
    np.testing.assert_allclose(f(x), np.sin(x) + np.cos(x), rtol=1e-6)
