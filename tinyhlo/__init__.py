"""tinyhlo: a small, readable compiler and runtime for JAX programs.

`import tinyhlo` is quick: JAX imports it in every process that has it installed. What people call
is imported when it is asked for. In reading order (docs/how-it-works.md follows one function):

compiler          from end to end, as a list of stages: the rooms in their order are
                  pjrt_plugin/, import_stablehlo/, ir/, schedule/, codegen/, runtime/, viewer/
config            what users set; `devices` that there are, `errors` that users read
target            what a device can do, as numbers
cli               the command `tinyhlo`, `arguments`: its arrays; `artifact`: programs from files,
                  `check`: against XLA
signature         arguments and results of a program; `report`: what is known of its kernels;
                  `placement`: which process of a job has which of its devices
records           dataclasses that are made sooner; `numbers`: arithmetic of sizes, `once`: what a
                  process makes once, `files` that are written whole, `version`
python_settings   of the interpreter, for all threads: `collector` and `recursion` change them
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
