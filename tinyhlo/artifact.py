"""Load a StableHLO program from a file and call it.

In: a file with StableHLO text, MLIR bytecode, a portable artifact, or what `jax.export` serialised;
which of them is seen from the content. Out: `LoadedProgram`.

    model = tinyhlo.load("model.mlir")
    print(model.inputs)          # (f32[8,4], f32[4,2])
    (y,) = model(x, w)

A program with symbolic dimensions is compiled at the first call with each set of shapes; its
inputs print as f32[?,4].
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from tinyhlo.config import Config, from_environment
from tinyhlo.errors import ExecutionError, InvalidProgram
from tinyhlo.import_stablehlo.quarantine import admit
from tinyhlo.import_stablehlo.refine import ArgumentType, DynamicShapes, refine_source
from tinyhlo.ir.graph import TensorType
from tinyhlo.records import dataclass
from tinyhlo.runtime import core
from tinyhlo.runtime.arrays import checked
from tinyhlo.runtime.cache import cache_of
from tinyhlo.runtime.executable import Executable


@dataclass(frozen=True, slots=True)
class LoadedProgram:
    """A compiled file. `inputs` and `outputs` are shapes and dtypes in the order of the call."""

    path: Path
    executable: Executable = field(repr=False)

    @property
    def inputs(self) -> tuple[TensorType, ...]:
        return self.executable.signature.inputs

    @property
    def outputs(self) -> tuple[TensorType, ...]:
        return self.executable.signature.outputs

    def __call__(self, *arguments: Any) -> tuple[np.ndarray, ...]:
        """Run on arrays (NumPy, JAX, or anything that NumPy can read).

        Raises ExecutionError when number, shapes or dtypes do not match `inputs`.
        """
        return run(self.executable, arrays_of(arguments))


@dataclass(frozen=True, slots=True)
class PolymorphicProgram:
    """A file whose program takes arrays of many shapes, compiled once for each."""

    path: Path
    inputs: tuple[ArgumentType, ...]
    source: bytes = field(repr=False)
    config: Config = field(repr=False)
    executables: dict[tuple[TensorType, ...], Executable] = field(default_factory=dict, repr=False)
    compiling: Any = field(default_factory=Lock, repr=False)

    def __call__(self, *arguments: Any) -> tuple[np.ndarray, ...]:
        """Run on arrays, compiling the program first if these shapes are new.

        Raises ExecutionError when the arrays do not match `inputs`, or when their sizes break an
        assertion of the program's.
        """
        arrays = arrays_of(arguments)
        return run(self.for_shapes(arrays), arrays)

    def for_shapes(self, arrays: Sequence[np.ndarray]) -> Executable:
        """The program compiled for arrays like these."""
        from tinyhlo.compiler import compile_module

        types = self.types_of(arrays)
        with self.compiling:
            found = self.executables.get(types)
            if found is None:
                static = self.refined(arrays)
                found = self.executables[types] = compile_module(static, self.config)
        return found

    def refined(self, arrays: Sequence[np.ndarray]) -> bytes:
        """Bytecode of the program for arrays like these."""
        return refine_source(self.source, self.types_of(arrays))

    def types_of(self, arrays: Sequence[np.ndarray]) -> tuple[TensorType, ...]:
        """Types of the arrays. Raises ExecutionError when they do not match `inputs`."""
        pairs = zip(checked(arrays, self.inputs), self.inputs, strict=True)
        return tuple(TensorType(array.shape, type_.dtype) for array, type_ in pairs)


def arrays_of(arguments: Sequence[Any]) -> list[np.ndarray]:
    """The arguments as arrays. Raises ExecutionError for one that NumPy cannot read."""
    arrays: list[np.ndarray] = []
    for position, argument in enumerate(arguments):
        try:
            arrays.append(np.asarray(argument))
        except (ValueError, TypeError) as error:
            raise ExecutionError(f"argument {position} is no array: {error}") from error
    return arrays


def run(executable: Executable, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The outputs. Raises ExecutionError when they, or what is between, do not fit into memory."""
    try:
        return executable(*arrays)
    except MemoryError as error:
        results = sum(type_.nbytes for type_ in executable.signature.outputs)
        raise ExecutionError(
            f"out of memory for {executable.name}: {results:,} bytes of results and "
            f"{executable.arena_bytes:,} between: pass smaller arrays"
        ) from error


def load(path: str | Path, config: Config | None = None) -> LoadedProgram | PolymorphicProgram:
    """Read and compile a file; options come from the environment when `config` is not given. Their
    `threads` are those of the pool that all programs of this process share.

    Raises InvalidProgram when the file cannot be read or is none of the formats, UnsupportedOp
    when the program cannot be compiled.
    """
    config = config or from_environment()
    return load_source(path, read_program(path, config), config)


def load_source(
    path: str | Path, source: bytes, config: Config
) -> LoadedProgram | PolymorphicProgram:
    """The same of what `read_program` has read."""
    from tinyhlo.compiler import compile_module

    core.set_threads(config.threads)
    try:
        with about(path):
            return LoadedProgram(Path(path), compile_module(source, config))
    except DynamicShapes as found:
        return PolymorphicProgram(Path(path), found.arguments, source, config)


@contextmanager
def about(path: str | Path) -> Generator[None]:
    """What is wrong with a program names its file."""
    try:
        yield
    except InvalidProgram as error:
        raise InvalidProgram(f"{path}: {error}") from error


def read_program(path: str | Path, config: Config) -> bytes:
    """The bytes of a file, in a form that is safe to parse in this process (see `quarantine`).

    Raises InvalidProgram, with the reason, when it cannot be read or is damaged.
    """
    try:
        source = Path(path).read_bytes()
    except (OSError, ValueError) as error:  # a name that no file can have
        reason = getattr(error, "strerror", None) or error
        raise InvalidProgram(f"cannot read {path}: {reason}") from error
    with about(path):
        return admit(source, cache_of("quarantine", config))
