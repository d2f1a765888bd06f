"""Collectives: ordinary ops over the values of all copies of a per-device body (see `teams.py`).

all_reduce(add)      ->  x[0] + x[1] + ..., the same node for the whole group
all_gather           ->  the values of the group side by side
collective_permute   ->  the value of another copy
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import chain
from typing import Any

from tinyhlo.errors import InvalidProgram
from tinyhlo.import_stablehlo.families.reductions import monoids_of, widen
from tinyhlo.import_stablehlo.in_turn import mapped
from tinyhlo.import_stablehlo.lifted.complex_numbers import by_plane, rebuilt
from tinyhlo.import_stablehlo.lifted.lifting import as_params, flatten, unflatten
from tinyhlo.import_stablehlo.records import Operation, ValueType
from tinyhlo.import_stablehlo.spmd.pieces import Holders
from tinyhlo.import_stablehlo.spmd.sharding import Mesh
from tinyhlo.import_stablehlo.spmd.teams import (
    DEVICE_NUMBER,
    Team,
    TogetherRule,
    Values,
    alone,
    of_everyone,
)
from tinyhlo.import_stablehlo.walker import (
    Rule,
    Scope,
    UnsupportedError,
    Value,
    Walker,
    placeholder,
)
from tinyhlo.ir.build import cast, elementwise, full
from tinyhlo.ir.dtypes import U32
from tinyhlo.ir.graph import Node, TensorType
from tinyhlo.ir.joining import join, part

OTHER_DEVICES = "it reaches devices on which this program does not run"

MESH_OF_GROUPS = re.compile(r"mesh = (@[\w.$-]+)")
NAMES = re.compile(r'name = "([^"]*)"')
Group = tuple[int, ...]  # numbers of copies, in the order of the group


def groups_of(operation: Operation, team: Team) -> list[Group]:
    """The group of each copy; () for one that takes part in none."""
    copies = {copy.device: number for number, copy in enumerate(team.copies)}
    rows, count = replica_groups(operation, team.walker), len(team.copies)
    if not across_devices(operation):  # among replicas, of which there is one
        return [(number,) for number in range(count)]
    if not rows:
        return [tuple(range(count))] * count
    found: list[Group] = [()] * count
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
    """The groups of devices along some axes of a mesh, the last of them varying fastest."""
    found: dict[tuple[int, ...], dict[tuple[int, ...], int]] = {}
    for device, at in mesh.coordinates().items():
        rest = tuple(place for name, place in at.items() if name not in names)
        found.setdefault(rest, {})[tuple(at[name] for name in names)] = device
    return [tuple(group[place] for place in sorted(group)) for group in found.values()]


def across_devices(operation: Operation) -> bool:
    """Whether groups are of devices (partitions), not of replicas."""
    channel = operation.attributes.get("channel_handle")
    return channel is not None and "handle = 0" not in str(channel)


# ---- copies of other processes -------------------------------------------------------------------


def among_all(rule: TogetherRule) -> TogetherRule:
    """A rule that sees the copies of all processes: what it reads of others is fetched, and what it
    gives to them left out."""

    def together(operation: Operation, inputs: Sequence[Values], team: Team) -> Sequence[Values]:
        if not team.everyone:
            return rule(operation, inputs, team)
        every = replace(team, copies=team.everyone, everyone=())
        types = operation.operand_types
        found = of_everyone(team, inputs, types, readers(operation, every))
        given = [tuple(map(known_or_zero, values, types)) for values in found]
        around = [team.around[0]] * len(given)
        results = rule(operation, given, replace(every, around=around))
        return [results[number] for number in team.own]

    return together


def known_or_zero(value: Value, type_: ValueType) -> Value:
    """Zeros for what nobody here reads."""
    return placeholder(type_) if value is None else value


def readers(operation: Operation, team: Team) -> list[Holders]:
    """For each copy, whose copies read its value."""
    found: list[Holders] = [frozenset()] * len(team.copies)
    if "replica_groups" in operation.attributes:
        for reader, group in enumerate(groups_of(operation, team)):
            for member in group:
                found[member] |= team.holders[reader]
        return found
    for reader, sender in enumerate(senders_of(operation, team)):
        if sender is not None:
            found[sender] |= team.holders[reader]
    return found


# ---- by groups -----------------------------------------------------------------------------------


def by_groups(
    of_group: Callable[[Operation, list[Value], Team], Any],
    of_member: Callable[[Operation, Any, int, int], Value],
    operation: Operation,
    inputs: Sequence[Values],
    team: Team,
) -> list[Values]:
    """`of_group` gives from the values of a group what is common to its members, `of_member` from
    that the result of one, by its number in the group and their count. Who is in no group gets
    zeros."""
    groups = groups_of(operation, team)
    for count in {len(group) for group in groups if group}:
        check_sizes(operation, count, team.walker)
    common = {
        group: [
            of_group(operation, list(column), team)
            for column in zip(*(inputs[member] for member in group), strict=True)
        ]
        for group in dict.fromkeys(groups)
    }
    nothing = tuple(map(placeholder, operation.types))
    return [
        tuple(of_member(operation, each, group.index(copy), len(group)) for each in common[group])
        if group
        else nothing
        for copy, group in enumerate(groups)
    ]


# what becomes larger by the size of a group, and what smaller: attributes that name the axis
GROWS = {
    "stablehlo.all_gather": "all_gather_dim",
    "stablehlo.all_to_all": "concat_dimension",
}
SHRINKS = {
    "stablehlo.all_to_all": "split_dimension",
    "stablehlo.reduce_scatter": "scatter_dimension",
}


def check_sizes(operation: Operation, count: int, walker: Walker) -> None:
    """Raises InvalidProgram for results that are not what groups of `count` devices give."""
    shrinks, grows = (
        operation.attributes.get(table.get(operation.name, "")) for table in (SHRINKS, GROWS)
    )
    for given, made in zip(operation.operand_types, operation.types, strict=True):
        if not isinstance(given, TensorType) or not isinstance(made, TensorType):
            continue
        sizes, rest = list(given.shape), 0
        if shrinks is not None:
            sizes[shrinks], rest = divmod(sizes[shrinks], count)
        if grows is not None:
            sizes[grows] *= count
        if rest or tuple(sizes) != made.shape:
            raise InvalidProgram(
                f"{operation.name} on {operation.signature} ({walker.line(operation)}): in groups "
                f"of {count} its result has another shape: correct its type or its replica_groups"
            )


def by_reductions(
    of_member: Callable[[Operation, Any, int, int], Value],
    operation: Operation,
    inputs: Sequence[Values],
    team: Team,
) -> list[Values]:
    """The same for values that a region of two scalars combines, which may be of a wider type."""
    types = operation.operand_types
    wide = [operation.regions[0].types[0]] * len(types)
    widened = [tuple(unflatten(as_params(wide, types, flatten(v)), wide)) for v in inputs]
    return by_groups(reduced, of_member, operation, widened, team)


def members(operation: Operation, values: list[Value], team: Team) -> list[Value]:
    return values


def first(operation: Operation, values: list[Value], team: Team) -> Value:
    return values[0]


def gathered(operation: Operation, values: list[Value], team: Team) -> Value:
    return side_by_side(values, operation.attributes["all_gather_dim"])


def same(operation: Operation, value: Value, number: int, count: int) -> Value:
    return value


def exchanged(operation: Operation, values: list[Value], number: int, count: int) -> Value:
    """Each member sends every other one a piece, and joins what it gets."""
    axis, joined = (operation.attributes[table[operation.name]] for table in (SHRINKS, GROWS))
    return side_by_side([nth_of(value, axis, number, count) for value in values], joined)


def scattered(operation: Operation, value: Value, number: int, count: int) -> Value:
    """Each member keeps a piece."""
    return nth_of(value, operation.attributes["scatter_dimension"], number, count)


def side_by_side(values: list[Value], axis: int) -> Value:
    return by_plane(lambda *nodes: join(list(nodes), axis), *values)


def nth_of(value: Value, axis: int, number: int, count: int) -> Value:
    """The piece `number` of `count` equal ones along an axis."""
    step = value.shape[axis] // count  # type: ignore[union-attr]
    return by_plane(lambda node: part(node, axis, number * step, (number + 1) * step), value)


def reduced(operation: Operation, values: list[Value], team: Team) -> Value:
    """All values combined, in the order of the group, by a region of two scalars."""
    region = Scope(team.walker, team.around[0]).graph(operation.regions[0])
    planes = [tuple(flatten([value])) for value in values]
    monoids = monoids_of(region)
    if monoids is not None:
        totals = (
            reduce(partial(elementwise, op), [widen(op, node) for node in column])
            for op, column in zip(monoids, zip(*planes, strict=True), strict=True)
        )
        return by_plane(lambda own: cast(next(totals), own.dtype), values[0])
    result, *others = planes
    for other in others:
        result = tuple(mapped(region, (*result, *other), result[0].shape))
    return rebuilt(values[0], iter(result))


# ---- single messages, and who am I ---------------------------------------------------------------


def collective_permute(operation: Operation, inputs: Sequence[Values], team: Team) -> list[Values]:
    """Each copy gets the value of the one that sends to it, or zeros."""
    nothing = tuple(map(placeholder, operation.types))
    senders = senders_of(operation, team)
    return [nothing if sender is None else inputs[sender] for sender in senders]


def senders_of(operation: Operation, team: Team) -> list[int | None]:
    """For each copy the one whose value it gets."""
    copies = {copy.device: number for number, copy in enumerate(team.copies)}
    pairs = operation.attributes["source_target_pairs"].array.tolist()
    if across_devices(operation):
        sources = {target: source for source, target in pairs}
    else:
        sources = {device: device for device in copies} if pairs else {}
    is_whole = sorted(copies) == list(range(len(team.copies)))  # no copy stands for several devices
    if is_whole and not set(chain(*pairs)) <= set(copies):
        raise UnsupportedError(OTHER_DEVICES)
    return [copies.get(sources.get(copy.device, -1)) for copy in team.copies]


def device_number(operation: Operation, inputs: Values, scope: Scope) -> Node:
    return full(scope.walker.device, (), U32)


def replica_number(operation: Operation, inputs: Values, scope: Scope) -> Node:
    return full(0, (), U32)


MESSAGES: dict[str, TogetherRule] = {
    "stablehlo.all_gather": partial(by_groups, gathered, same),
    "stablehlo.all_reduce": partial(by_reductions, same),
    "stablehlo.all_to_all": partial(by_groups, members, exchanged),
    "stablehlo.collective_broadcast": partial(by_groups, first, same),
    "stablehlo.collective_permute": collective_permute,
    "stablehlo.reduce_scatter": partial(by_reductions, scattered),
}
TOGETHER: dict[str, TogetherRule] = {name: among_all(rule) for name, rule in MESSAGES.items()}
RULES: dict[str, Rule] = {
    **dict.fromkeys(TOGETHER, alone),
    DEVICE_NUMBER: device_number,
    "stablehlo.replica_id": replica_number,
}
