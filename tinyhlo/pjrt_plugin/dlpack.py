"""DLPack, by which other libraries read arrays where they lie.

    np.from_dlpack(x), torch.from_dlpack(x)

jaxlib hands out arrays of its own kinds of devices only. Ours lie in the host's memory: so what is
handed out is the same memory as an array of the CPU's, or of NumPy's in a process without one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

METHODS = ("__dlpack__", "__dlpack_device__")


def install(platform: str) -> None:
    """Put ours before JAX's methods. What a version of JAX does not have is left out."""
    from jax._src.array import ArrayImpl

    for name in METHODS:
        theirs = getattr(ArrayImpl, name, None)
        if theirs is not None:
            setattr(ArrayImpl, name, method(platform, name, theirs))


def method(platform: str, name: str, theirs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def ours(self: Any, *given: Any, **named: Any) -> Any:
        devices = self.devices()
        if len(devices) == 1 and next(iter(devices)).platform == platform:
            return getattr(on_host(self), name)(*given, **named)
        return theirs(self, *given, **named)

    return ours


def on_host(array: Any) -> Any:
    """The same memory as an array that can be handed out."""
    import jax

    try:
        return jax.device_put(array, jax.local_devices(backend="cpu")[0])
    except RuntimeError:  # JAX_PLATFORMS=tiny
        return np.asarray(array)
