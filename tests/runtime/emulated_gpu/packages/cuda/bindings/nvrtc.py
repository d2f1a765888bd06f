"""NVRTC's functions that Python calls: the "cubin" is a shared library of the host."""

from __future__ import annotations

import ctypes
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.runtime.emulated_gpu import image


@dataclass
class Program:
    source: bytes
    image: bytes = b""
    log: bytes = b""


def nvrtcVersion() -> tuple[int, int, int]:
    return 0, 0, image.version()


def nvrtcCreateProgram(source: bytes, *_: object) -> tuple[int, Program]:
    return 0, Program(source)


def nvrtcCompileProgram(program: Program, count: int, options: list[bytes]) -> tuple[int]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "module.so"
        done = image.compiled(os.environ["EMULATED_CUDA"], program.source.decode(), path)
        program.log = done.stderr.encode()
        program.image = b"" if done.returncode else path.read_bytes()
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
