"""DLPack, by which other libraries read arrays where they lie.

    np.from_dlpack(x), torch.from_dlpack(x), jnp.from_dlpack(tensor)

jaxlib hands out arrays of its own kinds of devices only. Ours lie in the host's memory: so what is
handed out is the same memory as an array of the CPU's, or of NumPy's in a process without one
(JAX_PLATFORMS=tiny). There, what comes in goes by NumPy too; of types that NumPy has no name for in
DLPack, such as bfloat16, it is told that they are unsigned integers. An array of ours that comes in
stays on its device.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tinyhlo.runtime.capsules import address_in, name_of

METHODS = ("__dlpack__", "__dlpack_device__")
HOST = 1  # DLPack's number of the host's memory

# What DLPack (dlpack.h, 1.1) calls the types that NumPy does not know, by their names in ml_dtypes.
CODES = {
    "bfloat16": 4,
    "float8_e3m4": 7,
    "float8_e4m3": 8,
    "float8_e4m3b11fnuz": 9,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}
NAMES = {code: name for name, code in CODES.items()}
UNSIGNED = 1
# Where the code of the type lies, by the name of the capsule.
CODE_AT: dict[bytes | None, int] = {b"dltensor": 20, b"dltensor_versioned": 52}


def install(platform: str) -> None:
    """Put ours before JAX's methods. What a version of JAX does not have is left out."""
    import jax.dlpack
    from jax._src.array import ArrayImpl

    for name in METHODS:
        theirs = getattr(ArrayImpl, name, None)
        if theirs is not None:
            setattr(ArrayImpl, name, method(platform, name, theirs))
    jax.dlpack.from_dlpack = reading(platform, jax.dlpack.from_dlpack)


def method(platform: str, name: str, theirs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def ours(self: Any, *given: Any, **named: Any) -> Any:
        if own_device(platform, self) is not None:
            return getattr(on_host(self), name)(*given, **named)
        return theirs(self, *given, **named)

    return ours


def own_device(platform: str, array: Any) -> Any:
    """The one device of ours that an array of JAX lies on, else None."""
    from jax._src.array import ArrayImpl

    if not isinstance(array, ArrayImpl) or len(array.devices()) != 1:
        return None
    (device,) = array.devices()
    return device if device.platform == platform else None


def on_host(array: Any) -> Any:
    """The same memory as an array that can be handed out."""
    import jax

    try:
        return jax.device_put(array, jax.local_devices(backend="cpu")[0])
    except RuntimeError:  # there is none
        return HandedOut(np.asarray(array))


def reading(platform: str, theirs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def ours(external_array: Any, device: Any = None, copy: bool | None = None) -> Any:
        import jax
        import jax.numpy as jnp
        from jax._src import xla_bridge

        own = own_device(platform, external_array)
        if own is not None and getattr(device, "device_set", {device or own}) == {own}:
            return jnp.array(external_array, device=device) if copy else external_array
        known = hasattr(external_array, "__dlpack_device__")
        elsewhere = not known or external_array.__dlpack_device__()[0] != HOST
        if "cpu" in xla_bridge.backends() or elsewhere:
            return theirs(external_array, device=device, copy=copy)
        array = taken_in(external_array)
        return jnp.array(array, device=device) if copy else jax.device_put(array, device)

    return ours


class HandedOut:
    """An array of NumPy's for readers of DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return HOST, 0

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None, **named: Any) -> Any:
        array, name = self.array, self.array.dtype.name
        if name in CODES:
            array = array.view(f"u{array.itemsize}")
        if max_version is None:  # a reader that knows of no arrays that are not to be written
            array = np.asarray(Writable(array))
        else:
            named["max_version"] = max_version
        capsule = array.__dlpack__(**named)
        if name in CODES:
            code_of(capsule).value = CODES[name]
        return capsule


class Writable:
    """An array by NumPy's other protocol, which lets it be written."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        place, _ = array.__array_interface__["data"]
        self.__array_interface__ = array.__array_interface__ | {"data": (place, False)}


class TakenIn:
    """Another library's array for NumPy; `name` is its type, where NumPy has none for it."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.name: str | None = None

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **named: Any) -> Any:
        capsule = self.array.__dlpack__(**named)
        code = code_of(capsule)
        self.name = NAMES.get(code.value)
        if self.name is not None:
            code.value = UNSIGNED
        return capsule


def taken_in(array: Any) -> np.ndarray:
    """The same memory as an array of NumPy's."""
    read = TakenIn(array)
    found = np.from_dlpack(read)
    return found if read.name is None else found.view(getattr(ml_dtypes, read.name))


def code_of(capsule: Any) -> ctypes.c_uint8:
    """The number of an array's type in a capsule that nobody has read yet."""
    return ctypes.c_uint8.from_address(address_in(capsule) + CODE_AT[name_of(capsule)])
