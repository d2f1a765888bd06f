"""CUDA on a processor: generated text compiled by g++, and a driver that runs its groups.

    python -m tests.runtime.emulated_cuda -m pytest tests/codegen    # TINYHLO_DEVICE=NV

`packages/` stands in for cuda-python, `driver.cpp` for the driver's library, `cuda.h` for what
CUDA's compiler knows. Names in the environment alone bring them in: the product has no switch.
"""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
LIBRARY = "libcuda.so.1"


def lacking() -> str:
    """What this machine lacks for it; empty when nothing."""
    if platform.machine() != "x86_64":
        return "CUDA is emulated on x86-64 alone"
    return "" if shutil.which("g++") else "emulated CUDA needs g++"


@functools.cache
def environment() -> dict[str, str]:
    """The variables with which a process finds it, and Python's path to it; none where it lacks
    something."""
    if lacking():
        return {}
    folder = ROOT / "build" / "emulated_cuda"
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f"{LIBRARY}.{os.getpid()}"
    options = ("-std=c++17", "-O2", "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}")
    subprocess.run(["g++", *options, HERE / "driver.cpp", "-o", new], check=True)
    new.replace(folder / LIBRARY)  # processes at the same time
    return {
        "LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}",
        "PYTHONPATH": f"{HERE / 'packages'}:{ROOT}",
        "EMULATED_CUDA": str(folder),
    }
