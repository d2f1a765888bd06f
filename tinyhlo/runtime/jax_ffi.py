"""What is registered with `jax.ffi`: targets and types of state, as they were given.

    jax.ffi.register_ffi_target("f", {"instantiate": new, "execute": run}, platform="cpu")
    TARGETS["cpu", "f"]  ->  ({"instantiate": new, "execute": run}, 1)

jaxlib keeps registrations in lists until a platform's client takes them. XLA gives targets back
without the stages `instantiate` and `prepare`, and types not at all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

PLATFORMS = ("tiny", "cpu", "Host")  # by precedence; XLA calls "cpu" "Host"

# (platform, name) -> the function, or one for each stage, and its API version
TARGETS: dict[tuple[str, str], tuple[Any, int]] = {}
# (platform, name) -> capsules of a type's number, `type_id`, and its deleter, `type_info`
TYPES: dict[tuple[str, str], Mapping[str, Any]] = {}


@functools.cache
def watch() -> None:
    """Keep what jaxlib's lists hold, and what is registered from now on. What a version of jaxlib
    does not have is left out."""
    from jaxlib import xla_client

    module: Any = xla_client
    for name, waiting, keep in (
        ("register_custom_call_target", "_custom_callback", keep_target),
        ("register_custom_type", "_custom_type_id", keep_type),
    ):
        if hasattr(module, name):
            setattr(module, name, functools.partial(registering, getattr(module, name), keep))
        for platform in PLATFORMS:
            for called, value, *given in getattr(module, waiting, {}).get(platform, ()):
                keep(called, value, platform, *given)


def registering(
    theirs: Callable[..., None], keep: Callable[..., None], *given: Any, **named: Any
) -> None:
    """jaxlib's function; what it takes is kept."""
    theirs(*given, **named)
    keep(*given, **named)


# Their parameters have the names of jaxlib's.


def keep_target(
    name: str, fn: Any, platform: str = "cpu", api_version: int = 0, *_: Any, **__: Any
) -> None:
    TARGETS[platform, name] = fn, api_version


def keep_type(type_name: str, type_id: Any, platform: str = "cpu", *_: Any, **__: Any) -> None:
    if isinstance(type_id, Mapping):
        TYPES[platform, type_name] = type_id
