"""Compile options as JAX hands them over: a serialised CompileOptionsProto.

In: its bytes. Out: `CompileOptions` with what tinyhlo needs. Read by a few lines of protobuf wire
format, so that no generated code is needed.

    >>> parse(b"").overrides
    {}
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from tinyhlo.config import Config, with_options
from tinyhlo.errors import InvalidProgram, TinyhloError

PREFIX = "tinyhlo_"
FOREIGN = "xla_"  # options of XLA's own passes: a program that sets them runs, without effect

# CompileOptionsProto
EXECUTABLE_BUILD_OPTIONS = 3
ENV_OPTION_OVERRIDES = 7
# ExecutableBuildOptionsProto
NUM_REPLICAS = 4
NUM_PARTITIONS = 5
# a map entry; its value is an OptionOverrideProto
KEY, VALUE = 1, 2

Value = int | bytes


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """`overrides` are the names and texts of jax.jit(compiler_options=...)."""

    replicas: int = 1
    partitions: int = 1
    overrides: dict[str, str] = field(default_factory=dict)


def parse(data: bytes) -> CompileOptions:
    """Read CompileOptionsProto.

    Raises InvalidProgram when the bytes are no protobuf message.
    """
    replicas = partitions = 1
    overrides: dict[str, str] = {}
    try:
        for number, value in _fields(data):
            if number == EXECUTABLE_BUILD_OPTIONS and isinstance(value, bytes):
                build = dict(_fields(value))
                replicas = int(build.get(NUM_REPLICAS, 1))
                partitions = int(build.get(NUM_PARTITIONS, 1))
            elif number == ENV_OPTION_OVERRIDES and isinstance(value, bytes):
                entry = dict(_fields(value))
                overrides[_text(entry[KEY])] = _override(entry.get(VALUE, b""))
    except (IndexError, KeyError, ValueError, struct.error):
        raise InvalidProgram("the compile options are not a CompileOptionsProto") from None
    return CompileOptions(replicas, partitions, overrides)


def configure(config: Config, options: CompileOptions) -> Config:
    """`config` with the options of one jitted function applied; XLA's have no effect.

    Raises TinyhloError for an option that is neither tinyhlo's nor XLA's.
    """
    given = {name: text for name, text in options.overrides.items() if not is_foreign(name)}
    unknown = [name for name in given if not name.startswith(PREFIX)]
    if unknown:
        raise TinyhloError(
            f"No such compile option: {unknown[0]!r}; tinyhlo's options start with {PREFIX!r}"
        )
    own = {name.removeprefix(PREFIX): text for name, text in given.items()}
    return with_options(config, own, (PREFIX + "{}").format)


def is_foreign(name: str) -> bool:
    return name.startswith(FOREIGN)


def _override(value: Value) -> str:
    """The text of an OptionOverrideProto, whichever type the user gave."""
    if not isinstance(value, bytes):
        raise ValueError
    for number, content in _fields(value):
        match number, content:  # one of string, bool or int, double
            case (1, bytes()):
                return content.decode()
            case (2 | 3, int()):
                return str(content)
            case (4, bytes()):
                return repr(struct.unpack("<d", content)[0])
            case _:
                continue
    return ""


def _text(value: Value) -> str:
    if not isinstance(value, bytes):
        raise ValueError
    return value.decode()


def _fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """(field number, content) of a message: integers for varints, bytes for everything else."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        content: Value
        match tag & 7:
            case 0:
                content, position = _varint(data, position)
            case 1:
                content, position = data[position : position + 8], position + 8
            case 2:
                length, position = _varint(data, position)
                content, position = data[position : position + length], position + length
            case 5:
                content, position = data[position : position + 4], position + 4
            case _:
                raise ValueError
        if position > len(data):
            raise ValueError
        yield tag >> 3, content


def _varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[position]
        number |= (byte & 127) << shift
        position += 1
        shift += 7
        if byte < 128:
            return number - (1 << 64) if number >= 1 << 63 else number, position
