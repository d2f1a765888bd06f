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
from tinyhlo.import_stablehlo.lifting import flat_types, flatten, unflatten
from tinyhlo.import_stablehlo.partitioned import HLO_SHARDING, Division, divide
from tinyhlo.import_stablehlo.records import Operation, ValueType
from tinyhlo.import_stablehlo.teams import Copy, Team, TogetherRule, Values
from tinyhlo.import_stablehlo.walker import Scope, UnsupportedError
from tinyhlo.ir.graph import TensorType

INTO, OUT_OF = "SPMDFullToShardShape", "SPMDShardToFullShape"


def team_of(module: ir.Module, devices: int) -> Team:
    """The copies in which a program runs that has such borders; none for all others. A part's call
    gets the sharding of what it divides, which stands one call before."""
    found = list(calls_of(module.operation, {INTO}))
    for call in found:
        given = call.operands[0]
        if isinstance(given, ir.OpResult) and HLO_SHARDING in given.owner.attributes:
            call.attributes[HLO_SHARDING] = given.owner.attributes[HLO_SHARDING]
    return tuple(Copy(device, {}) for device in range(devices)) if found else ()


def division_of(operation: Operation, type_: ValueType, team: Team) -> Division:
    if not isinstance(type_, TensorType):
        raise UnsupportedError("it divides what is no array")
    return divide(operation.attributes, type_, {}, len(team))


def into_parts(
    operation: Operation, inputs: Sequence[Values], scopes: Sequence[Scope], team: Team
) -> list[Values]:
    """The part of a whole array on each device."""
    division = division_of(operation, operation.operand_types[0], team)
    divided = scopes[0].walker.divided
    results: list[Values] = []
    for (value,), part in zip(inputs, division.parts, strict=True):
        nodes = [divided.part(node, part) for node in flatten([value])]
        results.append(tuple(unflatten(nodes, operation.types)))
    return results


def out_of_parts(
    operation: Operation, inputs: Sequence[Values], scopes: Sequence[Scope], team: Team
) -> list[Values]:
    """The whole array of all parts, for every device; of equal parts the first one."""
    division = division_of(operation, operation.types[0], team)
    planes = [flatten(values) for values in inputs]
    wholes = [
        scopes[0].walker.divided.whole(
            {
                part: own[plane]
                for part, own in reversed(list(zip(division.parts, planes, strict=True)))
            }
        )
        for plane in range(len(flat_types(operation.types)))
    ]
    return [tuple(unflatten(wholes, operation.types))] * len(team)


TOGETHER: dict[str, TogetherRule] = {INTO: into_parts, OUT_OF: out_of_parts}
