"""DLPack, by which other libraries read arrays where they lie.

    np.from_dlpack(x), torch.from_dlpack(x), jnp.from_dlpack(tensor)

jaxlib hands out arrays of its own kinds of devices only. Ours lie in the host's memory: so what is
handed out is the same memory as an array of the CPU's, or of NumPy's in a process without one
(JAX_PLATFORMS=tiny). There, what comes in goes by NumPy too. An array of ours that comes in stays
on its device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

METHODS = ("__dlpack__", "__dlpack_device__")
HOST = 1  # DLPack's number of the host's memory


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
        return np.asarray(array)


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
        array = np.from_dlpack(external_array)
        return jnp.array(array, device=device) if copy else jax.device_put(array, device)

    return ours
