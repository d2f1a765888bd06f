"""GPUs on a processor: generated text compiled by g++, and drivers that run its groups.

    python -m tests.runtime.emulated_gpu NV -m pytest tests/codegen    # TINYHLO_DEVICE=NV

`packages/` stands in for cuda-python, `cuda.cpp`, `hip.cpp`, `hiprtc.cpp` and `metal.cpp` for the
libraries of CUDA's driver, of ROCm and of Metal, `words.h` and `metal_stdlib` for what their
compilers know. Names in the environment alone
bring them in: the product has no switch.
"""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from tests.runtime.emulated_gpu import image

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
LIBRARIES = {
    "NV": {"cuda.cpp": "libcuda.so.1"},
    "AMD": {"hip.cpp": "libamdhip64.so", "hiprtc.cpp": "libhiprtc.so"},
    "METAL": {"metal.cpp": "libMetal.so"},
}


def lacking() -> str:
    """What this machine lacks for it; empty when nothing."""
    if platform.machine() != "x86_64":
        return "GPUs are emulated on x86-64 alone"
    return "" if shutil.which("g++") else "emulated GPUs need g++"


@functools.cache
def environment(*devices: str) -> dict[str, str]:
    """The variables with which a process finds these, and Python's path to them; none where this
    machine lacks something."""
    if lacking():
        return {}
    libraries = {device: built(device) for device in devices}
    folders = [str(library.parent) for library in libraries.values()]
    found = {
        "LD_LIBRARY_PATH": ":".join([*folders, os.environ.get("LD_LIBRARY_PATH", "")]),
        "PYTHONPATH": f"{HERE / 'packages'}:{ROOT}" if "NV" in devices else str(ROOT),
    }
    if "NV" in devices:
        found["EMULATED_CUDA"] = str(libraries["NV"])
    if "AMD" in devices:
        found["EMULATED_HIPRTC"] = f"{sys.executable} {HERE / 'image.py'} {libraries['AMD']}"
    if "METAL" in devices:
        found["EMULATED_METAL"] = f"{sys.executable} {HERE / 'image.py'} {libraries['METAL']}"
        found["EMULATED_METAL_IMAGES"] = str(libraries["METAL"].parent)
    found["EMULATED_VERSION"] = str(image.version())
    return found


def built(device: str) -> Path:
    """The driver's library, with the others of its API beside it."""
    folder = ROOT / "build" / "emulated_gpu" / device
    folder.mkdir(parents=True, exist_ok=True)
    for source, name in LIBRARIES[device].items():
        new = folder / f"{name}.{os.getpid()}"
        options = ("-std=c++17", "-O2", "-shared", "-fPIC", f"-Wl,-soname,{name}")
        subprocess.run(["g++", *options, HERE / source, "-o", new], check=True)
        new.replace(folder / name)  # processes at the same time
    image.precompile(folder.parent)
    return folder / next(iter(LIBRARIES[device].values()))
