"""XLA FFI handlers written in C on jaxlib's header, called by programs on tiny."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jaxlib
import numpy as np
import pytest

import tinyhlo
from tinyhlo.errors import ExecutionError, TinyhloError
from tinyhlo.ir.dtypes import F32, I32
from tinyhlo.ir.graph import TensorType
from tinyhlo.pjrt_plugin import initialize
from tinyhlo.runtime import core, jax_ffi
from tinyhlo.runtime.ffi import ffi_call
from tinyhlo.runtime.library import REGISTRY, Call, Library, run
from tinyhlo.runtime.targets import batch_shape, find

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "tinyhlo" / "runtime" / "native"
HEADERS = Path(jaxlib.__file__).parent / "include"
COMPILER = shutil.which("cc")
X = np.array([1, 2, 3], np.float32)
VECTOR = TensorType((3,), F32)

pytestmark = pytest.mark.skipif(
    COMPILER is None or not (HEADERS / "xla/ffi/api/c_api.h").exists(),
    reason="needs a C compiler and jaxlib's headers",
)


def compile_c(name: str, *flags: str) -> None:
    command = [str(COMPILER), "-std=gnu11", f"-I{HEADERS}", f"-I{NATIVE}", str(HERE / name), *flags]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def handlers(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("handlers") / "handlers.so"
    compile_c("ffi_handlers.c", "-shared", "-fPIC", "-lpthread", "-o", str(path))
    return ctypes.CDLL(str(path))


@pytest.fixture
def registry():
    before = dict(REGISTRY)
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


@pytest.fixture(scope="module")
def tiny() -> jax.Device:
    initialize()
    return jax.devices("tiny")[0]


@pytest.fixture
def counters(handlers: ctypes.CDLL) -> Iterator[Callable[[], int]]:
    """How many states are alive of a type that is registered with a deleter."""
    jax_ffi.watch()
    words = {"type_id": handlers.counter_type, "type_info": handlers.counter_info}
    type_: Any = {name: jax.ffi.pycapsule(value) for name, value in words.items()}
    jax.ffi.register_ffi_type("test.counter", type_, platform="tiny")
    before = handlers.counters()
    yield lambda: handlers.counters() - before
    del jax_ffi.TYPES["tiny", "test.counter"]


def call_directly(handler: Any, **others: Any) -> list[np.ndarray]:
    stages = {
        stage: jax.ffi.pycapsule(function)
        for stage, function in {"execute": handler, **others}.items()
    }
    library = ffi_call(stages, Call("test", {}, (VECTOR,), (VECTOR,)))
    return [run(library, [X], [VECTOR])[0] for _ in range(3)]


def test_layouts(tmp_path: Path) -> None:
    compile_c("ffi_layouts.c", "-fsyntax-only")


def test_attributes(handlers: ctypes.CDLL, registry: None, tiny: jax.Device) -> None:
    tinyhlo.register_custom_call("test.scale", jax.ffi.pycapsule(handlers.scale))

    def f(x):  # type: ignore[no-untyped-def]
        return jax.ffi.ffi_call("test.scale", x)(
            x,
            scale=np.float32(2),
            offsets=np.array([10, 20]),
            word="hello",
            inner={"more": np.float32(0.5)},
        )

    np.testing.assert_array_equal(jax.jit(f)(jax.device_put(X, tiny)), 2 * X + 30.5)


def test_registered_with_jax(handlers: ctypes.CDLL, tiny: jax.Device) -> None:
    for platform in ("tiny", "cpu"):
        name = f"test.later.{platform}"
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(handlers.later), platform=platform)
        f = jax.jit(lambda x, name=name: jax.ffi.ffi_call(name, x)(x))
        np.testing.assert_array_equal(f(jax.device_put(X, tiny)), -X)


def counting(handlers: ctypes.CDLL) -> dict[str, Any]:
    """One handler for each stage: what `counter_run` looks for is made by `counter_new`."""
    stages = {"instantiate": handlers.counter_new, "execute": handlers.counter_run}
    return {stage: jax.ffi.pycapsule(function) for stage, function in stages.items()}


def test_stages_registered_for_the_cpu(handlers: ctypes.CDLL, tiny: jax.Device) -> None:
    """Of which XLA gives back but two."""
    jax.devices("cpu")
    jax.ffi.register_ffi_target("test.stages", counting(handlers), platform="cpu")
    f = jax.jit(lambda x: jax.ffi.ffi_call("test.stages", x)(x))
    np.testing.assert_array_equal(f(jax.device_put(X, tiny)), X + 1)


REGISTERED_EARLY = """
import ctypes, jax, numpy as np
handlers = ctypes.CDLL({path!r})
stages = {{"instantiate": handlers.counter_new, "execute": handlers.counter_run}}
stages = {{stage: jax.ffi.pycapsule(function) for stage, function in stages.items()}}
jax.ffi.register_ffi_target(name="test.early", fn=stages, platform="cpu")
print(jax.jit(lambda x: jax.ffi.ffi_call("test.early", x)(x))(np.arange(3.0)), jax.devices())
"""


def test_stages_registered_before_the_plugin(handlers: ctypes.CDLL) -> None:
    source = REGISTERED_EARLY.format(path=handlers._name)
    environment = os.environ | {"JAX_PLATFORMS": "tiny,cpu"}
    command = [sys.executable, "-c", source]
    said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert said.stdout.startswith("[1. 2. 3.] [TinyDevice"), said.stdout


def test_error_of_a_handler(handlers: ctypes.CDLL, registry: None, tiny: jax.Device) -> None:
    tinyhlo.register_custom_call("test.refuse", jax.ffi.pycapsule(handlers.refuse))
    f = jax.jit(lambda x: jax.ffi.ffi_call("test.refuse", x)(x) + 1)
    with pytest.raises(jax.errors.JaxRuntimeError, match="INVALID_ARGUMENT: no, thank you"):
        np.asarray(f(jax.device_put(X, tiny)))
    np.testing.assert_array_equal(jax.jit(lambda x: x + 1)(jax.device_put(X, tiny)), X + 1)


def test_shared_memory(handlers: ctypes.CDLL, registry: None, tiny: jax.Device) -> None:
    tinyhlo.register_custom_call("test.first", jax.ffi.pycapsule(handlers.first))

    def f(x):  # type: ignore[no-untyped-def]
        return jax.ffi.ffi_call("test.first", x, input_output_aliases={0: 0})(x), x

    changed, kept = jax.jit(f)(jax.device_put(X, tiny))
    np.testing.assert_array_equal(changed, [7, 2, 3])
    np.testing.assert_array_equal(kept, X)


def test_state(handlers: ctypes.CDLL) -> None:
    results = call_directly(handlers.counter_run, instantiate=handlers.counter_new)
    np.testing.assert_array_equal(results, [X + 1, X + 2, X + 3])
    with pytest.raises(ExecutionError, match="no state was set"):
        call_directly(handlers.counter_run)


def test_types_have_numbers(handlers: ctypes.CDLL) -> None:
    """jaxlib's C++ header asserts it, and XLA numbers those of its own platforms alone."""
    jax_ffi.watch()
    number = ctypes.c_int64.in_dll(handlers, "unnumbered")
    type_: Any = {"type_id": jax.ffi.pycapsule(handlers.unnumbered)}
    jax.ffi.register_ffi_type("test.unnumbered", type_, platform="tiny")
    seen: list[int] = []
    for _ in range(2):
        call_directly(handlers.counter_run, instantiate=handlers.counter_new)
        seen.append(number.value)
    assert seen[0] == seen[1] > 0


