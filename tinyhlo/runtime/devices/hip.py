"""AMD's GPUs by HIP: hiprtc compiles, the runtime runs. Both are ROCm's, bound by ctypes.

In: the number of a GPU. Out: its `Device`.

HIP's driver functions have the shapes of CUDA's, so native/stream.c calls them too.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any

from tinyhlo.codegen.grid.code import DeviceCode
from tinyhlo.config import Config
from tinyhlo.errors import TinyhloError
from tinyhlo.runtime.cache import cache_of, kept, key_of
from tinyhlo.runtime.devices import stream
from tinyhlo.runtime.devices.device import Device, Functions, label_of, name_of, refused
from tinyhlo.target import MFMA, WMMA
from tinyhlo.version import VERSION

API = "HIP"
INSTALL = "install ROCm 6 or later; ROCM_PATH names its folder where that is not /opt/rocm"
LIBRARIES = ("amdhip64", "hiprtc")
VERSIONS = ("", ".7", ".6")
# Sums of products stay as they are written; square roots and quotients are rounded correctly.
OPTIONS = ("-std=c++17", "-O3", "-ffp-contract=off")
REGISTERS = 256  # of an item

# as native/stream.c lists them
FUNCTIONS = (
    "hipDrvGetErrorName",
    "hipSetDevice",
    "hipModuleLaunchKernel",
    "hipMemcpyDtoDAsync",
    "hipMemcpyHtoDAsync",
    "hipMemcpyDtoHAsync",
    "hipStreamSynchronize",
    "hipMalloc",
    "hipFree",
)
# hipDeviceAttribute_t, by the names that CUDA has for them
ATTRIBUTES = {
    "L2_CACHE_SIZE": 19,
    "MAX_THREADS_PER_BLOCK": 56,
    "MULTIPROCESSOR_COUNT": 63,
    "MAX_SHARED_MEMORY_PER_BLOCK": 74,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 10002,
}
MATRICES = {"gfx90a": MFMA, "gfx94": MFMA, "gfx95": MFMA, "gfx11": WMMA}
PROPERTIES = "hipGetDevicePropertiesR0600"  # of ROCm 6 and 7; the struct was another one before
PROPERTIES_BYTES, ARCHITECTURE_AT = 4096, 1160  # enough for the struct; its gcnArchName
NON_BLOCKING = 1


@cache
def libraries() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    """HIP's runtime and hiprtc of one ROCm. Raises TinyhloError where there is none."""
    folders = ("", f"{os.environ.get('ROCM_PATH', '/opt/rocm')}/lib/")
    missing: OSError | None = None
    for folder in folders:
        for version in VERSIONS:
            try:
                hip, hiprtc = (ctypes.CDLL(f"{folder}lib{n}.so{version}") for n in LIBRARIES)
            except OSError as error:
                missing = missing or error
                continue
            if hasattr(hip, PROPERTIES):
                return hip, hiprtc
    raise TinyhloError(f"device AMD needs ROCm: {INSTALL} ({missing or 'this one is older'})")


def asked(hip: ctypes.CDLL, function: str, *arguments: Any) -> None:
    """Raises TinyhloError with HIP's name for what failed."""
    status = getattr(hip, function)(*arguments)
    if status:
        name = ctypes.c_char_p(b"")
        hip.hipDrvGetErrorName(status, ctypes.byref(name))
        said = (name.value or b"").decode()
        raise TinyhloError(f"device AMD: {function} failed: {said} ({status})")


def answer(hip: ctypes.CDLL, function: str, kind: type[Any], *arguments: Any) -> Any:
    """What a function leaves where its first argument points."""
    result = kind()
    asked(hip, function, ctypes.byref(result), *arguments)
    return result


def imported() -> ctypes.CDLL:
    """HIP's runtime. Raises TinyhloError where there is none, or no GPU."""
    hip, _ = libraries()
    if status := hip.hipInit(0):
        raise TinyhloError(f"device AMD: ROCm finds no GPU ({status})")
    return hip


def names() -> list[str]:
    """What HIP calls the devices. Raises TinyhloError without ROCm or any GPU."""
    hip = imported()
    found: list[str] = []
    for number in range(answer(hip, "hipGetDeviceCount", ctypes.c_int).value):
        text = ctypes.create_string_buffer(256)
        asked(hip, "hipDeviceGetName", text, len(text), number)
        found.append(text.value.decode())
    return found


