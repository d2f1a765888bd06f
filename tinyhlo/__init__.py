"""tinyhlo: a small, readable compiler and runtime for JAX programs.

`import tinyhlo` is quick: JAX imports it in every process that has it installed. What people call
is imported when it is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tinyhlo import version

if TYPE_CHECKING:
    from tinyhlo.artifact import LoadedProgram, PolymorphicProgram, load
    from tinyhlo.runtime.targets import register_custom_call

__all__ = ["LoadedProgram", "PolymorphicProgram", "__version__", "load", "register_custom_call"]

__version__ = version.VERSION

# name -> the module that defines it
HOMES = {
    "LoadedProgram": "tinyhlo.artifact",
    "PolymorphicProgram": "tinyhlo.artifact",
    "load": "tinyhlo.artifact",
    "register_custom_call": "tinyhlo.runtime.targets",
}


def __getattr__(name: str) -> Any:
    if name in HOMES:
        return getattr(importlib.import_module(HOMES[name]), name)
    raise AttributeError(f"module 'tinyhlo' has no attribute {name!r}")