def test_state_of_a_run(handlers: ctypes.CDLL, counters: Callable[[], int]) -> None:
    results = call_directly(handlers.counter_run_prepared, prepare=handlers.counter_new)
    np.testing.assert_array_equal(results, [X + 1] * 3)
    assert counters() == 0


def test_state_is_set_once(handlers: ctypes.CDLL) -> None:
    with pytest.raises(ExecutionError, match="has set its state before"):
        call_directly(handlers.counter_twice)


def test_state_dies_with_its_call(handlers: ctypes.CDLL, counters: Callable[[], int]) -> None:
    stages = {"instantiate": jax.ffi.pycapsule(handlers.counter_new)}
    library = ffi_call(stages, Call("test", {}, (VECTOR,), (VECTOR,)))
    assert counters() == 1
    del library
    assert counters() == 0


def test_state_dies_with_its_program(
    handlers: ctypes.CDLL, counters: Callable[[], int], tiny: jax.Device
) -> None:
    jax.ffi.register_ffi_target("test.dies", counting(handlers), platform="tiny")
    x = jax.device_put(X, tiny)
    functions = [jax.jit(lambda x, k=k: jax.ffi.ffi_call("test.dies", x)(x) * k) for k in range(3)]
    for k, f in enumerate(functions):
        np.testing.assert_array_equal(f(x), (X + 1) * k)
    assert counters() == 3
    del f, functions
    jax.clear_caches()
    gc.collect()
    np.testing.assert_array_equal(jax.jit(lambda x: x + 1)(x), X + 1)  # compiling collects
    assert counters() == 0


