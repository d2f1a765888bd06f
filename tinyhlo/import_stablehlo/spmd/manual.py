"""Per-device bodies (shard_map, pmap), on the parts of whole arrays.

    sdy.manual_computation(%x) in_shardings=[<@mesh, [{"x"}]>] manual_axes={"x"} (%part) {...}

The body runs in a copy for each place along the manual axes. Inside another such body there is a
copy for each copy outside and each place. Axes that are not manual do not divide anything here.
What a partitioner made has a mesh for each sharding (`partitioners.py`): then devices count.

    %1 = custom_call @Sharding(%0) {mhlo.sharding = "{devices=[4,2]<=[8]}"}
    %2 = custom_call @SPMDFullToShardShape(%1)    # the part of %1 on each device
    %3 = call @body(%2)
    %4 = custom_call @SPMDShardToFullShape(%3)    # the whole again, from all parts

Before Shardy there was no region: what is between two calls is per device. So such a program runs
in a copy per device from its beginning, and what is the same for all devices is the same node in
all copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, product

from jaxlib.mlir import ir

from tinyhlo.import_stablehlo.decode import calls_of
from tinyhlo.import_stablehlo.records import Operation, ValueType
from tinyhlo.import_stablehlo.spmd.partitioned import HLO_SHARDING, divide
from tinyhlo.import_stablehlo.spmd.pieces import Pieces
from tinyhlo.import_stablehlo.spmd.sharding import (
    Coordinates,
    Division,
    Mesh,
    MeshAxis,
    Sharding,
    division_at,
    parse_axes,
    parse_shardings,
)
from tinyhlo.import_stablehlo.spmd.spread import held, part_at, settled
from tinyhlo.import_stablehlo.spmd.teams import (
    ALONE,
    Copy,
    Team,
    TogetherRule,
    Values,
    alone,
    of_everyone,
)
from tinyhlo.import_stablehlo.walker import Rule, UnsupportedError, Value, Walker
from tinyhlo.ir.graph import TensorType
from tinyhlo.records import dataclass

BODY = "sdy.manual_computation"
NO_MESH = "no mesh of this program has its manual axes"


@dataclass(frozen=True, slots=True)
class Places:
    """The places along the manual axes of a mesh."""

    mesh: Mesh
    names: set[str]
    all: Sequence[Coordinates]

    def divide(self, sharding: Sharding, type_: ValueType, walker: Walker) -> Division | None:
        """How a value is divided among the places; axes that are not manual divide nothing."""
        if not isinstance(type_, TensorType):
            return None
        mesh, places = walker.mesh(sharding.mesh), self.all
        if mesh != self.mesh:
            own = mesh.coordinates()
            places = [own.get(self.mesh.device(place), {}) for place in places]
        axes = tuple(map(self.manual, sharding.axes))
        sums = self.manual(sharding.unreduced)
        along = Sharding(sharding.mesh, axes, sums, sharding.reduction)
        return division_at(along, mesh, type_.shape, places)

    def manual(self, axes: Sequence[MeshAxis]) -> tuple[MeshAxis, ...]:
        return tuple(axis for axis in axes if axis.name in self.names)


def manual_computation(operation: Operation, inputs: Sequence[Values], team: Team) -> list[Values]:
    """A body per device: every copy of the team divides its operands, the bodies of all devices run
    together as a team of their own, and each copy's results are joined again."""
    walker, given = team.walker, operation.attributes
    sides = parse_shardings(given["in_shardings"]), parse_shardings(given["out_shardings"])
    names = {axis.name for axis in parse_axes(given["manual_axes"])}
    places = places_of(names, list(chain(*sides)), walker)
    before, after = (
        [places.divide(*one, walker) for one in zip(side, types, strict=True)]
        for side, types in zip(sides, (operation.operand_types, operation.types), strict=True)
    )
    count, inner = len(places.all), team_at(places, team)
    outer = {
        number: [held(*one, inner.holders, walker) for one in zip(values, before, strict=True)]
        for number, values in zip(team.own, inputs, strict=True)
    }
    arguments = [
        tuple(
            part_at(*one, number % count, walker)
            for one in zip(outer[number // count], before, strict=True)
        )
        for number in inner.own
    ]
    results = walker.within_device(lambda: inner.run(operation.regions[0], arguments))
    if inner.holders and not team.holders:
        return [in_pieces(inner, operation.types, after, results)]
    if team.holders:
        types = [part_type(*one) for one in zip(operation.types, after, strict=True)]
        results = of_everyone(
            inner, results, types, [who for who in team.holders for _ in places.all]
        )
    groups = [results[number * count : (number + 1) * count] for number in team.own]
    return [
        tuple(
            walker.divided.whole([values[k] for values in group], division)
            for k, division in enumerate(after)
        )
        for group in groups
    ]


def team_at(places: Places, team: Team) -> Team:
    """The copies of a body: for each copy around it one at each of the places."""
    mesh, placement, count = places.mesh, team.walker.placement, len(places.all)
    at = [{**copy.at, **place} for copy in team.everyone or team.copies for place in places.all]
    copies = tuple(Copy(mesh.device(each), each) for each in at)
    if not placement.is_shared:
        return Team(team.walker, copies, [values for values in team.around for _ in places.all])
    holders = tuple(
        frozenset(placement.processes[device] for device in mesh.devices_at(each)) for each in at
    )
    own = [number for number, who in enumerate(holders) if placement.here in who]
    around = dict(zip(team.own, team.around, strict=True))
    here = tuple(copies[number] for number in own)
    return Team(team.walker, here, [around[number // count] for number in own], copies, holders)


def part_type(type_: ValueType, division: Division | None) -> ValueType:
    return division.local(type_) if division and isinstance(type_, TensorType) else type_


def in_pieces(
    inner: Team,
    types: Sequence[ValueType],
    divisions: Sequence[Division | None],
    results: Sequence[Values],
) -> Values:
    """The results of a body some of whose copies other processes run."""
    found: list[Value] = []
    for type_, division, values in zip(types, divisions, zip(*results, strict=True), strict=True):
        own = dict(zip(inner.own, values, strict=True))
        if division is None or not isinstance(type_, TensorType):
            found.append(values[0])
        else:
            found.append(settled(Pieces(type_, division, own, inner.holders), inner.walker))
    return tuple(found)


def places_of(names: set[str], shardings: Sequence[Sharding], walker: Walker) -> Places:
    """The places in the mesh of a sharding, or else in the first one with these axes."""
    meshes = (
        *(walker.mesh(sharding.mesh) for sharding in shardings),
        *walker.decoder.meshes.values(),
    )
    mesh = next((found for found in meshes if names <= set(found.sizes)), None)
    if mesh is None:
        raise UnsupportedError(NO_MESH)
    along = {name: size for name, size in mesh.sizes.items() if name in names}
    numbers = product(*map(range, along.values()))
    return Places(mesh, names, [dict(zip(along, place, strict=True)) for place in numbers])


# ---- calls at the borders ----------------------------------------------------------------------

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


TOGETHER: dict[str, TogetherRule] = {
    BODY: manual_computation,
    INTO: into_parts,
    OUT_OF: out_of_parts,
}
RULES: dict[str, Rule] = {BODY: alone}
