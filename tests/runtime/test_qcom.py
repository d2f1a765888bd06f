"""Adreno without a phone: another OpenCL device that emulates it. What all devices must do is in
`test_devices.py`; what its code computes, in `codegen/test_grid_programs.py`."""

from __future__ import annotations

import ctypes
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests.runtime.test_devices import jax_on, missing
from tinyhlo.codegen.expressions import Memory
from tinyhlo.codegen.grid.code import DeviceKernel, Dispatch
from tinyhlo.errors import TinyhloError
from tinyhlo.ir.dtypes import BF16, F32
from tinyhlo.runtime import core
from tinyhlo.runtime.arrays import Words
from tinyhlo.runtime.devices import opencl, qcom
from tinyhlo.runtime.devices.device import HEAD_WORDS, Device
from tinyhlo.runtime.processors import host_target


def run(program: str, **environment: str) -> str:
    if missing("QCOM"):
        pytest.skip(missing("QCOM"))
    done = jax_on("QCOM", program, **environment)
    assert done.stdout, done.stderr
    return done.stdout


def test_which_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Qualcomm's, unless others are asked to stand for them."""

    def device(vendor: str, images: bool) -> Any:
        return SimpleNamespace(vendor=vendor, name=vendor, image_support=images)

    own = device("QUALCOMM", True)
    others = [device("Intel(R) Corporation", True), device("somebody", False)]
    monkeypatch.setattr(opencl, "imported", lambda kind: None)
    monkeypatch.setattr(opencl, "devices", lambda _: [*others, own])
    monkeypatch.delenv("TINYHLO_EMULATE", raising=False)
    assert qcom.names() == ["QUALCOMM"]
    monkeypatch.setenv("TINYHLO_EMULATE", "1")
    assert qcom.names() == ["Intel(R) Corporation", "QUALCOMM"]
    monkeypatch.delenv("TINYHLO_EMULATE")
    monkeypatch.setattr(opencl, "devices", lambda _: others)
    with pytest.raises(TinyhloError, match="no OpenCL device of Qualcomm's"):
        qcom.names()


def test_what_it_says_it_has() -> None:
    """Adreno's limits, whoever emulates it, and the name says that somebody does."""
    program = """
    from tinyhlo.runtime.devices.device import open_device
    device = open_device("QCOM")
    target = device.target
    print(target.has_f64, target.fma, target.is_processor, target.features, target.images)
    print(target.group_items <= 1024, target.group_bytes <= 32768, "emulates Adreno" in device.name)
    """
    assert run(program) == "False False False  16384\nTrue True True\n"


def test_more_arrays_than_a_kernel_takes() -> None:
    """The kernel, the user's line, and what to do."""
    program = """
    f = lambda *xs: sum(map(jnp.sin, xs), jnp.zeros(9))
    xs = np.full((127, 9), 0.5, np.float32)
    np.testing.assert_allclose(jax.jit(f)(*xs), 127 * np.sin(0.5), rtol=1e-5)
    try:
        jax.jit(f)(*xs, xs[0])
    except Exception as error:
        print(error)
    """
    text = run(program)
    assert "on 129 arrays (<string>:3, in <lambda>)" in text, text
    assert "QCOM takes 128 arrays in one kernel: stack some, or use another device" in text


def test_no_f64() -> None:
    """The ops, and the user's line."""
    program = """
    try:
        jax.jit(lambda x: x @ x)(np.ones((64, 64)))
    except Exception as error:
        print(error)
    """
    text = run(program, JAX_ENABLE_X64="1")
    assert "on f64[64,64,64] (<string>:4, in <lambda>)" in text, text
    assert "device QCOM has no 64-bit floats; run with jax_enable_x64 off" in text