def test_refusal_when_instantiated(handlers: ctypes.CDLL, counters: Callable[[], int]) -> None:
    with pytest.raises(TinyhloError, match="cannot be instantiated: no, thank you"):
        call_directly(handlers.refuse, instantiate=handlers.counter_refuse)
    assert counters() == 0


def test_threads_and_futures(handlers: ctypes.CDLL) -> None:
    np.testing.assert_array_equal(call_directly(handlers.later), [-X] * 3)


def test_no_stream(handlers: ctypes.CDLL) -> None:
    with pytest.raises(ExecutionError, match="no stream"):
        call_directly(handlers.stream)


def test_plain_function(handlers: ctypes.CDLL, tiny: jax.Device) -> None:
    capsule = jax.ffi.pycapsule(handlers.plain)
    jax.ffi.register_ffi_target("test.plain", capsule, platform="tiny", api_version=0)

    def f(x, version):  # type: ignore[no-untyped-def]
        return jax.ffi.ffi_call("test.plain", x, custom_call_api_version=version)(x)

    x = jax.device_put(X, tiny)
    np.testing.assert_array_equal(jax.jit(lambda x: f(x, 1))(x), 2 * X)
    with pytest.raises(jax.errors.JaxRuntimeError, match="API version 2"):
        jax.jit(lambda x: f(x, 2))(x)


def test_python_function(registry: None, tiny: jax.Device) -> None:
    def scaled(x, *, factor):  # type: ignore[no-untyped-def]
        assert isinstance(x, np.ndarray)
        return factor * x, x.sum(dtype=x.dtype)

    tinyhlo.register_custom_call("test.scaled", scaled)
    kinds = (jax.ShapeDtypeStruct((3,), np.complex64), jax.ShapeDtypeStruct((), np.complex64))
    f = jax.jit(lambda x: jax.ffi.ffi_call("test.scaled", kinds)(x, factor=np.int32(3)))
    x = X.astype(np.complex64) * 1j
    product, total = f(jax.device_put(x, tiny))
    np.testing.assert_array_equal(product, 3 * x)
    assert total == x.sum()


def test_what_cannot_be_registered() -> None:
    with pytest.raises(TypeError, match="a function or a PyCapsule"):
        tinyhlo.register_custom_call("test.nothing", 7)


def test_error_of_one_part_of_a_batch(handlers: ctypes.CDLL) -> None:
    call = Call("test", {}, (TensorType((8, 3), F32),), (TensorType((8, 3), F32),))
    library = ffi_call({"execute": jax.ffi.pycapsule(handlers.refuse)}, call, batch=8)
    with pytest.raises(ExecutionError, match="no, thank you"):
        run(library, [np.zeros((8, 3), np.float32)], call.results)


@pytest.mark.parametrize(("size", "split"), [(8, True), (31, True), (32, False), (100, False)])
def test_batches_of_large_matrices_are_left_to_jaxlib(size: int, split: bool) -> None:
    """Which makes calls on several threads too, each of BLAS with one."""
    shape = (400, size, size)
    matrices, failed = TensorType(shape, F32), TensorType(shape[:1], I32)
    call = Call("lapack_spotrf_ffi", {"uplo": np.uint8(ord("L"))}, (matrices,), (matrices, failed))
    given: list[tuple[int, int]] = []

    def recorded(
        handlers: object, call: Call, seconds: float, batch: int = 1, blas_threads: int = 0
    ) -> Library:
        given.append((batch, blas_threads))
        return Library(np.zeros(1, np.int64))

    make = find(call.target)
    assert make is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tinyhlo.runtime.targets.ffi_call", recorded)
        make(call)
    assert given == [(400 if split else 1, 1)]


def test_batches_are_split_among_threads() -> None:
    """The same bits for every number of threads."""
    shape = (20, 50, 8, 8)
    matrices, failed = TensorType(shape, F32), TensorType(shape[:2], I32)
    call = Call("lapack_spotrf_ffi", {"uplo": np.uint8(ord("L"))}, (matrices,), (matrices, failed))
    assert batch_shape(call.operands, call.results) == (20, 50)
    make = find(call.target)
    assert make is not None
    a = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    a = a @ a.swapaxes(2, 3) + np.eye(8, dtype=np.float32)
    before = core.library().tiny_thread_count()
    results = []
    for threads in (1, 2, 3):
        core.set_threads(threads)
        results.append(run(make(call), [a], call.results))
    core.set_threads(before)
    for factor, info in results:
        np.testing.assert_array_equal(info, 0)
        np.testing.assert_array_equal(factor, results[0][0])
    lower = np.triu(results[0][0]).swapaxes(2, 3)  # column-major
    np.testing.assert_allclose(lower, np.linalg.cholesky(a), rtol=1e-4, atol=1e-4)
