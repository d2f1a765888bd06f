"""Host callbacks of JAX on tiny: their arguments, their order, their errors, their lifetimes."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify, io_callback, serialize_executable
from jax.experimental.buffer_callback import buffer_callback

from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
from tinyhlo.errors import ExecutionError
from tinyhlo.runtime import callbacks

Python = Callable[..., str]
F32 = jax.ShapeDtypeStruct((), jnp.float32)
VECTOR = jax.ShapeDtypeStruct((1000,), jnp.float32)
RAISED = (jax.errors.JaxRuntimeError, ValueError)  # the latter by jaxlib where calls are short
jit = partial(jax.jit, backend="tiny")


def work(x: jax.Array) -> jax.Array:
    """Enough of it that a program without a callback runs on the stream."""
    rows = jnp.arange(600_000.0).reshape(600, 1000) * x
    return jnp.sum(rows @ rows.T) * 0


@contextmanager
def late(x: Any) -> Iterator[jax.Array]:
    """x on tiny, still being computed until the block ends: what takes it goes to the stream."""
    leave = threading.Event()

    def wait(x: jax.Array) -> np.ndarray:
        assert leave.wait(60)
        return np.asarray(x)

    x = jnp.asarray(x)
    many = lambda x: jax.lax.fori_loop(0, 20, lambda _, y: y + work(jnp.sum(y)), x)  # noqa: E731
    slow = jit(many).lower(x).compile()
    gate = jit(lambda x: jax.pure_callback(wait, x, x)).lower(x).compile()
    try:
        yield gate(slow(x))
    finally:
        leave.set()


@pytest.mark.parametrize(
    "x",
    [
        np.float32(3),
        np.arange(6, dtype=np.int32).reshape(2, 3),
        np.array([True, False]),
        np.array([1 + 2j, -3j], np.complex64),
        np.zeros((0, 3), np.float32),
        np.arange(4).astype(jnp.bfloat16),
        np.arange(4).astype(jnp.float8_e4m3fn),
    ],
    ids=lambda x: f"{x.dtype}{list(x.shape)}",
)
def test_values_in_and_out(x: np.ndarray) -> None:
    """Nothing changes on the way; the function may keep what it is given."""
    kept: list[jax.Array] = []

    def function(given: jax.Array) -> tuple[jax.Array, np.ndarray]:
        kept.append(given)
        return given, np.asarray(given)[..., None]

    shapes = (x, jax.ShapeDtypeStruct((*x.shape, 1), x.dtype))
    f = jit(lambda x: jax.pure_callback(function, shapes, x))
    for _ in range(3):
        same, wider = f(x)
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(wider, x[..., None])
    assert all(isinstance(given, jax.Array) for given in kept)
    assert len(kept) == 3 or not x.size
    for given in kept:
        np.testing.assert_array_equal(given, x)


def test_ordered_effects_in_a_loop() -> None:
    """Tokens are state of the loop; what is returned is used by the next turn."""
    told: list[float] = []

    def tell(x: jax.Array) -> np.ndarray:
        told.append(float(x))
        return np.float32(x + 1)

    def body(x: jax.Array, _: Any) -> tuple[jax.Array, None]:
        io_callback(lambda x: told.append(-float(x)), None, x, ordered=True)
        return io_callback(tell, F32, x, ordered=True), None

    f = jit(lambda x: jax.lax.scan(body, x, None, length=3)[0])
    assert [float(f(0.0)), float(f(5.0))] == [3.0, 8.0]
    jax.effects_barrier()
    assert told == [-0.0, 0, -1, 1, -2, 2, -5, 5, -6, 6, -7, 7]


def test_unordered_effects_happen_without_results() -> None:
    told: list[tuple[str, float]] = []

    def tell(name: str, x: jax.Array) -> None:
        told.append((name, float(x)))

    @jit
    def f(x: jax.Array) -> None:
        jax.debug.callback(partial(tell, "first"), x)
        jax.lax.cond(x > 1, lambda: jax.debug.callback(partial(tell, "big"), x), lambda: None)
        jax.lax.while_loop(lambda n: n < 2, partial(told_and_next, tell), 0.0)
        jax.debug.callback(partial(tell, "last"), x)

    for x in (1.0, 2.0):
        f(x)
    jax.effects_barrier()
    loop = [("turn", 0.0), ("turn", 1.0)]
    assert told == [
        ("first", 1.0), *loop, ("last", 1.0),
        ("first", 2.0), ("big", 2.0), *loop, ("last", 2.0),
    ]  # fmt: skip


def told_and_next(tell: Callable[[str, jax.Array], None], n: jax.Array) -> jax.Array:
    jax.debug.callback(partial(tell, "turn"), n)
    return n + 1


def test_effects_of_different_programs_in_the_order_of_their_calls() -> None:
    told: list[int] = []

    def program(k: int) -> Callable[[], None]:
        return jit(lambda: io_callback(lambda: told.append(k), None, ordered=True))

    programs = [program(k) for k in range(5)]
    for _ in range(3):
        for call in programs:
            call()
    jax.effects_barrier()
    assert told == [0, 1, 2, 3, 4] * 3


@pytest.mark.parametrize("extra", [lambda x: 0, work], ids=["short", "long"])
def test_functions_have_run_when_the_call_returns(extra: Callable[[Any], Any]) -> None:
    """What a program prints stands before what is printed after it, as on XLA:CPU."""
    seen = list[float]()
    f = jit(lambda x: (jax.debug.callback(lambda x: seen.append(float(x)), x), extra(x)))
    for k in range(3):
        f(np.float32(k))
        assert seen[-1] == k


def test_effects_wait_for_earlier_ones() -> None:
    """Those of their own thread, as on XLA:CPU; other threads go on."""
    told: list[str] = []

    def telling(name: str) -> Callable[[Any], Any]:
        return jit(lambda x: jax.debug.callback(lambda _: told.append(name), x))

    first, second, elsewhere = map(telling, ("first", "second", "elsewhere"))
    with late(np.float32(0)) as x, ThreadPoolExecutor(1) as pool:
        first(x)
        second(np.float32(0))
        assert told == []
        pool.submit(elsewhere, np.float32(0)).result(60)
        assert told == ["elsewhere"]
    jax.effects_barrier()
    assert told == ["elsewhere", "first", "second"]


def test_debug_print(capfd: pytest.CaptureFixture[str]) -> None:
    @jit
    @jax.vmap
    def f(x: jax.Array) -> jax.Array:
        jax.debug.print("x = {x}", x=x)
        return x

    f(jnp.arange(2.0)).block_until_ready()
    jax.effects_barrier()
    assert sorted(capfd.readouterr().out.split("\n")) == ["", "x = 0.0", "x = 1.0"]


def test_checks() -> None:
    def f(x: jax.Array) -> jax.Array:
        checkify.check(x > 0, "{x} must be positive", x=x)
        return jnp.log(x)

    checked = jit(checkify.checkify(f, errors=checkify.all_checks))
    error, _ = checked(jnp.float32(2))
    assert error.get() is None
    error, _ = checked(jnp.float32(-2))
    assert "-2.0 must be positive" in error.get()


def test_functions_that_write_into_buffers() -> None:
    def function(context: Any, out: Any, x: Any, *, times: Any) -> None:
        assert (x.shape, x.dtype, x.writeable, out.writeable) == ((1000,), np.float32, False, True)
        assert not np.asarray(x).flags.writeable
        np.asarray(out)[...] = np.from_dlpack(x) * np.asarray(times)

    call = buffer_callback(function, VECTOR, vmap_method="sequential")
    x = np.arange(1000, dtype=np.float32)
    np.testing.assert_array_equal(jit(lambda x: call(x, times=jnp.float32(3)))(x), 3 * x)
    twice = jit(jax.vmap(lambda x: call(x, times=jnp.float32(2))))(np.stack([x, x + 1]))
    np.testing.assert_array_equal(twice, 2 * np.stack([x, x + 1]))
    add = buffer_callback(in_place, VECTOR, input_output_aliases={0: 0})
    np.testing.assert_array_equal(jit(add)(x), x + 1)


def in_place(context: Any, out: Any, x: Any) -> None:
    np.asarray(out)[...] += 1


def test_debug_nans() -> None:
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="nan"):
        jit(jnp.log)(jnp.float32(-1)).block_until_ready()


# --- errors --------------------------------------------------------------------------------------


def fails_for_negative(x: jax.Array) -> jax.Array:
    if x[0] < 0:
        raise ValueError("there is no such number")
    return x


@pytest.mark.parametrize("extra", [lambda x: 0, work], ids=["short", "long"])
def test_exceptions_are_raised_by_the_call(extra: Callable[[Any], Any]) -> None:
    """Nobody need look at the result, as on XLA:CPU."""
    f = jit(lambda x: jax.pure_callback(fails_for_negative, VECTOR, x) + extra(x))
    good = np.ones(1000, np.float32)
    for x in (good, -good, good, -good):
        if x is good:
            assert f(x)[0] == 1
            continue
        with pytest.raises(RAISED, match="ValueError: there is no such number"):
            f(x)


def test_exceptions_reach_whoever_needs_the_result() -> None:
    """Where an argument is still being computed, the call is over before its program."""
    f = jit(lambda x: jax.pure_callback(fails_for_negative, VECTOR, x))
    after = jit(lambda x: x + 1)
    with late(-np.ones(1000, np.float32)) as x:
        y = after(f(x))
    with pytest.raises(
        jax.errors.JaxRuntimeError, match="ValueError: there is no such number"
    ) as e:
        y.block_until_ready()
    assert "test_callbacks.py" in str(e.value) and "tinyhlo/runtime" not in str(e.value)


@pytest.mark.parametrize("kind", ["debug", "pure"])
def test_exceptions_of_unused_results_show_at_the_barrier(kind: str) -> None:
    functions = {
        "debug": lambda x: jax.debug.callback(fails_for_negative, x),
        "pure": lambda x: jax.pure_callback(fails_for_negative, VECTOR, x),
    }
    with late(-np.ones(1000, np.float32)) as x:
        jit(functions[kind])(x)
    with pytest.raises(jax.errors.JaxRuntimeError, match="there is no such number"):
        jax.effects_barrier()
    jit(functions["debug"])(np.ones(1000, np.float32))
    jax.effects_barrier()


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (np.zeros(4, np.float32), r"shape .* \(1000,\), Actual: \(4,\)"),
        (np.zeros(1000, np.int32), "dtype .* float32, Actual: int32"),
        ((np.zeros(1000), 1), "Expected: 1, Actual: 2"),
    ],
)
def test_results_must_be_what_was_promised(returned: Any, message: str) -> None:
    f = jit(lambda: jax.pure_callback(lambda: returned, VECTOR))
    with pytest.raises(RAISED, match=message):
        f().block_until_ready()


# --- threads -------------------------------------------------------------------------------------


def test_functions_may_use_jax() -> None:
    """On the CPU, and programs for tiny from inside a program for tiny."""
    on_cpu = jax.jit(jnp.sin, backend="cpu")
    on_tiny = jit(jnp.cos)

    def function(x: jax.Array) -> np.ndarray:
        return np.asarray(on_cpu(x)) + np.asarray(on_tiny(np.asarray(x)))

    for extra in (lambda x: 0, work):
        f = jit(lambda x: jax.pure_callback(function, VECTOR, x) + extra(x))  # noqa: B023
        x = np.linspace(0, 1, 1000, dtype=np.float32)
        for _ in range(5):
            np.testing.assert_allclose(f(x), np.sin(x) + np.cos(x), rtol=1e-5)


def test_many_in_flight() -> None:
    """As many as the stream queues, each needing the one before, while this thread goes on."""
    f = jit(lambda x: jax.pure_callback(lambda x: np.asarray(x) + 1, VECTOR, x))
    with late(np.zeros(1000, np.float32)) as y:
        for _ in range(30):
            y = f(y)
    for _ in range(30):
        y = f(y)
    assert np.asarray(y).tolist() == [60.0] * 1000


def test_several_threads() -> None:
    f = jit(lambda x: jax.pure_callback(lambda x: np.asarray(x) + 1, VECTOR, x))

    def turns(start: int) -> float:
        y: Any = np.full(1000, start, np.float32)
        for _ in range(20):
            y = f(y)
        return float(y[0])

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(turns, range(8))) == [k + 20.0 for k in range(8)]


def test_a_caller_that_waits_lets_the_function_run() -> None:
    """The function needs the interpreter while another thread waits for its result."""
    entered, leave = threading.Event(), threading.Event()

    def function(x: jax.Array) -> np.ndarray:
        entered.set()
        assert leave.wait(60)
        return np.asarray(x)

    f = jit(lambda x: jax.pure_callback(function, VECTOR, x) + work(x))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: np.asarray(f(np.ones(1000, np.float32))))
        assert entered.wait(60) and not waiting.done()
        leave.set()
        assert waiting.result(60)[0] == 1


def test_exit_with_functions_queued(python: Python) -> None:
    program = """
        import time, jax, jax.numpy as jnp, numpy as np
        told = []
        def slow(x):
            time.sleep(0.02)
            told.append(1)
            return np.asarray(x)
        work = jax.jit(lambda x: jax.lax.fori_loop(0, 20, lambda _, y: jnp.tanh(y @ y), x))
        f = jax.jit(lambda x: jax.pure_callback(slow, x, x))
        x = f(work(jnp.zeros((500, 500))))
        x = work(x)
        for _ in range(20):
            x = f(x)
        print("left")
    """
    assert python(program) == "left\n"


def test_without_a_cpu_backend(python: Python) -> None:
    program = """
        import jax, jax.numpy as jnp, numpy as np
        def f(x):
            jax.debug.print("x = {}", x)
            return jax.pure_callback(lambda x: jnp.sort(x), x, x)
        print(jax.jit(f)(jnp.array([2.0, 1.0])))
        jax.debug.print("eager {}", 1)
    """
    expected = "x = [2. 1.]\n[1. 2.]\neager 1\n"
    assert python(program) == expected  # JAX_PLATFORMS=tiny


# --- programs and their functions ------------------------------------------------------------


def test_programs_that_differ_only_in_their_function() -> None:
    def adding(k: int) -> Callable[[Any], jax.Array]:
        def f(x: jax.Array) -> jax.Array:
            return jax.pure_callback(lambda x: np.float32(x + k), F32, x)

        return jit(f)

    programs = [adding(k) for k in range(3)]
    assert [float(f(1.0)) for f in programs + programs] == [1.0, 2.0, 3.0] * 2


def test_a_function_lives_as_long_as_its_program() -> None:
    gc.collect()
    before = set(callbacks._alive)
    f = jit(lambda x: jax.pure_callback(lambda x: x, F32, x))
    compiled = f.lower(1.0).compile()
    del f
    jax.clear_caches()
    gc.collect()
    (number,) = set(callbacks._alive) - before
    assert float(compiled(3.0)) == 3.0
    del compiled
    gc.collect()
    jit(lambda x: x + 1)(1.0)  # executables are let go when the next one is made
    gc.collect()
    assert number not in callbacks._alive


def test_a_compiled_program_with_a_function_is_not_serialised() -> None:
    compiled = jit(lambda x: jax.pure_callback(lambda x: x, F32, x)).lower(1.0).compile()
    with pytest.raises((TypeError, AttributeError), match=r"callback|process"):
        serialize_executable.serialize(compiled)


@pytest.mark.parametrize("target", [callbacks.TARGET, "xla_ffi_python_cpu_callback"])
def test_a_function_of_another_process_is_missed_only_when_called(target: str) -> None:
    call = f"stablehlo.custom_call @{target}(%x) {{mhlo.backend_config = {{id = 1 : ui64}}}}"
    text = f"""func.func @main(%t: tensor<i1>, %x: tensor<f32>) -> tensor<f32> {{
      %y = "stablehlo.if"(%t) ({{ %z = {call} : (tensor<f32>) -> tensor<f32>
                                  "stablehlo.return"(%z) : (tensor<f32>) -> () }},
                               {{ "stablehlo.return"(%x) : (tensor<f32>) -> () }})
          : (tensor<i1>) -> tensor<f32>
      return %y : tensor<f32> }}"""
    executable = compile_module(text, Config(cache=0))
    (y,) = executable(np.array(False), np.float32(2))
    assert y == 2
    with pytest.raises(ExecutionError, match="jit the function again"):
        executable(np.array(True), np.float32(2))


@pytest.mark.parametrize("thread", [False, True])
def test_functions_may_wait_for_programs_behind_their_own(thread: bool) -> None:
    """Whether the caller or a thread of the function queued them; what has effects stays behind."""
    queued, order = threading.Event(), list[str]()
    slow = jit(lambda x: work(x) + x)
    behind: list[jax.Array] = []

    def waiting(x: jax.Array) -> np.ndarray:
        assert queued.wait(60)
        order.append("waits")
        if thread:
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(lambda: np.asarray(slow(np.float32(7)))).result(60)
        value = np.asarray(behind[0])
        order.append("waited")
        return value

    f = jit(lambda x: jax.pure_callback(waiting, F32, x))
    effect = jit(lambda x: (io_callback(lambda _: order.append("effect"), None, x), work(x)))
    slow(np.float32(0)).block_until_ready()
    with late(np.float32(1)) as x:
        y = f(x)
        later = effect(x)
    behind.append(slow(np.float32(7)))
    queued.set()
    assert y == 7
    jax.block_until_ready(later)
    jax.effects_barrier()
    assert order[-1] == "effect"


@pytest.mark.parametrize("where", ["caller", "stream"])
def test_functions_may_call_what_has_effects(where: str) -> None:
    """Themselves and from threads that they start and wait for."""
    told: list[float] = []
    tell = jit(lambda x: (io_callback(lambda x: told.append(float(x)), None, x), x + work(x))[1])

    def function(x: jax.Array) -> np.ndarray:
        with ThreadPoolExecutor(1) as pool:
            elsewhere = pool.submit(lambda: np.asarray(tell(np.float32(2)))).result(60)
        return elsewhere + np.asarray(tell(np.float32(3)))

    f = jit(lambda x: x + io_callback(function, F32, x))
    x = np.float32(4)
    if where == "caller":
        assert f(x) == 9
    else:
        with late(x) as x:
            y = f(x)
        assert y == 9
    assert told == [2, 3]
