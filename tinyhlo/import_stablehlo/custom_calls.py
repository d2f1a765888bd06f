"""custom_call: annotations pass their value on, every other call becomes a LibraryCall.

    custom_call @tiny.callback(%x) {has_side_effect = true}  ->  LibraryCall, an effect of its Graph

Its attributes are those of the call's `mhlo.backend_config`, or a text as `backend_config`. Tokens
are no operands and no results: effects run in program order anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyhlo.import_stablehlo.memory import buffer_of, loaded
from tinyhlo.import_stablehlo.records import Operation, TokenType, ValueType
from tinyhlo.import_stablehlo.walker import Rule, Scope, UnsupportedError, Value
from tinyhlo.ir.build import ORDER, library_call
from tinyhlo.ir.elements import stored
from tinyhlo.ir.graph import TensorType
from tinyhlo.runtime.library import REGISTRY

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
REGISTER = "tinyhlo.register_custom_call({!r}, function), or run it on XLA"
SEVERAL_DEVICES = "this program is for several devices: jit it for one device"


def custom_call(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Value]:
    target = operation.attributes["call_target_name"]
    if target not in ANNOTATIONS or len(inputs) != 1:
        return call_library(target, operation, inputs, scope)
    if operation.operand_types != operation.types:
        raise UnsupportedError(SEVERAL_DEVICES)
    return inputs


def call_library(
    target: str, operation: Operation, inputs: tuple[Any, ...], scope: Scope
) -> Sequence[Value]:
    """The call over buffers. Types that are stored as others stand in its attributes."""
    if target not in REGISTRY:
        raise UnsupportedError(f"no function of that name: {REGISTER.format(target)}")
    operands = tensors(operation.operand_types)
    types = tensors(operation.types)
    attributes = attributes_of(operation)
    for name, seen in (("operands", operands), ("results", types)):
        if tuple(map(stored, seen)) != seen:
            attributes[name] = seen
    if operation.effect:
        attributes[ORDER] = scope.walker.effect_number()
    given = [buffer_of(value) for value in inputs if value is not None]
    results = library_call(target, given, tuple(map(stored, types)), attributes, operation.effect)
    if operation.effect:
        scope.walker.add_effect(results)
    following = iter(results)
    return [
        None if isinstance(type_, TokenType) else loaded(next(following), type_)
        for type_ in operation.types
    ]


def tensors(types: Sequence[ValueType]) -> tuple[TensorType, ...]:
    """The types but tokens."""
    kept = [type_ for type_ in types if not isinstance(type_, TokenType)]
    if not all(isinstance(type_, TensorType) for type_ in kept):
        raise UnsupportedError("pass arrays to it, not tuples")
    return tuple(kept)  # type: ignore[arg-type]


def attributes_of(operation: Operation) -> dict[str, Any]:
    """What the call says besides its operands."""
    given = operation.attributes.get("mhlo.backend_config")
    if isinstance(given, dict):
        return dict(given)
    text = operation.attributes.get("backend_config", "")
    return dict(text) if isinstance(text, dict) else {"backend_config": text} if text else {}


RULES: dict[str, Rule] = {"stablehlo.custom_call": custom_call}
