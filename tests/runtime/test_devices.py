"""Devices beside the host: their runtime, and JAX on them. Skipped where there is none."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.runtime.device_checks import NAMES

ROOT = Path(__file__).resolve().parents[2]
DEVICES = ("CL",)


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(
        [sys.executable, *arguments],
        env=variables, capture_output=True, text=True, timeout=300, check=False, cwd=ROOT,
    )  # fmt: skip


@functools.cache
def missing(device: str) -> str:
    """Why there is no such device here; empty when there is one."""
    code = f"from tinyhlo.runtime.devices.device import open_device; open_device({device!r})"
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
    done = jax_on(device, "d = jax.devices()[0]; print(d, '|', d.device_kind)")
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
