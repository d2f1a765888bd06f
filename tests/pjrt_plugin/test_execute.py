"""Execution with kernels under control: in the caller and on the stream, donation, errors."""

from __future__ import annotations

import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.pjrt_plugin.kernels import compiled, f32, stand_in

QUICK, SLOW = 1e-6, 1.0
X = np.arange(8, dtype=np.float32)


def plus_one(inputs: list[np.ndarray], outputs: list[np.ndarray]) -> None:
    for given, result in zip(inputs, outputs, strict=True):
        result[...] = given + 1


def jit(executable: object, inputs: int = 1, **options: object) -> jax.stages.Compiled:
    """A jitted function of `inputs` vectors of 8 that is `executable`."""
    arguments = [X] * inputs
    jitted = jax.jit(lambda *xs: [x + 1 for x in xs], backend="tiny", **options)
    with compiled(executable):  # type: ignore[arg-type]
        return jitted.lower(*arguments).compile()


def on_tiny(value: object = X) -> jax.Array:
    return jax.device_put(value, jax.devices("tiny")[0])


@pytest.mark.parametrize("seconds", [QUICK, SLOW])
def test_results(seconds: float) -> None:
    f = jit(stand_in(plus_one, [f32(8)], [f32(8)], seconds=seconds))
    np.testing.assert_array_equal(f(f(f(X)[0])[0])[0], X + 3)


@pytest.mark.parametrize("seconds", [QUICK, SLOW])
def test_many_inputs_and_outputs(seconds: float) -> None:
    f = jit(stand_in(plus_one, [f32(8)] * 300, [f32(8)] * 300, seconds=seconds), inputs=300)
    for k, y in enumerate(f(*(X + k for k in range(300)))):
        np.testing.assert_array_equal(y, X + k + 1)


