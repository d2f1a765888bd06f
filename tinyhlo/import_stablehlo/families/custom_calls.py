"""custom_call: annotations pass their value on, every other call becomes a LibraryCall.

    custom_call @tiny.callback(%x) {has_side_effect = true}  ->  LibraryCall, an effect of its Graph

Its attributes are those of the call's `mhlo.backend_config`, or a text as `backend_config`. Tokens
are no operands and no results: effects run in program order anyway. An operand or result whose
layout is not row-major is permuted, so that it lies in memory as the function expects.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tinyhlo.import_stablehlo.families import linalg, sorting
from tinyhlo.import_stablehlo.memory import (
    buffer_of,
    call_buffers,
    in_order,
    in_order_type,
    loaded,
    orders,
    out_of_order,
)
from tinyhlo.import_stablehlo.records import Operation, TokenType, ValueType
from tinyhlo.import_stablehlo.spmd.spread import Item, fetched
from tinyhlo.import_stablehlo.walker import Rule, Scope, UnsupportedError, Value
from tinyhlo.ir.build import ALIASES, ORDER
from tinyhlo.ir.elements import stored
from tinyhlo.ir.graph import TensorType
from tinyhlo.runtime.library import VERSION
from tinyhlo.runtime.targets import find

# calls that say where data lives or how it is split: the value passes through
ANNOTATIONS = frozenset(
    {
        "Sharding",
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "annotate_device_placement",
        "LayoutConstraint",
        "MoveToDevice",
        "MoveToHost",
        "xla.sdy.FuncResultSharding",
        "xla.sdy.GlobalToLocalShape",
        "xla.sdy.LocalToGlobalShape",
    }
)
NO_SHARDS = "parts of arrays are made by Shardy here: leave jax_use_shardy_partitioner on"
ALIAS = re.compile(r"output_tuple_indices = \[(\d*)\], *operand_index = (\d+)")
ORDERING = "control_dep"  # a call that only asks XLA to run one op after another
REGISTER = "tinyhlo.register_custom_call({!r}, function), or run it on XLA"


def custom_call(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Value]:
    target = operation.attributes["call_target_name"]
    rule = linalg.TARGETS.get(target) or sorting.TARGETS.get(target)
    if rule is not None:
        return rule(operation, inputs, scope)  # type: ignore[return-value]
    if target == ORDERING:
        return ()
    if target not in ANNOTATIONS or len(inputs) != 1:
        walker = scope.walker
        once = walker.placement.is_shared and not walker.per_device and operation.effect
        results = (call_once if once else call_library)(target, operation, inputs, scope)
        return linalg.promised(target, results)
    if operation.operand_types != operation.types:
        raise UnsupportedError(NO_SHARDS)
    return inputs


def call_library(
    target: str, operation: Operation, inputs: tuple[Any, ...], scope: Scope
) -> Sequence[Value]:
    """The call over buffers."""
    if find(target) is None:
        raise UnsupportedError(f"no function of that name: {REGISTER.format(target)}")
    attributes = attributes_of(operation)
    aliases = aliases_of(operation)
    if aliases:
        attributes[ALIASES] = aliases
    version = operation.attributes.get("api_version", 1)
    if version in (2, 3):
        attributes[VERSION] = version
    if operation.effect:
        attributes[ORDER] = scope.walker.effect_number()
    operands = tensors(operation.operand_types)
    types = tensors(operation.types)
    operand_orders = orders(operation, "operand_layouts", operation.operand_types)
    result_orders = orders(operation, "result_layouts", operation.types)
    values = [value for value in inputs if value is not None]
    given = [in_order(buffer_of(v), order) for v, order in zip(values, operand_orders, strict=True)]
    buffers = [in_order_type(stored(t), o) for t, o in zip(types, result_orders, strict=True)]
    results = call_buffers(
        target, given, operands, buffers, types, attributes, effect=operation.effect
    )
    if operation.effect:
        scope.walker.add_effect(results)
    placed = iter(zip(results, result_orders, strict=False))  # a call node stands for no result
    return [
        None if isinstance(type_, TokenType) else loaded(out_of_order(*next(placed)), type_)
        for type_ in operation.types
    ]


def call_once(
    target: str, operation: Operation, inputs: tuple[Any, ...], scope: Scope
) -> Sequence[Value]:
    """A call of a program that several processes run, outside of per-device bodies: for its effect
    it is made by the first device's, which sends its results to the others."""
    placement, types = scope.walker.placement, operation.types
    first = placement.processes[0]
    made: Sequence[Value] = [None] * len(types)
    if placement.here == first:
        made = call_library(target, operation, inputs, scope)
    who, everyone = frozenset([first]), placement.everyone
    items = [Item(*one, who, everyone) for one in zip(made, types, strict=True)]
    return fetched(items, scope.walker)


def tensors(types: Sequence[ValueType]) -> tuple[TensorType, ...]:
    """The types but tokens."""
    kept = [type_ for type_ in types if not isinstance(type_, TokenType)]
    if not all(isinstance(type_, TensorType) for type_ in kept):
        raise UnsupportedError("pass arrays to it, not tuples")
    return tuple(kept)  # type: ignore[arg-type]


def attributes_of(operation: Operation) -> dict[str, Any]:
    """What the call says besides its operands."""
    given = operation.attributes
    for key in ("mhlo.backend_config", "backend_config"):
        if isinstance(given.get(key), dict):
            return dict(given[key])
    text = given.get("backend_config")
    return {"backend_config": text} if text else {}


def aliases_of(operation: Operation) -> tuple[tuple[int, int], ...]:
    """(result, operand) pairs of `output_operand_aliases`, tokens not counted."""
    found: list[tuple[int, int]] = []
    for text in operation.attributes.get("output_operand_aliases", ()):
        numbers = ALIAS.search(text)
        if numbers is None:
            raise UnsupportedError("operands and results that are tuples cannot share memory")
        results = tensors(operation.types[: int(numbers[1] or 0)])
        operands = tensors(operation.operand_types[: int(numbers[2])])
        found.append((len(results), len(operands)))
    return tuple(found)


RULES: dict[str, Rule] = {"stablehlo.custom_call": custom_call}
