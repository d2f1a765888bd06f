"""Devices beside the host: their runtime, and JAX on them. Skipped where there is none."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import textwrap
from ctypes.util import find_library
from pathlib import Path

import pytest

from tests.runtime import emulated_gpu
from tests.runtime.device_checks import NAMES

ROOT = Path(__file__).resolve().parents[2]
DEVICES = ("CL", "NV", "AMD", "METAL", "QCOM")
# Without a driver, these are emulated.
DRIVERS = {"NV": "cuda", "AMD": "amdhip64", "METAL": "Metal"}
EMULATED = tuple(device for device, driver in DRIVERS.items() if not find_library(driver))
ADRENO = {"TINYHLO_EMULATE": "1"}  # by any OpenCL device


def python(
    *arguments: str, seconds: float = 300, **environment: str
) -> subprocess.CompletedProcess[str]:
    variables = (
        os.environ
        | {"PYTHONPATH": str(ROOT)}
        | emulated_gpu.environment(*EMULATED)
        | ADRENO
        | environment
    )
    return subprocess.run(
        [sys.executable, *arguments],
        env=variables, capture_output=True, text=True, timeout=seconds, check=False, cwd=ROOT,
    )  # fmt: skip


@functools.cache
def missing(device: str) -> str:
    """Why there is no such device here; empty when there is one."""
    code = f"""from tinyhlo.compiler import device_target
from tinyhlo.config import Config
device_target(Config(device={device!r}))"""
    done = python("-c", code)
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


@functools.cache
def checked(device: str) -> dict[str, str]:
    done = python("-m", "tests.runtime.device_checks", device)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    if missing(request.param):
        pytest.skip(missing(request.param))
    return request.param


@pytest.mark.parametrize("name", NAMES)
def test_runtime(device: str, name: str) -> None:
    wrong = checked(device)[name]
    assert not wrong, wrong


def jax_on(device: str, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    code = "import jax, jax.numpy as jnp, numpy as np\n" + textwrap.dedent(program)
    return python("-c", code, TINYHLO_DEVICE=device, JAX_PLATFORMS="tiny", **environment)


def test_jax_shows_the_device(device: str) -> None:
    done = jax_on(device, "d = jax.devices()[0]; print(repr(d), '|', d.device_kind)")
    shown, kind = done.stdout.strip().split(" | ")
    assert shown == f"TinyDevice(id=0, {device})" and kind not in ("", "CPU"), done.stderr


def test_arrays_go_there_and_back(device: str) -> None:
    program = """
    x = np.arange(1 << 16, dtype=np.float32)
    y = jax.device_put(x)
    x[:] = 0  # no longer shared
    assert np.asarray(y)[-1] == (1 << 16) - 1
    z = jnp.from_dlpack(np.arange(8.0, dtype=np.float32))
    print(float(np.asarray(z)[7]))
    """
    done = jax_on(device, program)
    assert done.stdout == "7.0\n", done.stderr


PROGRAMS = """
from jax import lax

