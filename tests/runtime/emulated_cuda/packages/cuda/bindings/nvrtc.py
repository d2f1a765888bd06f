"""NVRTC's functions that Python calls: the "cubin" is a shared library of the host."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

HEADERS = Path(__file__).parents[3]
DRIVER = f"{os.environ['EMULATED_CUDA']}/libcuda.so.1"
# no contraction, as --fmad=false; C++17 as NVRTC is told
COMMAND = ("g++", "-std=c++17", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-march=native")
KERNEL = re.compile(r'^(?:KERNEL|FUNCTION|extern "C" __global__) void (\w+)\(', re.MULTILINE)


@dataclass
class Program:
    source: bytes
    image: bytes = b""
    log: bytes = b""


def nvrtcVersion() -> tuple[int, int, int]:
    """What images are kept by: they change with the header and the command."""
    return 0, 0, crc32((HEADERS / "cuda.h").read_bytes() + " ".join(COMMAND).encode())


def nvrtcCreateProgram(source: bytes, *_: object) -> tuple[int, Program]:
    return 0, Program(source)


def nvrtcCompileProgram(program: Program, count: int, options: list[bytes]) -> tuple[int]:
    text = program.source.decode()
    entries = [
        f'extern "C" void {name}_entry(void** where) {{ emulated_call({name}, where); }}'
        for name in KERNEL.findall(text)
    ]
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder) / "module.so"
        command = [*COMMAND, "-shared", "-fPIC", "-w", f"-I{HEADERS}", "-include", "cuda.h"]
        command += ["-x", "c++", "-", "-x", "none", DRIVER, "-o", str(image)]
        done = subprocess.run(
            command, input="\n".join([text, *entries]).encode(), capture_output=True, check=False
        )
        program.log = done.stderr
        program.image = b"" if done.returncode else image.read_bytes()
    return (done.returncode,)


def nvrtcGetProgramLogSize(program: Program) -> tuple[int, int]:
    return 0, len(program.log)


def nvrtcGetProgramLog(program: Program, log: bytes) -> tuple[int]:
    ctypes.memmove(log, program.log, len(program.log))
    return (0,)


def nvrtcGetCUBINSize(program: Program) -> tuple[int, int]:
    return 0, len(program.image)


def nvrtcGetCUBIN(program: Program, code: bytes) -> tuple[int]:
    ctypes.memmove(code, program.image, len(program.image))
    return (0,)


def nvrtcDestroyProgram(program: Program) -> tuple[int]:
    return (0,)
