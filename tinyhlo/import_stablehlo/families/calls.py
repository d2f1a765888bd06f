"""Calls, composites, tuples, futures, barriers and annotations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tinyhlo.import_stablehlo.records import CONSTANTS, Operation
from tinyhlo.import_stablehlo.walker import Rule, Scope, Value, apply_rule, on_values
from tinyhlo.ir.build import barrier
from tinyhlo.ir.graph import Node


def call(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Value]:
    return scope.walker.call(operation.attributes["callee"], inputs, operation.location)


def composite(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Value]:
    """A named op with its decomposition: by the rule of that op where there is one, and where what
    it does is in its name, not in attributes that the composite may not have."""
    name = operation.attributes["name"]
    own = name.startswith("chlo.") and not name.startswith("chlo.broadcast_")
    own = own and name not in CONSTANTS
    rule = scope.walker.rule_of(replace(operation, name=name)) if own else None
    if rule is not None:
        return apply_rule(rule, operation, inputs, scope)
    return scope.walker.call(operation.attributes["decomposition"], inputs, operation.location)


def barriers(*values: Value) -> Sequence[Value]:
    return [barrier(value) if isinstance(value, Node) else value for value in values]


IDENTITIES = ("sdy.sharding_constraint", "sdy.reshard", "sdy.propagation_barrier")

RULES: dict[str, Rule] = {
    "func.call": call,
    "stablehlo.composite": composite,
    "stablehlo.optimization_barrier": on_values(barriers),
    "stablehlo.tuple": on_values(lambda *members: [members]),
    "stablehlo.get_tuple_element": on_values(lambda members, index: [members[index]], "index"),
    "stablehlo.after_all": on_values(lambda *tokens: [None]),
    "stablehlo.create_token": on_values(lambda: [None]),
    "stablehlo.async_done": on_values(lambda results: results),
    **dict.fromkeys(IDENTITIES, on_values(lambda *values: values)),
}
