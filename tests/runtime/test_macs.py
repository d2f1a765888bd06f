"""Macs without one: what asks the system, and whether programs and the C library compile for
them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from tests.codegen.grid_programs import PROGRAMS, module_of
from tests.codegen.native import CONFIG
from tinyhlo.ir.simplify import simplify
from tinyhlo.runtime import processors
from tinyhlo.runtime.compile import compile_program
from tinyhlo.schedule import schedule
from tinyhlo.target import Target

ROOT = Path(__file__).resolve().parents[2]
MACH_O = b"\xcf\xfa\xed\xfe"  # of 64 bits


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch) -> Target:
    """LLVM knows its processor by name, and may list no features."""
    with monkeypatch.context() as system:
        system.setattr(llvm, "get_process_triple", lambda: "arm64-apple-darwin24.0.0")
        system.setattr(llvm, "get_host_cpu_name", lambda: "apple-m1")
        system.setattr(llvm, "get_host_cpu_features", llvm.FeatureMap)
        return processors.host_target.__wrapped__(2)


def test_the_processor(mac: Target) -> None:
    assert (mac.fma, mac.half, mac.vector_registers) == (True, True, 32)


@pytest.mark.parametrize("title", list(PROGRAMS)[::9])
def test_programs_compile_for_it(mac: Target, title: str) -> None:
    module = module_of(PROGRAMS[title])
    program = schedule(simplify(module.graph), module.name, module.aliases, mac)
    assert all(piece.startswith(MACH_O) for piece in compile_program(program, mac, CONFIG).pieces)


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="there is no ziglang")
@pytest.mark.parametrize("architecture", ["aarch64", "x86_64"])
def test_the_library_compiles(architecture: str, tmp_path: Path) -> None:
    """Without a warning, against the headers of macOS that ziglang has."""
    compiler = f"{sys.executable} -m ziglang cc -target {architecture}-macos -Werror"
    paths = f"{ROOT / 'packaging'}:{os.environ.get('PYTHONPATH', '')}"
    program = "import sys; sys.platform = 'darwin'; import native; native.compile_to(sys.argv[1])"
    made = tmp_path / "libtinyhlo.dylib"
    subprocess.run(
        [sys.executable, "-c", program, str(made)],
        env=os.environ | {"CC": compiler, "PYTHONPATH": paths}, check=True,
    )  # fmt: skip
    assert made.read_bytes().startswith(MACH_O)
