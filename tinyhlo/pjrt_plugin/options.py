"""Compile options as JAX hands them over: a serialised CompileOptionsProto, read by jaxlib.

In: its bytes. Out: `CompileOptions` with what tinyhlo needs.

    >>> parse(b"").overrides
    {}
"""

from __future__ import annotations

from dataclasses import field
from functools import lru_cache
from typing import Any

import numpy as np

from tinyhlo.config import Config, with_options
from tinyhlo.errors import TinyhloError
from tinyhlo.records import dataclass

PREFIX = "tinyhlo_"
LENGTH_DELIMITED = 2  # the wire type of messages and lists
FOREIGN = "xla_"  # options of XLA's own passes: a program that sets them runs, without effect


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """`overrides` are the names and texts of jax.jit(compiler_options=...). `devices`: the number
    of the device of each partition; `assignment`: the same as a DeviceAssignmentProto."""

    replicas: int = 1
    partitions: int = 1
    overrides: dict[str, str] = field(default_factory=dict)
    devices: tuple[int, ...] = (0,)
    assignment: bytes = bytes([0x08, 1, 0x10, 1, 0x1A, 3, 0x0A, 1, 0])


@lru_cache(16)  # nearly all programs of a process are compiled with the same
def parse(data: bytes) -> CompileOptions:
    """Read CompileOptionsProto; what jaxlib does not know in it is left out."""
    from jaxlib import _jax  # type: ignore[reportAttributeAccessIssue]

    given: Any = _jax.CompileOptions.ParseFromString(data)
    overrides = {name: text_of(value) for name, value in given.env_option_overrides}
    replicas, partitions = given.num_replicas or 1, given.num_partitions or 1
    assignment = given.device_assignment
    if assignment is None:
        numbers = np.arange(replicas * partitions).reshape(replicas, partitions)
        assignment = _jax.DeviceAssignment.create(numbers)
    serialized = assignment.serialize()
    devices = assigned_devices(serialized)
    return CompileOptions(replicas, partitions, overrides, devices, serialized)


def assigned_devices(assignment: bytes) -> tuple[int, ...]:
    """The device numbers in a DeviceAssignmentProto: {replica_count = 1, computation_count = 2,
    repeated computation_devices = 3 {repeated replica_device_ids = 1}}, all of them varints.

    >>> assigned_devices(bytes([0x08, 1, 0x10, 2, 0x1A, 3, 0x0A, 1, 5, 0x1A, 3, 0x0A, 1, 7]))
    (5, 7)
    """
    found: list[int] = []
    place = 0
    while place < len(assignment):
        tag, place = varint(assignment, place)
        value, place = varint(assignment, place)
        if tag & 7 == LENGTH_DELIMITED:
            message = assignment[place : place + value]
            place += value
            start = varint(message, varint(message, 0)[1])[1]  # past tag and length
            while start < len(message):
                number, start = varint(message, start)
                found.append(number)
    return tuple(found)


def varint(data: bytes, place: int) -> tuple[int, int]:
    """(number, where it ends): seven bits a byte, the lowest first."""
    number = shift = 0
    while True:
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, place


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
