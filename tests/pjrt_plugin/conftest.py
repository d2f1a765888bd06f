"""The platform "tiny" in this process, and helpers for processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import jax
import pytest

from tinyhlo.pjrt_plugin import initialize

ROOT = Path(__file__).resolve().parents[2]

initialize()


@pytest.fixture(scope="session")
def tiny() -> jax.Device:
    return jax.devices("tiny")[0]


@pytest.fixture
def python() -> Callable[..., str]:
    """Run a program in a fresh interpreter with JAX_PLATFORMS=tiny; returns what it prints.

    The run must end with exit code 0.
    """

    def run(program: str, **environment: str) -> str:
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        variables = os.environ | {"JAX_PLATFORMS": "tiny", "PYTHONPATH": path} | environment
        code = "from tinyhlo.pjrt_plugin import initialize; initialize()\n"
        result = subprocess.run(
            [sys.executable, "-c", code + textwrap.dedent(program)],
            env=variables,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert result.returncode == 0, (result.returncode, result.stdout, result.stderr)
        return result.stdout

    return run
