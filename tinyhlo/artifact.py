"""Programs in files: load one and call it on arrays.

In: a file of StableHLO text, MLIR bytecode, a portable artifact, or what `jax.export` serialised;
which of them is seen from the content. Out: `LoadedProgram`.

    model = tinyhlo.load("model.mlir")
    print(model.inputs)          # (f32[8,4], f32[4,2])
    (y,) = model(x, w)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tinyhlo.config import Config, from_environment
from tinyhlo.errors import InvalidProgram
from tinyhlo.ir.graph import TensorType
from tinyhlo.runtime.executable import Executable


@dataclass(frozen=True, slots=True)
class LoadedProgram:
    """A compiled file. `inputs` and `outputs` are shapes and dtypes in the order of the call."""

    path: Path
    executable: Executable = field(repr=False)

    @property
    def inputs(self) -> tuple[TensorType, ...]:
        return self.executable.inputs

    @property
    def outputs(self) -> tuple[TensorType, ...]:
        return self.executable.outputs

    def __call__(self, *arguments: Any) -> tuple[np.ndarray, ...]:
        """Run on arrays (NumPy, JAX, or anything that NumPy can read).

        Raises ExecutionError when number, shapes or dtypes do not match `inputs`.
        """
        return self.executable(*(np.asarray(argument) for argument in arguments))


def load(path: str | Path, config: Config | None = None) -> LoadedProgram:
    """Read and compile a file; options come from the environment when `config` is not given.

    Raises InvalidProgram when the file cannot be read or is none of the formats, UnsupportedOp
    when the program cannot be compiled.
    """
    from tinyhlo.compiler import compile_module

    source = read(path)
    return LoadedProgram(Path(path), compile_module(source, config or from_environment()))


def read(path: str | Path) -> bytes:
    """The bytes of a file.

    Raises InvalidProgram, with the reason, when it cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidProgram(f"cannot read {path}: {error.strerror}") from error
