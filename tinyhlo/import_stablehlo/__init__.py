"""StableHLO in, Graph out."""

from tinyhlo.import_stablehlo.artifact import read_artifact
from tinyhlo.import_stablehlo.module import Module, import_module

__all__ = ["Module", "import_module", "read_artifact"]
