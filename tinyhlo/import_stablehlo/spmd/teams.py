"""Per-device bodies: run for all devices together, one operation after another.

    y = all_reduce(x)   ->   y[0] = y[1] = x[0] + x[1]

A body runs in one copy per device along its manual axes, the values of all copies side by side. A
collective sees the values of all copies and becomes ordinary ops over them; every other op is
applied copy by copy. What copies compute from the same values is the same node, so that replicated
work is done once. Outside of such bodies there is one copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tinyhlo.import_stablehlo.records import Block, Operation, ValueType, names
from tinyhlo.import_stablehlo.spmd.pieces import Holders
from tinyhlo.import_stablehlo.spmd.sharding import Coordinates
from tinyhlo.import_stablehlo.spmd.spread import Item, fetched, whole
from tinyhlo.import_stablehlo.walker import (
    Scope,
    UnsupportedError,
    Value,
    Walker,
    checked,
    placeholder,
)
from tinyhlo.ir.graph import Node
from tinyhlo.records import dataclass

Values = tuple[Value, ...]  # of one copy


@dataclass(frozen=True, slots=True)
class Copy:
    """A run of a body on one device: its number, and where it is along the manual axes. Along other
    axes the copy stands for all devices, and `device` is the first of them."""

    device: int
    at: Coordinates


ALONE = (Copy(0, {}),)  # what is outside of per-device bodies


@dataclass(frozen=True, slots=True)
class Team:
    """The copies of a body, and the values around each. Where other processes run the program too:
    `everyone` are the copies of all, `holders` who runs each, and `copies` those of this one."""

    walker: Walker
    copies: tuple[Copy, ...]
    around: Sequence[Mapping[int, Value]]
    everyone: tuple[Copy, ...] = ()
    holders: tuple[Holders, ...] = ()

    @property
    def own(self) -> Sequence[int]:
        """The numbers of the copies among those of all processes."""
        here = self.walker.placement.here
        shared = [number for number, who in enumerate(self.holders) if here in who]
        return shared if self.holders else range(len(self.copies))

    def run(self, block: Block, arguments: Sequence[Values]) -> list[Values]:
        """Results of a block for each copy; see `Walker.run`."""
        if self.copies is ALONE:
            return [self.walker.run(block, arguments[0], self.around[0])]
        values = [{slot: outer[slot] for slot in block.captures} for outer in self.around]
        for own, given in zip(values, arguments, strict=True):
            own.update(zip(block.arguments, given, strict=True))
        inner = replace(self, around=values)
        for operation in block.operations:
            inputs = [tuple([own[slot] for slot in operation.operands]) for own in values]
            step = step_together if is_together(operation, self.walker) else step_each
            results = step(operation, inputs, inner)
            for own, found in zip(values, results, strict=True):
                own.update(zip(operation.results, found, strict=True))
        return [tuple([own[slot] for slot in block.returned]) for own in values]

    def region(
        self,
        block: Block,
        arguments: Sequence[Values],
        finish: Callable[[Values], Values] | None = None,
    ) -> tuple[list[Values], tuple[Node, ...]]:
        """(results, effects in order) of a block that becomes a Graph of its own; `finish` makes of
        a copy's results what the Graph gives, which is whole without it."""

        def whole_values(values: Values) -> Values:
            return tuple([whole(value, self.walker) for value in values])

        return self.walker.collect(
            lambda: list(map(finish or whole_values, self.run(block, arguments)))
        )


def of_everyone(
    team: Team,
    values: Sequence[Values],
    types: Sequence[ValueType],
    needed: Sequence[Holders],
) -> list[Values]:
    """The values of the copies of all processes: of each, what the processes that have `needed` it
    are sent. Elsewhere it is None."""
    known, absent = dict(zip(team.own, values, strict=True)), (None,) * len(types)
    items = [
        Item(value, type_, who, readers)
        for number, (who, readers) in enumerate(zip(team.holders, needed, strict=True))
        for value, type_ in zip(known.get(number, absent), types, strict=True)
    ]
    found = iter(fetched(items, team.walker))
    return [tuple([next(found) for _ in types]) for _ in needed]


