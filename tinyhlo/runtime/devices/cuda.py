"""CUDA devices, by cuda-python: NVRTC compiles, the driver runs.

In: the number of a GPU. Out: its `Device`.

Buffers are managed memory: pointers that host and device both follow. The driver's functions that
native/cuda.c calls are taken from the driver's library. What is compiled is a cubin, code of the
one architecture, which needs no driver to compile and none of a certain age to run.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from tinyhlo.config import Config, cache_folder
from tinyhlo.errors import TinyhloError
from tinyhlo.runtime import core
from tinyhlo.runtime.cache import Cache, key_of
from tinyhlo.runtime.devices.device import Device, Functions, label_of
from tinyhlo.runtime.ffi import Words
from tinyhlo.target import Target
from tinyhlo.version import VERSION

INSTALL = "pip install 'tinyhlo[nv]', and NVIDIA's driver"
LIBRARY = "libcuda.so.1"
# Sums of products stay as they are written: some measure the error of the product before.
OPTIONS = ("--std=c++17", "--fmad=false")
LOG_LINES = 12  # of a failed build

# what follows the context and the stream in native/cuda.c's struct
FUNCTIONS = (
    "cuGetErrorName",
    "cuCtxSetCurrent",
    "cuLaunchKernel",
    "cuMemcpyAsync",
    "cuStreamSynchronize",
    "cuMemAllocManaged",
    "cuMemFree_v2",
)
HEAD_WORDS = 5


def imported() -> tuple[Any, Any]:
    """The driver and NVRTC of cuda-python. Raises TinyhloError where one of them is missing."""
    try:
        from cuda.bindings import driver, nvrtc  # type: ignore[reportAttributeAccessIssue]
    except ImportError as error:
        raise TinyhloError(f"device NV needs cuda-python: {INSTALL} ({error})") from None
    try:
        status = driver.cuInit(0)[0]
    except RuntimeError as error:  # there is no driver
        raise TinyhloError(f"device NV: there is no driver: {INSTALL} ({error})") from None
    if status:
        raise TinyhloError(f"device NV: the driver finds no GPU ({status.name}): {INSTALL}")
    return driver, nvrtc


def asked(driver: Any, function: str, *arguments: Any) -> Any:
    """What a function of the driver answers. Raises TinyhloError with its name for what failed."""
    status, *answer = getattr(driver, function)(*arguments)
    if status:
        raise TinyhloError(f"device NV: {function} failed: {status.name}")
    return answer[0] if answer else None


def names() -> list[str]:
    """What the driver calls the devices. Raises TinyhloError without cuda-python or any GPU."""
    driver, _ = imported()
    count = asked(driver, "cuDeviceGetCount")
    return [name_of(driver, asked(driver, "cuDeviceGet", k)) for k in range(count)]


def name_of(driver: Any, device: Any) -> str:
    return asked(driver, "cuDeviceGetName", 256, device).split(b"\0")[0].decode()


def open_device(number: int) -> Device:
    """Raises TinyhloError when there is no such device, or it cannot share the host's memory."""
    driver, _ = imported()
    found = names()
    if number >= len(found):
        raise TinyhloError(f"there is no CUDA device {number}; there are: {', '.join(found)}")
    device = asked(driver, "cuDeviceGet", number)

    def attribute(name: str) -> int:
        which = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return asked(driver, "cuDeviceGetAttribute", which, device)

    if not attribute("CONCURRENT_MANAGED_ACCESS"):
        raise TinyhloError(
            f"the CUDA device {found[number]} does not share memory with the host while it works "
            "(CONCURRENT_MANAGED_ACCESS), as tinyhlo needs it"
        )
    context = asked(driver, "cuDevicePrimaryCtxRetain", device)
    asked(driver, "cuCtxSetCurrent", context)
    flags = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
    stream = asked(driver, "cuStreamCreate", flags)
    library = ctypes.CDLL(LIBRARY)
    words = Words()
    struct = words.array(
        [
            *(0 for _ in range(HEAD_WORDS)),
            *(int(context), int(stream)),
            *(ctypes.cast(getattr(library, each), ctypes.c_void_p).value for each in FUNCTIONS),
        ]
    )
    core.library().tiny_cuda_open(struct.ctypes.data)
    architecture = architecture_of(attribute)

    def build(source: str, symbols: Sequence[str], config: Config) -> tuple[Functions, Any]:
        asked(driver, "cuCtxSetCurrent", context)
        module = asked(driver, "cuModuleLoadData", cubin(source, architecture, config))
        functions = {
            symbol: int(asked(driver, "cuModuleGetFunction", module, symbol.encode()))
            for symbol in symbols
        }
        return functions, module

    keepalive = (context, stream, library, words)
    return Device(
        label_of("NV", number), found[number], target_of(attribute), build, struct, keepalive
    )


