"""Calls, composites, tuples, barriers, annotations, and collectives of a single device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tinyhlo.import_stablehlo.records import Operation
from tinyhlo.import_stablehlo.walker import (
    DTYPE,
    Rule,
    Scope,
    UnsupportedError,
    Value,
    on_values,
)
from tinyhlo.ir.build import barrier, full
from tinyhlo.ir.graph import Node

SEVERAL_DEVICES = "this program is for several devices: jit it for one device"


def call(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Value]:
    return scope.walker.call(operation.attributes["callee"], inputs, operation.location)


def composite(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Value]:
    """A named op with its decomposition: by the rule of that op where there is one."""
    name = operation.attributes["name"]
    rule = scope.walker.rule_of(replace(operation, name=name)) if "chlo." in name else None
    if rule is not None:
        return [rule(operation, inputs, scope)]  # type: ignore[list-item]
    return scope.walker.call(operation.attributes["decomposition"], inputs, operation.location)


def barriers(*values: Value) -> Sequence[Value]:
    return [barrier(value) if isinstance(value, Node) else value for value in values]


def collective(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Value]:
    """On one device the value stays what it is."""
    if operation.operand_types[: len(operation.types)] != operation.types:
        raise UnsupportedError(SEVERAL_DEVICES)
    return inputs


def collective_permute(
    operation: Operation, inputs: tuple[Any, ...], scope: Scope
) -> Sequence[Value]:
    """Device 0 receives its own value, or zeros when nobody sends to it."""
    pairs = operation.attributes["source_target_pairs"].array.tolist()
    if any(device != 0 for pair in pairs for device in pair):
        raise UnsupportedError(SEVERAL_DEVICES)
    return inputs if pairs else [full(0, node.shape, node.dtype) for node in inputs]


def manual_computation(
    operation: Operation, inputs: tuple[Any, ...], scope: Scope
) -> Sequence[Value]:
    """A per-device body: on one device its arguments are the whole arrays."""
    (body,) = operation.regions
    if body.types != operation.operand_types:
        raise UnsupportedError(SEVERAL_DEVICES)
    return scope.run(body, inputs)


def async_start(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Value]:
    """Its region runs here; the future is the tuple of its results."""
    return [scope.run(operation.regions[0], inputs)]


COLLECTIVES = (
    "stablehlo.all_reduce",
    "stablehlo.all_gather",
    "stablehlo.all_to_all",
    "stablehlo.reduce_scatter",
    "stablehlo.collective_broadcast",
)
DEVICE_NUMBERS = ("stablehlo.partition_id", "stablehlo.replica_id")
IDENTITIES = ("sdy.sharding_constraint", "sdy.reshard", "sdy.propagation_barrier")

RULES: dict[str, Rule] = {
    "func.call": call,
    "stablehlo.composite": composite,
    "stablehlo.optimization_barrier": on_values(barriers),
    "stablehlo.tuple": on_values(lambda *members: [members]),
    "stablehlo.get_tuple_element": on_values(lambda members, index: [members[index]], "index"),
    "stablehlo.after_all": on_values(lambda *tokens: [None]),
    "stablehlo.create_token": on_values(lambda: [None]),
    "stablehlo.async_start": async_start,
    "stablehlo.async_done": on_values(lambda results: results),
    "stablehlo.collective_permute": collective_permute,
    **dict.fromkeys(DEVICE_NUMBERS, on_values(partial(full, 0, ()), DTYPE)),
    "sdy.manual_computation": manual_computation,
    **dict.fromkeys(COLLECTIVES, collective),
    **dict.fromkeys(IDENTITIES, on_values(lambda *values: values)),
}