X = np.random.default_rng(0).normal(size=(20, 30)).astype(np.float32)
PROGRAMS = {
    "fused": (lambda x: jnp.tanh(x) * 2 + x.sum(1, keepdims=True), X),
    "rows": (lambda x: jax.nn.softmax(x @ x.T), X),
    "counted": (lambda x: lax.fori_loop(0, 7, lambda i, s: s * 0.5 + i, x), X),
    "never": (lambda x: lax.fori_loop(0, 0, lambda i, s: s * 0.5 + i, x), X),
    "nested": (lambda x: lax.fori_loop(0, 3, lambda i, s: lax.fori_loop(
        0, 5, lambda j, t: t + j * i, s), x), X),
    "handed on": (lambda x: lax.fori_loop(0, 4, lambda i, c: (c[1], c[2], c[0][::-1] * 0.9 + c[1]),
        (x, x + 1, x * 2)), X),
    "open": (lambda x: lax.while_loop(lambda s: s.sum() < 1e3, lambda s: s * 2, jnp.abs(x)), X),
    "scan": (lambda x: lax.scan(lambda c, y: (c + y, c * y), x[0], x), X),
    "branch": (lambda x: lax.switch(jnp.int32(x[0, 0] > 9), [jnp.sin, jnp.cos], x), X),
    "lapack": (lambda x: jnp.linalg.eigvalsh(x.T @ x), X),
    "callback": (lambda x: 1 + jax.pure_callback(lambda a: np.sin(a) * 2, x, x * 3), X),
    "constant": (lambda x: x[0] @ np.linspace(0, 1, 3000, dtype=np.float32).reshape(30, 100), X),
    "empty": (lambda x: (x[:0] + 1, x), X),
}
for name, (function, x) in PROGRAMS.items():
    oracle = jax.jit(function, compiler_options={"tinyhlo_device": "PYTHON"})
    for mine, theirs in zip(*map(jax.tree.leaves, (jax.jit(function)(x), oracle(x)))):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5, err_msg=name)
print("right")
"""


def test_a_kept_program_for_the_processor(device: str, tmp_path: Path) -> None:
    """Its constants lie where a processor reads them, compiled just now or kept on the disk."""
    program = """
    f = lambda x: x @ np.linspace(0, 1, 3000, dtype=np.float32).reshape(30, 100)
    x = jnp.ones(30)
    mine = jax.jit(f)(x)
    theirs = jax.jit(f, compiler_options={"tinyhlo_device": "CPU"})(x)
    np.testing.assert_allclose(mine, theirs, rtol=1e-5)
    print("right")
    """
    for _ in range(2):
        done = jax_on(device, program, TINYHLO_CACHE="1", TINYHLO_CACHE_DIR=str(tmp_path))
        assert done.stdout == "right\n", done.stderr


def test_programs_are_right(device: str) -> None:
    """As the interpreter has them: loops, branches, calls of the host, constants."""
    done = jax_on(device, PROGRAMS, PYTHONWARNINGS="error::UserWarning", TINYHLO_CACHE="0")
    assert done.stdout == "right\n", done.stderr


def test_donation_and_threads(device: str) -> None:
    program = """
    import threading

    step = jax.jit(lambda w, g: w - 0.5 * g, donate_argnums=0)
    def train(seed, out):
        w = jnp.full(1000, float(seed))
        for k in range(100):
            before = w
            w = step(w, jnp.ones(1000))
        assert before.is_deleted()
        out[seed] = float(w[-1])
    out = {}
    threads = [threading.Thread(target=train, args=(k, out)) for k in range(2)]
    [t.start() for t in threads], [t.join() for t in threads]
    print(out[0], out[1])
    """
    done = jax_on(device, program)
    assert done.stdout == "-50.0 -49.0\n", done.stderr


def test_nothing_leaks(device: str) -> None:
    program = """
    import time
    f = jax.jit(lambda x: (x @ x).sum(0))
    def used():
        for _ in range(20):
            y = np.asarray(f(jnp.ones((100, 100))))
        del y
        time.sleep(0.2)  # who ran a program gives its memory back behind the result
        return jax.devices()[0].memory_stats()["bytes_in_use"]
    used()
    print(used() == used())
    """
    done = jax_on(device, program)
    assert done.stdout == "True\n", done.stderr


UNLOADED = """
import gc
import numpy as np
from tinyhlo.compiler import compile_module
from tinyhlo.config import from_environment

def loaded():  # modules of emulated drivers are libraries whose file is gone
    lines = open("/proc/self/maps").read().splitlines()
    return sum(line.endswith("(deleted)") and "r-xp" in line for line in lines)
def run():
    program = compile_module(MODULE, from_environment())
    np.testing.assert_array_equal(program(np.ones(8, np.float32))[0], np.full(8, 2))
    return loaded()