def architecture_of(attribute: Callable[[str], int]) -> str:
    """As NVRTC calls it: sm_90."""
    return f"sm_{attribute('COMPUTE_CAPABILITY_MAJOR')}{attribute('COMPUTE_CAPABILITY_MINOR')}"


def target_of(attribute: Callable[[str], int]) -> Target:
    """What the driver says of the device."""
    return Target(
        device="NV",
        triple="",
        cpu=architecture_of(attribute),
        features="fp64 fp16 int64_atomics subgroups",
        vector_bytes=16,
        vector_registers=255,
        fma=True,
        half=True,
        packs=False,
        dots=(),
        scales=False,
        l1_bytes=attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        l2_bytes=attribute("L2_CACHE_SIZE"),
        l3_bytes=attribute("L2_CACHE_SIZE"),
        threads=attribute("MULTIPROCESSOR_COUNT"),
        group_items=attribute("MAX_THREADS_PER_BLOCK"),
        group_bytes=attribute("MAX_SHARED_MEMORY_PER_BLOCK"),
    )


def cubin(source: str, architecture: str, config: Config) -> bytes:
    """The machine code of source text: what an earlier process has left, or NVRTC's. Needs no
    driver.

    Raises TinyhloError with what NVRTC says.
    """
    from cuda.bindings import nvrtc  # type: ignore[reportAttributeAccessIssue]

    version = str(asked_nvrtc(nvrtc, "nvrtcVersion"))
    options = (*OPTIONS, f"--gpu-architecture={architecture}")
    cache = Cache(cache_folder(config) / "cuda") if config.cache else None
    key = key_of((VERSION, version, *options, source))
    code = cache.load(key) if cache else None
    if code is not None:
        return code
    program = asked_nvrtc(nvrtc, "nvrtcCreateProgram", source.encode(), b"", 0, None, None)
    try:
        given = [option.encode() for option in options]
        if nvrtc.nvrtcCompileProgram(program, len(given), given)[0]:
            log = bytes(asked_nvrtc(nvrtc, "nvrtcGetProgramLogSize", program))
            nvrtc.nvrtcGetProgramLog(program, log)
            lines = log.decode(errors="replace").strip("\0\n ").splitlines()[:LOG_LINES]
            raise TinyhloError("\n".join([f"NVRTC refuses the code for {architecture}:", *lines]))
        code = bytes(asked_nvrtc(nvrtc, "nvrtcGetCUBINSize", program))
        asked_nvrtc(nvrtc, "nvrtcGetCUBIN", program, code)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    if cache:
        cache.store(key, code)
    return code


def asked_nvrtc(nvrtc: Any, function: str, *arguments: Any) -> Any:
    """What a function of NVRTC answers. Raises TinyhloError for what failed."""
    status, *answer = getattr(nvrtc, function)(*arguments)
    if status:
        raise TinyhloError(f"device NV: {function} failed: {status.name}")
    return answer[0] if len(answer) == 1 else tuple(answer)
