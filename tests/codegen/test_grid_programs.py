"""Lowerings for grids of work-items: right on the devices there are, and C that NVRTC takes, and
clang for AMD's GPUs and as Metal."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.codegen.grid_programs import PROGRAMS, code_of
from tests.codegen.harness import TARGET
from tests.runtime.test_devices import DEVICES, EMULATED, missing, python
from tinyhlo.codegen.c.kernels import Parameter, kernel_text
from tinyhlo.codegen.c.prelude import PRELUDES
from tinyhlo.runtime.devices.metal import COPIES

NV = replace(
    TARGET, device="NV", features="fp64 warps wide apart mma", packs=False, scales=False, dots=(),
    matrices=(), vector_bytes=16, threads=128, group_items=1024, group_bytes=48 << 10,
)  # fmt: skip
AMD = replace(NV, device="AMD", features="fp64 warps wide apart", threads=304, group_bytes=64 << 10)
ARCHITECTURES = {"gfx942": "fp64 warps wide apart mfma", "gfx1100": "fp64 warps wide apart wmma"}
METAL = replace(NV, device="METAL", features="", threads=10, group_bytes=32 << 10)
CLANG = shutil.which("clang-19")
# as hiprtc, whose maths are clang's own
HIP = (
    *("-x", "hip", "--cuda-device-only", "-nogpuinc", "-nogpulib", "-D__HIPCC_RTC__"),
    *("-include", "__clang_hip_runtime_wrapper.h"),
    *("-include", str(Path(__file__).parent / "hip_words.h")),
    *("-std=c++17", "-O3", "-ffp-contract=off"),
)

# Metal's compiler is Apple's: its words, with address spaces, for clang's C++
MSL = (
    *("-x", "c++", "-std=c++14", "-fsyntax-only", "-D__METAL_VERSION__=320"),
    *("-I", str(Path(__file__).parent / "metal_words"), "-Wall", "-Werror", "-Wno-unused"),
    *("-Wno-unknown-attributes", "-Wno-unknown-pragmas"),
)

# what is emulated has many units already
ON_DEVICES = [
    (device, kind)
    for device in (*DEVICES, "WEBGPU")
    for kind in ("own", "many units")
    if kind == "own" or device not in (*EMULATED, "QCOM")
]


def run(device: str, kind: str) -> subprocess.CompletedProcess[str]:
    """On OpenCL once more where it does not end: now and then Intel's compiler goes round in a pass
    of its own (ReduceCrossBarrierValues), on text that it takes the other times."""
    module = ("-m", "tests.codegen.grid_programs", device, kind)
    try:
        return python(*module, seconds=200 if device == "CL" else 600, JAX_PLATFORMS="cpu")
    except subprocess.TimeoutExpired:
        if device != "CL":
            raise
        return python(*module, seconds=600, JAX_PLATFORMS="cpu")


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[Any]]]:
    """A process for each test of `test_on_a_device` that is to run, one a core at a time: most of
    the time of each is a compiler's, on one thread."""
    tests = [t for t in request.session.items if t.name.startswith("test_on_a_device[")]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield {
            f"{device} {kind}": pool.submit(run, device, kind)
            for device, kind in ON_DEVICES
            if not missing(device) and any(f"[{device}-{kind}]" in t.name for t in tests)
        }


@pytest.mark.parametrize(("device", "kind"), ON_DEVICES)
def test_on_a_device(runs: dict[str, Future[Any]], device: str, kind: str) -> None:
    if missing(device):
        pytest.skip(missing(device))
    done = runs[f"{device} {kind}"].result()
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


@pytest.mark.skipif(CLANG is None, reason="there is no clang-19")
@pytest.mark.parametrize("title", PROGRAMS)
def test_clang_takes_it_for_amd(title: str) -> None:
    """To assembly, where functions of ROCm's libraries may be missing yet; into its registers."""
    for arch, features in ARCHITECTURES.items():
        code = code_of(PROGRAMS[title], replace(AMD, features=features))
        command = [str(CLANG), *HIP, f"--offload-arch={arch}", "-S", "-", "-o", "-"]
        done = subprocess.run(
            command, input=code.source, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        spills = re.findall(r"\.vgpr_spill_count: +(\d+)", done.stdout)
        assert spills and not any(map(int, spills)), (arch, spills)


def clang_as_metal(source: str) -> str:
    """What it says against it."""
    command = [str(CLANG), *MSL, "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True).stderr


@pytest.mark.skipif(CLANG is None, reason="there is no clang-19")
@pytest.mark.parametrize("title", PROGRAMS)
def test_clang_takes_it_as_metal(title: str) -> None:
    assert not clang_as_metal(code_of(PROGRAMS[title], METAL).source)


@pytest.mark.skipif(CLANG is None, reason="there is no clang-19")
def test_clang_takes_copies_as_metal() -> None:
    assert not clang_as_metal(COPIES)


WRONG_METAL = {  # what clang says, or a part of it
    "f32* p = given.x0;": "cannot initialize a variable of type 'f32 *'",
    "given.x0[0] = expm1(1.0f);": "undeclared identifier 'expm1'",
    "x0[0] = (double)1.0f;": "Metal has no double",
}


@pytest.mark.skipif(CLANG is None, reason="there is no clang-19")
@pytest.mark.parametrize("line", WRONG_METAL)
def test_clang_sees_what_metal_refuses(line: str) -> None:
    kernel = kernel_text("METAL", "k", 256, [Parameter("GLOBAL f32*", "x0")], [line])
    assert WRONG_METAL[line] in clang_as_metal(PRELUDES["METAL"] + kernel)