def test_products_larger_than_images() -> None:
    """More rows than an image has texels, more batches, and a sum that is deeper than one is high:
    they lie further below, or are read from buffers."""
    program = """
    rng = np.random.default_rng(0)
    def error(spec, *shapes):
        x, y = (rng.normal(size=shape).astype("f4") for shape in shapes)
        got = jax.jit(lambda x, y: jnp.einsum(spec, x, y))(x, y)
        want = np.einsum(spec, x.astype("f8"), y.astype("f8"), optimize=True)
        return float(abs(got - want).max() / abs(want).max())
    print(error("ij,jk->ik", (70000, 66), (66, 70)) < 2e-6)
    print(error("bij,bjk->bik", (1100, 65, 66), (1100, 66, 67)) < 2e-6)
    print(error("ij,jk->ik", (65, 17000), (17000, 66)) < 2e-5)
    """
    assert run(program).split() == ["True"] * 3


def test_nothing_comes_between_the_functions_of_a_kernel() -> None:
    """Threads share images: what one's function packs, its next one must read."""
    calls: list[tuple[int, int]] = []

    def launch(_: int, function: int, *given: Any) -> int:
        calls.append((threading.get_ident(), function))
        time.sleep(0.005)
        return 0

    word, count = ctypes.c_void_p, ctypes.c_int64
    callback = ctypes.CFUNCTYPE(ctypes.c_int32, word, word, count, count, word, count)(launch)
    words = Words()
    struct = words.array([ctypes.cast(callback, word).value, *[0] * (HEAD_WORDS - 1)])
    device = Device("QCOM", "slow", host_target(1), lambda *_: ({}, None), struct)
    kernel = DeviceKernel(tuple(Dispatch(f"k{k}", 1, 1, ()) for k in range(3)))
    library = device.kernel(kernel, {"k0": 10, "k1": 11, "k2": 12}, 0)

    def many() -> None:
        for _ in range(5):
            assert core.library().tiny_library_call(library.descriptor.ctypes.data, None, None) == 0

    threads = [threading.Thread(target=many) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 30
    for k in range(0, 30, 3):
        assert [function for _, function in calls[k : k + 3]] == [10, 11, 12]
        assert len({thread for thread, _ in calls[k : k + 3]}) == 1


class Driver:
    """As much of pyopencl as images need."""

    channel_order = SimpleNamespace(RGBA="rgba")
    channel_type = SimpleNamespace(FLOAT="float", HALF_FLOAT="half", UNSIGNED_INT16="words")
    mem_flags = SimpleNamespace(READ_WRITE=1)
    Error = MemoryError

    def __init__(self) -> None:
        self.made: list[Any] = []

    def ImageFormat(self, *given: str) -> tuple[str, ...]:
        return given

    def Image(self, context: str, flags: int, form: Any, shape: Any) -> Any:
        if shape[0] > 1000:
            raise MemoryError("MEM_OBJECT_ALLOCATION_FAILURE")
        self.made.append((form, shape))
        return SimpleNamespace(shape=shape)


def test_an_image_is_everybodys_and_goes_with_the_last() -> None:
    driver = Driver()
    given: list[Any] = []
    images = opencl.Images(driver, "context")
    kernel = SimpleNamespace(set_arg=lambda place, image: given.append((place, image.shape)))
    left = Memory("left_texels", F32, 4 * 30 * 20, local=True, width=30)
    right = Memory("right_texels", BF16, 4 * 10 * 20, local=True, width=10)
    one = images.give(kernel, Dispatch("k0", 1, 1, (0,), (left,)))
    two = images.give(kernel, Dispatch("k1", 1, 1, (0, 2), (left, right)))
    assert driver.made == [(("rgba", "float"), (30, 20)), (("rgba", "words"), (10, 20))]
    assert given == [(1, (30, 20)), (2, (30, 20)), (3, (10, 20))]
    del two
    assert list(images.found) == [left]
    del one
    assert not images.found
    with pytest.raises(TinyhloError, match="no room for an image of 1001x20 texels"):
        images.image_of(Memory("left_texels", F32, 4 * 1001 * 20, local=True, width=1001))