def test_where_programs_run_follows_what_they_took() -> None:
    threads: list[int] = []
    pause = threading.Event()  # never set

    def short(inputs: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        threads.append(threading.get_ident())
        plus_one(inputs, outputs)

    def long(inputs: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        pause.wait(0.02)
        short(inputs, outputs)

    thought_slow = jit(stand_in(short, [f32(8)], [f32(8)], seconds=SLOW))
    thought_quick = jit(stand_in(long, [f32(8)], [f32(8)], seconds=QUICK))
    for _ in range(20):
        np.testing.assert_array_equal(thought_slow(X)[0], X + 1)
    assert threads[0] != threading.get_ident() == threads[-1]
    threads.clear()
    for _ in range(2):
        np.testing.assert_array_equal(thought_quick(X)[0], X + 1)
    assert threads[0] == threading.get_ident() != threads[1]


def test_slow_programs_run_behind_their_caller() -> None:
    gate = threading.Event()

    def wait(inputs: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        assert gate.wait(60)
        plus_one(inputs, outputs)

    slow = jit(stand_in(wait, [f32(8)], [f32(8)], seconds=SLOW))
    quick = jit(stand_in(plus_one, [f32(8)], [f32(8)], seconds=QUICK))
    x = on_tiny()
    (y,) = slow(x)
    (z,) = quick(y)  # waits its turn behind y
    assert not y.is_ready() and not z.is_ready()
    (other,) = quick(x)  # needs nothing that is pending
    assert other.is_ready()
    gate.set()
    z.block_until_ready()
    np.testing.assert_array_equal(z, X + 2)


def test_arrays_may_die_before_they_are_computed() -> None:
    gate = threading.Event()

    def wait(inputs: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        assert gate.wait(60)
        plus_one(inputs, outputs)

    slow = jit(stand_in(wait, [f32(8)], [f32(8)], seconds=SLOW))
    x = on_tiny()
    (y,) = slow(x)
    (z,) = slow(y)
    x.delete()
    del x, y
    gate.set()
    np.testing.assert_array_equal(z, X + 2)


def test_a_chain_of_large_arrays_holds_a_few_of_them(tiny: jax.Device) -> None:
    """Python runs ahead, as in eager code, and each call's result has its memory at once."""
    held: list[int] = []

    def note(inputs: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        time.sleep(0.005)
        held.append(tiny.memory_stats()["bytes_in_use"])

    size = 1 << 24
    x = on_tiny(np.zeros(size, np.float32))
    with compiled(stand_in(note, [f32(size)], [f32(size)], seconds=SLOW)):
        f = jax.jit(lambda x: [x + 1], backend="tiny").lower(x).compile()
    before = tiny.memory_stats()["bytes_in_use"]
    for _ in range(25):
        (x,) = f(x)
    x.block_until_ready()
    assert max(held) - before < 9 * 4 * size


def test_donation_in_place() -> None:
    f = jit(stand_in(plus_one, [f32(8)], [f32(8)], aliases=((0, 0),)), donate_argnums=0)
    x = on_tiny(X[::-1])  # strided: a copy, which may be written
    pointer = x.unsafe_buffer_pointer()
    (y,) = f(x)
    assert x.is_deleted()
    assert y.unsafe_buffer_pointer() == pointer
    np.testing.assert_array_equal(y, X[::-1] + 1)
    with pytest.raises((RuntimeError, ValueError), match=r"deleted|donated"):
        f(x)


@pytest.mark.parametrize("donated", [0, 1, (0, 1)])
def test_an_array_is_not_donated_and_passed_besides(donated: int | tuple[int, ...]) -> None:
    f = jax.jit(lambda x, y: (x + y, x - y), donate_argnums=donated)
    x = on_tiny(X)
    with pytest.raises(RuntimeError, match="donate a copy"):
        f(x, x)
    assert not x.is_deleted()
    total, _ = f(x, on_tiny(X))
    np.testing.assert_array_equal(total, X + X)


def test_a_call_that_fails_never_looked_as_if_it_had_donated() -> None:
    count = 100
    f = jax.jit(lambda *xs: [x + 1 for x in xs], donate_argnums=tuple(range(count)))
    arrays = [on_tiny(X) for _ in range(count)]
    f(*(on_tiny(X) for _ in range(count)))
    seen, over = set[bool](), threading.Event()

    def look() -> None:
        while not over.is_set():
            seen.add(arrays[1].is_deleted())

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        for _ in range(200):
            with pytest.raises((RuntimeError, ValueError), match="donate a copy"):
                f(*arrays[:-1], arrays[0])
    finally:
        over.set()
    watcher.join()
    assert seen == {False}


def test_donation_spares_views_outside() -> None:
    f = jit(stand_in(plus_one, [f32(8)], [f32(8)], aliases=((0, 0),)), donate_argnums=0)
    x = on_tiny(X[::-1])
    view = np.asarray(x)
    (y,) = f(x)
    np.testing.assert_array_equal(view, X[::-1])
    np.testing.assert_array_equal(y, X[::-1] + 1)


def test_donation_spares_host_memory() -> None:
    f = jit(stand_in(plus_one, [f32(8)], [f32(8)], aliases=((0, 0),)), donate_argnums=0)
    raw = np.zeros(24, np.float32)
    start = -raw.ctypes.data % 64 // 4
    host = raw[start : start + 8]
    host[:] = X
    (y,) = f(jax.device_put(host, jax.devices("tiny")[0]))  # shares the memory of `host`
    np.testing.assert_array_equal(host, X)
    np.testing.assert_array_equal(y, X + 1)


def test_donation_behind_a_queued_reader() -> None:
    gate = threading.Event()
    seen = []

    def read(inputs: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        assert gate.wait(60)
        seen.append(inputs[0].copy())
        plus_one(inputs, outputs)

    reader = jit(stand_in(read, [f32(8)], [f32(8)], seconds=SLOW))
    quick = stand_in(plus_one, [f32(8)], [f32(8)], aliases=((0, 0),), seconds=QUICK)
    writer = jit(quick, donate_argnums=0)
    x = on_tiny(X[::-1])
    (y,) = reader(x)
    (z,) = writer(x)  # at once, on a copy: the reader has not read yet
    np.testing.assert_array_equal(z, X[::-1] + 1)
    gate.set()
    np.testing.assert_array_equal(y, X[::-1] + 1)
    np.testing.assert_array_equal(seen[0], X[::-1])


def test_donation_while_a_reader_waits_for_its_place(tiny: jax.Device) -> None:
    """Another thread's call came first, and is not in the queue yet."""
    gate, lines = threading.Event(), 1 << 23  # results that large wait until the queue is empty

    def blocked(inputs: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        assert gate.wait(60)

    def read(inputs: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        outputs[0][0] = inputs[0]

    first = jit(stand_in(blocked, [f32(8)], [f32(8)], seconds=SLOW))
    spread = jax.jit(lambda x: [jnp.broadcast_to(x, (lines, 8))], backend="tiny")
    with compiled(stand_in(read, [f32(8)], [f32(lines, 8)], seconds=SLOW)):
        reader = spread.lower(X).compile()
    slow = stand_in(plus_one, [f32(8)], [f32(8)], aliases=((0, 0),), seconds=SLOW)
    writer = jit(slow, donate_argnums=0)
    x, before, seen = on_tiny(X[::-1]), tiny.memory_stats()["bytes_in_use"], []
    running = [first(X), first(X)]
    thread = threading.Thread(target=lambda: seen.append(np.array(reader(x)[0][0])))
    thread.start()
    while tiny.memory_stats()["bytes_in_use"] < before + 32 * lines:
        time.sleep(0.01)
    (y,) = writer(x)
    gate.set()
    thread.join()
    np.testing.assert_array_equal(seen[0], X[::-1])
    np.testing.assert_array_equal(y, X[::-1] + 1)
    del running


@pytest.mark.parametrize("seconds", [QUICK, SLOW])
def test_a_long_donated_chain_needs_no_more_memory(tiny: jax.Device, seconds: float) -> None:
    executable = stand_in(plus_one, [f32(8)], [f32(8)], aliases=((0, 0),), seconds=seconds)
    f = jit(executable, donate_argnums=0)
    x = f(on_tiny(X[::-1]))[0].block_until_ready()
    before, pointer = tiny.memory_stats()["bytes_in_use"], x.unsafe_buffer_pointer()
    for _ in range(200):
        (x,) = f(x)
    x.block_until_ready()
    assert x.unsafe_buffer_pointer() == pointer
    assert tiny.memory_stats()["bytes_in_use"] == before
    np.testing.assert_array_equal(x, X[::-1] + 201)


@pytest.mark.parametrize("seconds", [QUICK, SLOW])
def test_errors_while_running(seconds: float) -> None:
    def fail(inputs: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        raise ValueError("the kernel found no more numbers")

    f = jit(stand_in(fail, [f32(8)], [f32(8)], seconds=seconds))
    after = jit(stand_in(plus_one, [f32(8)], [f32(8)], seconds=QUICK))
    with pytest.raises((ValueError, RuntimeError), match="INTERNAL: the kernel found no more"):
        np.asarray(after(f(X)[0])[0])  # the error travels with the data
    np.testing.assert_array_equal(after(X)[0], X + 1)


def test_wrong_number_of_bytes_never_reaches_the_kernel() -> None:
    f = jit(stand_in(plus_one, [f32(9)], [f32(9)]))
    with pytest.raises((ValueError, RuntimeError), match="another shape"):
        f(X)


@pytest.mark.parametrize("seconds", [QUICK, SLOW])
def test_nothing_leaks(tiny: jax.Device, seconds: float) -> None:
    f = jit(stand_in(plus_one, [f32(8)] * 3, [f32(8)] * 3, seconds=seconds), inputs=3)
    jax.block_until_ready(f(X, X, X))
    before = tiny.memory_stats()["bytes_in_use"]
    for _ in range(50):
        results = f(X, X, X)
    jax.block_until_ready(results)
    del results
    # What a run held is let go after its results are said to be ready.
    ended = time.monotonic() + 10
    while tiny.memory_stats()["bytes_in_use"] != before and time.monotonic() < ended:
        time.sleep(0.01)
    assert tiny.memory_stats()["bytes_in_use"] == before
