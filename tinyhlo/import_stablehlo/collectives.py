"""Collectives: ordinary ops over the values of all copies of a per-device body (see `teams.py`).

all_reduce(add)      ->  x[0] + x[1] + ..., the same node for the whole group
all_gather           ->  the values of the group side by side
collective_permute   ->  the value of another copy
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

from tinyhlo.import_stablehlo.joining import join
from tinyhlo.import_stablehlo.lifting import flat_types, flatten, unflatten
from tinyhlo.import_stablehlo.monoids import ROUNDING, monoids_of
from tinyhlo.import_stablehlo.operands import accumulator, map_region
from tinyhlo.import_stablehlo.records import Operation
from tinyhlo.import_stablehlo.sharding import Mesh
from tinyhlo.import_stablehlo.teams import Team, TogetherRule, Values, alone
from tinyhlo.import_stablehlo.walker import Rule, Scope, UnsupportedError, Value, Walker
from tinyhlo.ir.build import cast, elementwise, full, slice_
from tinyhlo.ir.dtypes import U32
from tinyhlo.ir.graph import Graph, Node

OTHER_DEVICES = "it reaches devices on which this program does not run"
NOT_ELEMENTWISE = "its reduction is not elementwise"

MESH_OF_GROUPS = re.compile(r"mesh = (@[\w.$-]+)")
NAMES = re.compile(r'name = "([^"]*)"')
Group = tuple[int, ...]  # numbers of copies, in the order of the group


def groups_of(operation: Operation, team: Team, walker: Walker) -> list[Group]:
    """The group of each copy; () for one that takes part in none."""
    copies = {copy.device: number for number, copy in enumerate(team)}
    rows = replica_groups(operation, walker)
    if not across_devices(operation):  # among replicas, of which there is one
        return [(number,) for number in range(len(team))]
    if not rows:
        return [tuple(range(len(team)))] * len(team)
    found: list[Group] = [()] * len(team)
    for row in rows:
        members = tuple(copies[device] for device in row if device in copies)
        if members and len(members) != len(row):
            raise UnsupportedError(OTHER_DEVICES)
        for member in members:
            found[member] = members
    return found


def replica_groups(operation: Operation, walker: Walker) -> Sequence[Sequence[int]]:
    """Devices of each group: rows, short ones filled up with -1, or those along axes of a mesh."""
    given = operation.attributes["replica_groups"]
    if not isinstance(given, str):
        return [[device for device in row if device >= 0] for row in given.array.tolist()]
    axes = given.partition("axes = ")[2]
    mesh = MESH_OF_GROUPS.search(given)
    if mesh is None or "sub_axis" in axes:
        raise UnsupportedError(f"groups of devices are given as {given}")
    return groups_along(NAMES.findall(axes), walker.mesh(mesh[1]))


def groups_along(names: Sequence[str], mesh: Mesh) -> list[tuple[int, ...]]:
    """The devices along some axes of a mesh, the last of them the quickest."""
    found: dict[tuple[int, ...], dict[tuple[int, ...], int]] = {}
    for device, at in mesh.coordinates().items():
        rest = tuple(place for name, place in at.items() if name not in names)
        found.setdefault(rest, {})[tuple(at[name] for name in names)] = device
    return [tuple(group[place] for place in sorted(group)) for group in found.values()]


def across_devices(operation: Operation) -> bool:
    """Whether groups are of devices (partitions), not of replicas."""
    channel = operation.attributes.get("channel_handle")
    return channel is not None and "handle = 0" not in str(channel)


def by_groups(
    move: Callable[[Operation, list[Node], int], Node],
    operation: Operation,
    inputs: Sequence[Values],
    scopes: Sequence[Scope],
    team: Team,
) -> list[Values]:
    """`move` gives the result of one member from the nodes of its group."""
    groups = groups_of(operation, team, scopes[0].walker)
    flat = [flatten(values) for values in inputs]
    known: dict[tuple[Any, ...], Node] = {}
    results: list[Values] = []
    for copy, group in enumerate(groups):
        nodes: list[Node] = []
        for plane in range(len(flat[copy])):
            members = [flat[member][plane] for member in group]
            place = group.index(copy) if group else -1
            key = (*members, place)
            if key not in known:
                known[key] = move(operation, members, place)
            nodes.append(known[key])
        results.append(tuple(unflatten(nodes, operation.types)))
    return results


def all_gather(operation: Operation, members: list[Node], place: int) -> Node:
    return join(members, operation.attributes["all_gather_dim"])


def all_to_all(operation: Operation, members: list[Node], place: int) -> Node:
    """Each member sends every other one a piece, and joins what it gets."""
    axis, count = operation.attributes["split_dimension"], operation.attributes["split_count"]
    pieces = [nth_of(node, axis, place, count) for node in members]
    return join(pieces, operation.attributes["concat_dimension"])


def collective_broadcast(operation: Operation, members: list[Node], place: int) -> Node:
    """What the first one has; zeros for those in no group."""
    if members:
        return members[0]
    (type_, *_) = flat_types(operation.types)
    return full(0, type_.shape, type_.dtype)  # type: ignore[union-attr]


def nth_of(node: Node, axis: int, number: int, count: int) -> Node:
    """The piece `number` of `count` equal ones along an axis."""
    step = node.shape[axis] // count
    start, stop = [0] * len(node.shape), list(node.shape)
    start[axis], stop[axis] = number * step, (number + 1) * step
    return slice_(node, start, stop)


# ---- reductions ----------------------------------------------------------------------------------


def all_reduce(
    operation: Operation, inputs: Sequence[Values], scopes: Sequence[Scope], team: Team
) -> list[Values]:
    """Each group's values reduced in the order of the group, once for all its members."""
    region = scopes[0].graph(operation.regions[0])
    groups = groups_of(operation, team, scopes[0].walker)
    known: dict[Group, Values] = {}
    for group in dict.fromkeys(groups):
        known[group] = tuple(
            reduced(region, [inputs[member][k] for member in group], type_)
            for k, type_ in enumerate(operation.operand_types)
        )
    return [known[group] for group in groups]