# (op, operands of each copy, the copies and what is around the op) -> results of each copy
TogetherRule = Callable[[Operation, Sequence[Values], Team], Sequence[Values]]

DEVICE_NUMBER = "stablehlo.partition_id"

# ops that see all copies only where those may have to do with each other in their blocks
CONTROL = names("async_start case composite if while") | {"func.call"}


def rule_name(operation: Operation) -> str:
    """An op's name, or what a custom call calls."""
    return operation.attributes.get("call_target_name") or operation.name


def alone(operation: Operation, inputs: Values, scope: Scope) -> Values:
    """The rule of an op that sees all copies, outside of per-device bodies."""
    rule = scope.walker.together[rule_name(operation)]
    return rule(operation, [inputs], Team(scope.walker, ALONE, [scope.values]))[0]


def is_together(operation: Operation, walker: Walker) -> bool:
    """Whether the rule of this op sees all copies: where it must, and where a region gives each its
    own results, though what they have in common is to be done once."""
    asked = operation.name in CONTROL and asks(operation, walker)
    return asked or communicates(operation, walker)


def communicates(operation: Operation, walker: Walker) -> bool:
    """Whether copies must run this op together."""
    if operation.name not in CONTROL:
        return rule_name(operation) in walker.together
    return any(holds(communicates, block, walker) for block in blocks_of(operation, walker))


def asks(operation: Operation, walker: Walker) -> bool:
    """Whether this op gives each copy its own result, whatever it reads."""
    if operation.name == DEVICE_NUMBER:
        return True
    blocks = blocks_of(operation, walker) if operation.name in CONTROL else operation.regions
    return any(holds(asks, block, walker) for block in blocks)


def blocks_of(operation: Operation, walker: Walker) -> list[Block]:
    """The regions of an op, or the body of the function that it calls."""
    callee = operation.attributes.get("callee") or operation.attributes.get("decomposition")
    return [walker.decoder.function(callee).body] if callee else list(operation.regions)


def holds(test: Callable[[Operation, Walker], bool], block: Block, walker: Walker) -> bool:
    """Whether `test` is true of an op of this block."""
    known, key = walker.known_contents, (id(block), test.__name__)
    if key not in known:
        known[key] = any(test(each, walker) for each in block.operations)
    return known[key]


def step_each(operation: Operation, inputs: Sequence[Values], team: Team) -> list[Values]:
    """Results of an op for each copy by itself; once for copies that read the same, unless it asks
    for their number."""
    walker, around_device = team.walker, team.walker.device
    asked = asks(operation, walker)
    captures = sorted({slot for block in operation.regions for slot in block.captures})
    known: dict[tuple[Any, ...], Values] = {}
    results: list[Values] = []
    for copy, given, around in zip(team.copies, inputs, team.around, strict=True):
        read = (asked and copy.device, *given, *(around[slot] for slot in captures))
        if operation.effect or read not in known:
            walker.device = copy.device
            known[read] = walker.step(operation, given, Scope(walker, around))
        results.append(known[read])
    walker.device = around_device
    return results


def step_together(operation: Operation, inputs: Sequence[Values], team: Team) -> Sequence[Values]:
    """Results of an op that sees all copies."""
    walker = team.walker
    try:
        if operation.refusal and operation.name != "func.call":
            raise UnsupportedError(operation.refusal)
        results = walker.together[rule_name(operation)](operation, inputs, team)
    except UnsupportedError as reason:
        walker.refuse(operation, str(reason))
        return [tuple(map(placeholder, operation.types))] * len(team.copies)
    for found in results:
        walker.note(operation, checked(operation, found))
    return results
