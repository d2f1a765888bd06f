"""sdy.manual_computation (shard_map, pmap): a body per device, on the parts of whole arrays.

    sdy.manual_computation(%x) in_shardings=[<@mesh, [{"x"}]>] manual_axes={"x"} (%part) {...}

The body runs in a copy for each place along the manual axes. Inside another such body there is a
copy for each copy outside and each place. Axes that are not manual do not divide anything here.
What a partitioner made has a mesh for each sharding (`partitioners.py`): then devices count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

from tinyhlo.import_stablehlo.lifting import flat_types, flatten, unflatten
from tinyhlo.import_stablehlo.records import Operation, ValueType
from tinyhlo.import_stablehlo.sharding import (
    Coordinates,
    Divided,
    Mesh,
    MeshAxis,
    Part,
    Sharding,
    parse_axes,
    parse_shardings,
    part_at,
    share_at,
)
from tinyhlo.import_stablehlo.teams import Copy, Team, TogetherRule, Values, alone, run_together
from tinyhlo.import_stablehlo.walker import Rule, Scope, UnsupportedError, Value, Walker
from tinyhlo.ir.graph import Node, Shape, TensorType

NO_MESH = "no mesh of this program has its manual axes"


@dataclass(frozen=True, slots=True)
class Places:
    """The places along the manual axes of a mesh."""

    mesh: Mesh
    names: frozenset[str]
    all: tuple[Coordinates, ...]
    walker: Walker

    @property
    def divided(self) -> Divided:
        return self.walker.divided

    def along(self, sharding: Sharding) -> Callable[[Coordinates, Shape], tuple[Part, int | None]]:
        """What of an array, and which summand of it, is at a place; axes that are not manual
        divide nothing."""
        only = partial(only_named, self.names)
        along = Sharding(sharding.mesh, tuple(map(only, sharding.axes)), only(sharding.unreduced))
        mesh = self.walker.mesh(sharding.mesh)
        own = None if mesh == self.mesh else mesh.coordinates()

        def at(place: Coordinates, shape: Shape) -> tuple[Part, int | None]:
            there = place if own is None else own.get(self.mesh.device(place), {})
            return part_at(along, mesh, shape, there), share_at(along, mesh, there)

        return at


def manual_computation(
    operation: Operation, inputs: Sequence[Values], scopes: Sequence[Scope], team: Team
) -> list[Values]:
    walker = scopes[0].walker
    (body,) = operation.regions
    given = parse_shardings(operation.attributes["in_shardings"])
    made = parse_shardings(operation.attributes["out_shardings"])
    manual = {axis.name for axis in parse_axes(operation.attributes["manual_axes"])}
    places = places_of(manual, (*given, *made), walker)
    inner = [
        Copy(places.mesh.device({**copy.at, **at}), {**copy.at, **at})
        for copy in team
        for at in places.all
    ]
    arguments = [
        tuple(
            part_of(value, sharding, type_, at, places)
            for value, sharding, type_ in zip(values, given, operation.operand_types, strict=True)
        )
        for values in inputs
        for at in places.all
    ]
    outer = [scope.values for scope in scopes for _ in places.all]
    results = run_together(body, arguments, outer, walker, tuple(inner))
    count = len(places.all)
    groups = [results[first : first + count] for first in range(0, len(results), count)]
    return [
        tuple(
            whole_of([values[k] for values in group], sharding, type_, places)
            for k, (sharding, type_) in enumerate(zip(made, operation.types, strict=True))
        )
        for group in groups
    ]


def places_of(manual: set[str], shardings: Sequence[Sharding], walker: Walker) -> Places:
    """The places in the mesh of a sharding, or else in the first one with these axes."""
    meshes = (*(walker.mesh(sharding.mesh) for sharding in shardings), *walker.meshes.values())
    mesh = next((found for found in meshes if manual <= set(found.sizes)), None)
    if mesh is None:
        raise UnsupportedError(NO_MESH)
    names = tuple(name for name in mesh.sizes if name in manual)
    numbers = product(*(range(mesh.sizes[name]) for name in names))
    every = tuple(dict(zip(names, place, strict=True)) for place in numbers)
    return Places(mesh, frozenset(manual), every, walker)


def only_named(names: frozenset[str], axes: Sequence[MeshAxis]) -> tuple[MeshAxis, ...]:
    return tuple(axis for axis in axes if axis.name in names)


def part_of(
    value: Value, sharding: Sharding, type_: ValueType, at: Coordinates, places: Places
) -> Value:
    """What one copy gets of a value."""
    if not isinstance(type_, TensorType):
        return value
    part, share = places.along(sharding)(at, type_.shape)
    divided = places.divided
    pieces = [divided.share(divided.part(node, part), share) for node in flatten([value])]
    return unflatten(pieces, [type_])[0]


def whole_of(
    values: Sequence[Value], sharding: Sharding, type_: ValueType, places: Places
) -> Value:
    """The value that the results of all copies are parts of. Copies of the same part give the same,
    and the first one's is taken; along axes that are not reduced yet they are added."""
    if not isinstance(type_, TensorType):
        return values[0]
    along = places.along(sharding)
    found: dict[Part, dict[int | None, list[Node]]] = {}
    for value, at in zip(values, places.all, strict=True):
        part, share = along(at, type_.shape)
        found.setdefault(part, {}).setdefault(share, flatten([value]))
    nodes: list[Node] = []
    for plane in range(len(flat_types([type_]))):
        pieces = {
            part: places.divided.total({share: each[plane] for share, each in shares.items()})
            for part, shares in found.items()
        }
        nodes.append(places.divided.whole(pieces))
    return unflatten(nodes, [type_])[0]


TOGETHER: dict[str, TogetherRule] = {"sdy.manual_computation": manual_computation}
RULES: dict[str, Rule] = dict.fromkeys(TOGETHER, alone)