before, during = loaded(), []
for _ in range(3):
    during.append(run())
    gc.collect()
print(before, *during, loaded())
"""


@pytest.mark.parametrize("stream", ["NV", "AMD"])
def test_code_is_unloaded_with_its_program(stream: str) -> None:
    if stream not in EMULATED or missing(stream):
        pytest.skip(missing(stream) or "there is a driver")
    done = python("-c", f"MODULE = {MODULE!r}\n{UNLOADED}", TINYHLO_DEVICE=stream)
    assert done.stdout == "0 1 1 1 0\n", done.stderr


def test_errors_reach_the_caller(device: str) -> None:
    program = """
    def refuse(x):
        raise ValueError("no such thing")
    try:
        np.asarray(jax.jit(lambda x: jax.pure_callback(refuse, x, x * 2) + 1)(jnp.ones(3)))
    except Exception as error:
        print("no such thing" in str(error))
    """
    done = jax_on(device, program)
    assert done.stdout == "True\n", done.stderr


def test_a_child_has_no_device(device: str) -> None:
    """An error, where the driver would wait for ever."""
    program = """
    import os

    f = jax.jit(lambda x: x * 2 + 1)
    x = np.ones(1 << 20, np.float32)
    f(x).block_until_ready()
    child = os.fork()
    if not child:
        try:
            f(x).block_until_ready()
        except Exception as error:
            os._exit(7 if "before the process forked" in str(error) else 1)
        os._exit(1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    done = jax_on(device, program)
    assert done.stdout == "7\n", done.stderr


def test_a_line_for_each_kernel(device: str) -> None:
    program = "jax.jit(lambda x: jnp.sin(x).sum())(np.ones(8, np.float32))"
    done = jax_on(device, program, TINYHLO_DEBUG="2")
    assert "GFLOP/s" in done.stderr


MODULE = """func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %y = stablehlo.add %x, %x : tensor<8xf32>
  return %y : tensor<8xf32>
}"""


def test_command_line(device: str, tmp_path: Path) -> None:
    (tmp_path / "model.mlir").write_text(MODULE)

    def tinyhlo(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        given = (
            [*arguments, str(tmp_path / "model.mlir")] if arguments != ("devices",) else arguments
        )
        return python("-m", "tinyhlo", *given, TINYHLO_DEVICE=device, **environment)

    assert "KERNEL(256) void" in tinyhlo("show", "--stage", "source").stdout
    assert "as XLA:CPU" in tinyhlo("run", "--random", "0", "--check", "xla").stdout
    assert f"{device} " in tinyhlo("devices").stdout
    assert "a device runs the program" in tinyhlo("build").stderr
    assert "processors alone" in tinyhlo("tune").stderr
    page = tmp_path / "page.html"
    tinyhlo("run", "--random", "0", TINYHLO_VIZ=str(page))
    assert page.exists()


def test_a_function_cannot_have_another_device(device: str) -> None:
    program = f"""
    try:
        jax.jit(lambda x: x, compiler_options={{"tinyhlo_device": "{device}"}})(1.0)
    except Exception as error:
        print(error)
    """
    done = python(
        "-c", "import jax\n" + textwrap.dedent(program), JAX_PLATFORMS="tiny", TINYHLO_DEVICE="CPU"
    )
    assert f"device {device} for one function alone" in done.stdout, done.stderr


def test_no_such_device(device: str) -> None:
    done = jax_on(f"{device}:99", "print(jax.devices())")
    assert "there is no " in done.stderr and "99; there are: " in done.stderr


def test_no_driver() -> None:
    """One sentence, with what to install."""
    pytest.importorskip("pyopencl")
    done = jax_on("CL", "print(jax.devices())", OCL_ICD_VENDORS="/nowhere")
    assert "pip install 'tinyhlo[cl]'" in done.stderr.splitlines()[-1]
