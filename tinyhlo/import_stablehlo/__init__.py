"""StableHLO in, Graph out. What is named here is imported when it is asked for: the process of
`quarantine` needs the parser only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinyhlo.import_stablehlo.artifact import read_artifact
    from tinyhlo.import_stablehlo.module import Module, import_module

__all__ = ["Module", "import_module", "read_artifact"]


def __getattr__(name: str) -> Any:
    if name == "read_artifact":
        from tinyhlo.import_stablehlo import artifact

        return artifact.read_artifact
    if name in __all__:
        from tinyhlo.import_stablehlo import module

        return getattr(module, name)
    raise AttributeError(f"module 'tinyhlo.import_stablehlo' has no attribute {name!r}")
