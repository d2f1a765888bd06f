"""CUDA devices, by cuda-python: NVRTC compiles, the driver runs.

In: the number of a GPU. Out: its `Device`.

The driver's functions that native/stream.c calls are taken from the driver's library. What is
compiled is a cubin, code of the one architecture, which needs no driver to compile and none of a
certain age to run.
"""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from tinyhlo.codegen.grid.code import DeviceCode
from tinyhlo.config import Config
from tinyhlo.errors import TinyhloError
from tinyhlo.runtime.cache import cache_of, kept, key_of
from tinyhlo.runtime.devices import stream
from tinyhlo.runtime.devices.device import Device, Functions, label_of, name_of, refused
from tinyhlo.runtime.devices.stream import Attribute
from tinyhlo.runtime.processors import thread_count
from tinyhlo.target import MMA, WGMMA, Target
from tinyhlo.version import VERSION

API = "CUDA"
INSTALL = "pip install 'tinyhlo[nv]', and NVIDIA's driver"
LIBRARY = "libcuda.so.1"
# Sums of products stay as they are written: some measure the error of the product before.
OPTIONS = ("--std=c++17", "--fmad=false")
REGISTERS = 255  # of an item

# as native/stream.c lists them
FUNCTIONS = (
    "cuGetErrorName",
    "cuCtxSetCurrent",
    "cuLaunchKernel",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuStreamSynchronize",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
)
# the same for graphs, which drivers have from CUDA 11.4 on
RECORDING = (
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphExecDestroy",
    "cuGraphDestroy",
)


def imported() -> Any:
    """The driver of cuda-python. Raises TinyhloError where that, or its NVRTC, is missing."""
    try:
        from cuda.bindings import driver, nvrtc  # type: ignore  # noqa: F401
    except ImportError as error:
        raise TinyhloError(f"device NV needs cuda-python: {INSTALL} ({error})") from None
    try:
        status = driver.cuInit(0)[0]
    except RuntimeError as error:  # there is no driver
        raise TinyhloError(f"device NV: there is no driver: {INSTALL} ({error})") from None
    if status:
        raise TinyhloError(f"device NV: the driver finds no GPU ({status.name}): {INSTALL}")
    return driver


def asked(driver: Any, function: str, *arguments: Any) -> Any:
    """What a function of the driver, or of NVRTC, answers.

    Raises TinyhloError with its name for what failed.
    """
    status, *answer = getattr(driver, function)(*arguments)
    if status:
        raise TinyhloError(f"device NV: {function} failed: {status.name}")
    return answer[0] if len(answer) == 1 else tuple(answer)


def names() -> list[str]:
    """What the driver calls the devices. Raises TinyhloError without cuda-python or any GPU."""
    driver = imported()
    count = asked(driver, "cuDeviceGetCount")
    found = (asked(driver, "cuDeviceGet", number) for number in range(count))
    texts = (asked(driver, "cuDeviceGetName", 256, device) for device in found)
    return [text.split(b"\0")[0].decode() for text in texts]


def open_device(number: int) -> Device:
    """Raises TinyhloError when there is no such device."""
    driver = imported()
    name = name_of(API, names(), number)
    device = asked(driver, "cuDeviceGet", number)

    def attribute(name: str) -> int:
        which = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return asked(driver, "cuDeviceGetAttribute", which, device)

    context = asked(driver, "cuDevicePrimaryCtxRetain", device)
    asked(driver, "cuCtxSetCurrent", context)
    non_blocking = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
    queue, records = (asked(driver, "cuStreamCreate", non_blocking) for _ in range(2))
    target = target_of(attribute)

    def module_of(image: bytes) -> stream.Module:
        loaded = asked(driver, "cuModuleLoadData", image)
        return stream.Module(loaded, driver.cuModuleUnload, opened)

    def build(code: DeviceCode, config: Config) -> tuple[Functions, Any]:
        parts, calls = code.parts(thread_count(config)), code.dispatches
        with ThreadPoolExecutor(len(parts)) as pool:
            images = [*pool.map(lambda part: cubin(part[0], target.cpu, config), parts)]
        asked(driver, "cuCtxSetCurrent", context)
        modules = [module_of(image) for image in images]
        most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        handles: dict[str, int] = {}
        for module, (_, symbols) in zip(modules, parts, strict=True):
            for symbol in symbols:
                function = asked(driver, "cuModuleGetFunction", module.handle, symbol.encode())
                if bytes_ := calls[symbol].asked_bytes:
                    asked(driver, "cuFuncSetAttribute", function, most, bytes_)
                handles[symbol] = int(function)
        functions, words = stream.called(handles, calls)
        return functions, (modules, words)

    library = ctypes.CDLL(LIBRARY)
    functions = [getattr(library, each) for each in FUNCTIONS]
    recording = None
    if all(hasattr(library, each) for each in RECORDING):
        recording = stream.Recording(int(records), [getattr(library, each) for each in RECORDING])
    handles, alive = (int(context), int(queue)), (context, queue, records, library)
    label, memory = label_of("NV", number), asked(driver, "cuDeviceTotalMem", device)
    opened = stream.stream_device(
        API, label, name, target, build, memory, handles, functions, alive, recording
    )
    return opened


def target_of(attribute: Attribute) -> Target:
    """What the driver says of the device; the architecture as NVRTC calls it: sm_90a, the one whose
    code runs on no later one."""
    major, minor = (attribute(f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR"))
    matrices, own = (f"{MMA} {WGMMA}", "a") if major == 9 else (MMA if major >= 8 else "", "")
    target = stream.target_of("NV", f"sm_{major}{minor}{own}", matrices, REGISTERS, attribute)
    return replace(target, asked_bytes=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"))


def cubin(source: str, architecture: str, config: Config) -> bytes:
    """The machine code of source text. Needs no driver. Raises TinyhloError with what NVRTC
    says."""
    from cuda.bindings import nvrtc  # type: ignore[reportAttributeAccessIssue]

    options = (*OPTIONS, f"--gpu-architecture={architecture}")
    version = str(asked(nvrtc, "nvrtcVersion"))

    def compiled() -> bytes:
        program = asked(nvrtc, "nvrtcCreateProgram", source.encode(), b"", 0, None, None)
        try:
            given = [option.encode() for option in options]
            if nvrtc.nvrtcCompileProgram(program, len(given), given)[0]:
                log = bytes(asked(nvrtc, "nvrtcGetProgramLogSize", program))
                nvrtc.nvrtcGetProgramLog(program, log)
                text = log.decode(errors="replace")
                raise refused(f"NVRTC refuses the code for {architecture}", text)
            code = bytes(asked(nvrtc, "nvrtcGetCUBINSize", program))
            asked(nvrtc, "nvrtcGetCUBIN", program, code)
            return code
        finally:
            nvrtc.nvrtcDestroyProgram(program)

    key = key_of((VERSION, version, *options, source))
    return kept(cache_of("cuda", config), key, compiled)