def reduced(region: Graph, values: Sequence[Value], type_: Any) -> Value:
    """All values combined by a region of two scalars."""
    planes = [flatten([value]) for value in values]
    result = planes[0]
    monoids = monoids_of(region)
    if monoids is not None:
        for plane, monoid in enumerate(monoids):
            wide = accumulator(result[plane].dtype) if monoid in ROUNDING else result[plane].dtype
            total = cast(planes[0][plane], wide)
            for other in planes[1:]:
                total = elementwise(monoid, total, cast(other[plane], wide))
            result[plane] = cast(total, result[plane].dtype)
        return unflatten(result, [type_])[0]
    for other in planes[1:]:
        combined = map_region(region, [*result, *other], result[0].shape)
        if combined is None:
            raise UnsupportedError(NOT_ELEMENTWISE)
        result = list(combined)
    return unflatten(result, [type_])[0]


def reduce_scatter(
    operation: Operation, inputs: Sequence[Values], scopes: Sequence[Scope], team: Team
) -> list[Values]:
    """Reduced, and each member keeps a piece."""
    axis = operation.attributes["scatter_dimension"]
    totals = all_reduce(operation, inputs, scopes, team)
    return [
        tuple(
            unflatten(
                [
                    nth_of(node, axis, group.index(copy), len(group))
                    for node in flatten(totals[copy])
                ],
                operation.types,
            )
        )
        for copy, group in enumerate(groups_of(operation, team, scopes[0].walker))
    ]


# ---- single messages, and who am I ---------------------------------------------------------------


def collective_permute(
    operation: Operation, inputs: Sequence[Values], scopes: Sequence[Scope], team: Team
) -> list[Values]:
    """Each copy gets the value of the one that sends to it, or zeros."""
    copies = {copy.device: number for number, copy in enumerate(team)}
    pairs = operation.attributes["source_target_pairs"].array.tolist()
    if across_devices(operation):
        sources = {target: source for source, target in pairs}
    else:
        sources = {copy.device: copy.device for copy in team} if pairs else {}
    if team_is_whole(team) and not set(chain(*pairs)) <= set(copies):
        raise UnsupportedError(OTHER_DEVICES)
    results: list[Values] = []
    for number, copy in enumerate(team):
        source = copies.get(sources.get(copy.device, -1))
        nodes = flatten(inputs[number if source is None else source])
        if source is None:
            nodes = [full(0, node.shape, node.dtype) for node in nodes]
        results.append(tuple(unflatten(nodes, operation.types)))
    return results


def team_is_whole(team: Team) -> bool:
    """Whether no copy stands for several devices."""
    return sorted(copy.device for copy in team) == list(range(len(team)))


def device_number(
    operation: Operation, inputs: Sequence[Values], scopes: Sequence[Scope], team: Team
) -> list[Values]:
    return [(full(copy.device, (), U32),) for copy in team]


def replica_number(
    operation: Operation, inputs: Sequence[Values], scopes: Sequence[Scope], team: Team
) -> list[Values]:
    return [(full(0, (), U32),)] * len(team)


TOGETHER: dict[str, TogetherRule] = {
    "stablehlo.all_gather": partial(by_groups, all_gather),
    "stablehlo.all_reduce": all_reduce,
    "stablehlo.all_to_all": partial(by_groups, all_to_all),
    "stablehlo.collective_broadcast": partial(by_groups, collective_broadcast),
    "stablehlo.collective_permute": collective_permute,
    "stablehlo.partition_id": device_number,
    "stablehlo.reduce_scatter": reduce_scatter,
    "stablehlo.replica_id": replica_number,
}
RULES: dict[str, Rule] = dict.fromkeys(TOGETHER, alone)  # type: ignore[arg-type]
