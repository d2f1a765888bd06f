"""Lowerings for grids of work-items: right on the devices there are, and C that NVRTC takes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.codegen.grid_programs import PROGRAMS, code_of
from tests.codegen.harness import TARGET
from tests.runtime.test_devices import DEVICES, EMULATED, missing, python

NV = replace(
    TARGET, device="NV", features="fp64", packs=False, scales=False, dots=(), vector_bytes=16,
    threads=128, group_items=1024, group_bytes=48 << 10,
)  # fmt: skip


# what is emulated has many units already
ON_DEVICES = [
    (device, kind)
    for device in (*DEVICES, "WEBGPU")
    for kind in ("own", "many units")
    if (device, kind) != ("NV", "many units") or not EMULATED
]


@pytest.mark.parametrize(("device", "kind"), ON_DEVICES)
def test_on_a_device(device: str, kind: str) -> None:
    if missing(device):
        pytest.skip(missing(device))
    done = python("-m", "tests.codegen.grid_programs", device, kind, JAX_PLATFORMS="cpu")
    assert done.returncode == 0, done.stderr
    wrong = json.loads(done.stdout.splitlines()[-1])
    assert not wrong, "\n".join(f"{title}: {text}" for title, text in wrong.items())


@pytest.mark.parametrize("title", PROGRAMS)
def test_nvrtc_takes_it(title: str) -> None:
    """To machine code, which needs no driver."""
    core = pytest.importorskip("cuda.core")
    code = code_of(PROGRAMS[title], NV)
    for arch in ("sm_80", "sm_90"):
        options = core.ProgramOptions(arch=arch, std="c++17")
        assert core.Program(code.source, "c++", options).compile("cubin").code