def open_device(number: int) -> Device:
    """Raises TinyhloError when there is no such device."""
    hip = imported()
    name = name_of(API, names(), number)

    def attribute(name: str) -> int:
        which = ATTRIBUTES[name]
        return answer(hip, "hipDeviceGetAttribute", ctypes.c_int, which, number).value

    asked(hip, "hipSetDevice", number)
    queue = answer(hip, "hipStreamCreateWithFlags", ctypes.c_void_p, NON_BLOCKING)
    architecture = architecture_of(hip, number)
    matrices = matrices_of(architecture)
    target = stream.target_of("AMD", architecture, matrices, REGISTERS, attribute)

    def build(code: DeviceCode, config: Config) -> tuple[Functions, Any]:
        asked(hip, "hipSetDevice", number)
        image = code_object(code.source, target.cpu, config)
        loaded = answer(hip, "hipModuleLoadData", ctypes.c_void_p, image)
        module = stream.Module(loaded, hip.hipModuleUnload, opened)
        handles = {
            symbol: answer(
                hip, "hipModuleGetFunction", ctypes.c_void_p, module.handle, symbol.encode()
            ).value
            for symbol in code.dispatches
        }
        functions, words = stream.called(handles, code.dispatches)
        return functions, (module, image, words)

    functions = [getattr(hip, each) for each in FUNCTIONS]
    label, handles = label_of("AMD", number), (number, queue.value)
    memory = answer(hip, "hipDeviceTotalMem", ctypes.c_size_t, number).value
    opened = stream.stream_device(API, label, name, target, build, memory, handles, functions, hip)
    return opened


def matrices_of(architecture: str) -> str:
    """The instruction for products of 16-bit floats; empty for others, RDNA 4 among them, whose
    fragments are laid out in another way."""
    found = (matrices for start, matrices in MATRICES.items() if architecture.startswith(start))
    return next(found, "")


def architecture_of(hip: ctypes.CDLL, number: int) -> str:
    """As hiprtc calls it, with what is switched on: gfx942:sramecc+:xnack-."""
    properties = ctypes.create_string_buffer(PROPERTIES_BYTES)
    asked(hip, PROPERTIES, properties, number)
    return properties.raw[ARCHITECTURE_AT:].split(b"\0")[0].decode()


def code_object(source: str, architecture: str, config: Config) -> bytes:
    """The machine code of source text. Raises TinyhloError with what hiprtc says."""
    _, hiprtc = libraries()
    options = (*OPTIONS, f"--offload-arch={architecture}")
    version = (ctypes.c_int(), ctypes.c_int())
    hiprtc.hiprtcVersion(*map(ctypes.byref, version))

    def compiled() -> bytes:
        program = ctypes.c_void_p()
        text = source.encode()
        asked_hiprtc(hiprtc, "hiprtcCreateProgram", ctypes.byref(program), text, b"", 0, None, None)
        try:
            given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            if hiprtc.hiprtcCompileProgram(program, len(options), given):
                text = read(hiprtc, "ProgramLog", program).decode(errors="replace")
                raise refused(f"hiprtc refuses the code for {architecture}", text)
            return read(hiprtc, "Code", program)
        finally:
            hiprtc.hiprtcDestroyProgram(ctypes.byref(program))

    key = key_of((VERSION, *(str(number.value) for number in version), *options, source))
    return kept(cache_of("hip", config), key, compiled)


def read(hiprtc: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> bytes:
    """Bytes that hiprtc has made, whose number it says beforehand."""
    size = ctypes.c_size_t()
    asked_hiprtc(hiprtc, f"hiprtcGet{what}Size", program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    asked_hiprtc(hiprtc, f"hiprtcGet{what}", program, text)
    return text.raw


def asked_hiprtc(hiprtc: ctypes.CDLL, function: str, *arguments: Any) -> None:
    """Raises TinyhloError for what failed."""
    status = getattr(hiprtc, function)(*arguments)
    if status:
        raise TinyhloError(f"device AMD: {function} failed ({status})")
