"""Compile options as JAX hands them over: a serialised CompileOptionsProto, read by jaxlib.

In: its bytes. Out: `CompileOptions` with what tinyhlo needs.

    >>> parse(b"").overrides
    {}
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from tinyhlo.config import Config, with_options
from tinyhlo.dataclass import dataclass
from tinyhlo.errors import TinyhloError

PREFIX = "tinyhlo_"
FOREIGN = "xla_"  # options of XLA's own passes: a program that sets them runs, without effect


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """`overrides` are the names and texts of jax.jit(compiler_options=...)."""

    replicas: int = 1
    partitions: int = 1
    overrides: dict[str, str] = field(default_factory=dict)


def parse(data: bytes) -> CompileOptions:
    """Read CompileOptionsProto; what jaxlib does not know in it is left out."""
    from jaxlib import _jax  # type: ignore[reportAttributeAccessIssue]

    given: Any = _jax.CompileOptions.ParseFromString(data)
    overrides = {name: text_of(value) for name, value in given.env_option_overrides}
    return CompileOptions(given.num_replicas or 1, given.num_partitions or 1, overrides)


def text_of(value: str | bool | float) -> str:
    """An option as TINYHLO_ variables spell it."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def configure(config: Config, options: CompileOptions) -> Config:
    """`config` with the options of one jitted function applied; XLA's have no effect.

    Raises TinyhloError for an option that is neither tinyhlo's nor XLA's.
    """
    given = {name: text for name, text in options.overrides.items() if not name.startswith(FOREIGN)}
    unknown = [name for name in given if not name.startswith(PREFIX)]
    if unknown:
        raise TinyhloError(
            f"No such compile option: {unknown[0]!r}; tinyhlo's options start with {PREFIX!r}"
        )
    own = {name.removeprefix(PREFIX): text for name, text in given.items()}
    return with_options(config, own, lambda name: PREFIX + name)
