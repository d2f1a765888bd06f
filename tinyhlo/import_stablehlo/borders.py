"""Per-device parts of programs from before Shardy: what is between two calls is per device.

    %1 = custom_call @Sharding(%0) {mhlo.sharding = "{devices=[4,2]<=[8]}"}
    %2 = custom_call @SPMDFullToShardShape(%1)    # the part of %1 on each device
    %3 = call @body(%2)
    %4 = custom_call @SPMDShardToFullShape(%3)    # the whole again, from all parts

There is no region. So the program runs in a copy per device from its beginning, and what is the
same for all devices is the same node in all copies.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir

from tinyhlo.import_stablehlo.decode import calls_of
from tinyhlo.import_stablehlo.partitioned import HLO_SHARDING, divide
from tinyhlo.import_stablehlo.records import Operation, ValueType
from tinyhlo.import_stablehlo.sharding import Division
from tinyhlo.import_stablehlo.teams import ALONE, Copy, Team, TogetherRule, Values
from tinyhlo.import_stablehlo.walker import UnsupportedError
from tinyhlo.ir.graph import TensorType

INTO, OUT_OF = "SPMDFullToShardShape", "SPMDShardToFullShape"


def copies_of(module: ir.Module, devices: int) -> tuple[Copy, ...]:
    """The copies in which a program runs: one per device where it has such borders. A part's call
    gets the sharding of what it divides, which stands one call before."""
    found = list(calls_of(module.operation, {INTO}))
    for call in found:
        given = call.operands[0]
        if isinstance(given, ir.OpResult) and HLO_SHARDING in given.owner.attributes:
            call.attributes[HLO_SHARDING] = given.owner.attributes[HLO_SHARDING]
    return tuple(Copy(device, {}) for device in range(devices)) if found else ALONE


def division_of(operation: Operation, type_: ValueType, team: Team) -> Division:
    if not isinstance(type_, TensorType):
        raise UnsupportedError("it divides what is no array")
    return divide(operation.attributes, type_, {}, len(team.copies))


def into_parts(operation: Operation, inputs: Sequence[Values], team: Team) -> list[Values]:
    """The part of a whole array on each device."""
    division = division_of(operation, operation.operand_types[0], team)
    divided = team.walker.divided
    return [(divided.part(value, division, copy),) for copy, (value,) in enumerate(inputs)]


def out_of_parts(operation: Operation, inputs: Sequence[Values], team: Team) -> list[Values]:
    """The whole array of all parts, for every device."""
    division = division_of(operation, operation.types[0], team)
    return [(team.walker.divided.whole([part for (part,) in inputs], division),)] * len(inputs)


TOGETHER: dict[str, TogetherRule] = {INTO: into_parts, OUT_OF: out_of_parts}
