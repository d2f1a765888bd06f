"""The driver's functions that Python calls: each gives a status, and what it answers."""

from __future__ import annotations

import _ctypes
import ctypes
import itertools
import tempfile
from enum import Enum, IntEnum
from pathlib import Path

NAME = b"emulated H200"
_streams = itertools.count(1)


class CUdevice_attribute(Enum):  # noqa: N801
    """With what each says of an H200."""

    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 9
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 0
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 233472
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 49152
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 232448
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1024
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 132
    CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 60 << 20


class CUfunction_attribute(Enum):  # noqa: N801
    """With the least that is worth it: a kernel can have this by itself."""

    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 49152


class CUstream_flags(IntEnum):  # noqa: N801
    CU_STREAM_NON_BLOCKING = 1


def cuInit(flags: int) -> tuple[int]:
    return (0,)


def cuDeviceGetCount() -> tuple[int, int]:
    return 0, 1


def cuDeviceGet(number: int) -> tuple[int, int]:
    return 0, number


def cuDeviceGetName(length: int, device: int) -> tuple[int, bytes]:
    return 0, NAME.ljust(length, b"\0")


def cuDeviceGetAttribute(attribute: CUdevice_attribute, device: int) -> tuple[int, int]:
    return 0, attribute.value


def cuDeviceTotalMem(device: int) -> tuple[int, int]:
    return 0, 4 << 30


def cuDevicePrimaryCtxRetain(device: int) -> tuple[int, int]:
    return 0, 1


def cuCtxSetCurrent(context: int) -> tuple[int]:
    return (0,)


def cuStreamCreate(flags: int) -> tuple[int, int]:
    return 0, next(_streams)


def cuModuleLoadData(image: bytes) -> tuple[int, ctypes.CDLL]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "module.so"
        path.write_bytes(image)
        return 0, ctypes.CDLL(str(path))


def cuModuleUnload(module: ctypes.CDLL) -> tuple[int]:
    _ctypes.dlclose(module._handle)
    return (0,)


def cuModuleGetFunction(module: ctypes.CDLL, name: bytes) -> tuple[int, int | None]:
    entry = getattr(module, f"{name.decode()}_entry")
    return 0, ctypes.cast(entry, ctypes.c_void_p).value


def cuFuncSetAttribute(function: int, attribute: CUfunction_attribute, value: int) -> tuple[int]:
    most = CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN.value
    return (0 if attribute.value < value <= most else 1,)
