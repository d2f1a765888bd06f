"""tinyhlo: a small, readable compiler and runtime for JAX programs.

`import tinyhlo` is quick: JAX imports it in every process that has it installed. What people call
is imported when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinyhlo.artifact import LoadedProgram, PolymorphicProgram, load

__all__ = ["LoadedProgram", "PolymorphicProgram", "load"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from tinyhlo import artifact

        return getattr(artifact, name)
    raise AttributeError(f"module 'tinyhlo' has no attribute {name!r}")
