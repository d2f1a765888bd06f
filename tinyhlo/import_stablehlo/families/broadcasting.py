"""CHLO's arithmetic that broadcasts by itself: `chlo.broadcast_add` and its kin.

    broadcast_add(x[2,4], y[2], broadcast_dimensions [0])  ->  add(x, broadcast(y))

Of every element type: planes of complex numbers and bits of small ones are repeated as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tinyhlo.import_stablehlo.lifted.complex_numbers import by_plane
from tinyhlo.import_stablehlo.records import Operation, ValueType
from tinyhlo.import_stablehlo.walker import Rule, Scope, Value, apply_rule
from tinyhlo.ir.build import broadcast, reshape
from tinyhlo.ir.graph import Node, Shape, TensorType

OPS = """
    add and atan2 compare divide maximum minimum multiply or power remainder select
    shift_left shift_right_arithmetic shift_right_logical subtract xor
"""


def broadcasting(name: str) -> Rule:
    """The rule of `chlo.broadcast_NAME`."""

    def rule(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Value]:
        shape = operation.type.shape
        axes = operation.attributes.get("broadcast_dimensions")
        given = tuple(by_plane(partial(spread, shape=shape, axes=axes), value) for value in inputs)
        types = tuple(in_shape(type_, shape) for type_ in operation.operand_types)
        base = replace(operation, name=f"stablehlo.{name}", operand_types=types)
        return apply_rule(scope.walker.rule_of(base), base, given, scope)

    return rule


def in_shape(type_: ValueType, shape: Shape) -> ValueType:
    return TensorType(shape, type_.dtype) if isinstance(type_, TensorType) else type_


def spread(value: Node, shape: Shape, axes: Sequence[int] | None) -> Node:
    """`value` in `shape`: its axes are the last ones, or `axes`; sizes of one are repeated."""
    rank = len(value.shape)
    if axes is None or rank == len(shape):
        axes = range(len(shape) - rank, len(shape))
    kept = [axis for axis, size in zip(axes, value.shape, strict=True) if size == shape[axis]]
    dropped = reshape(value, tuple(shape[axis] for axis in kept))
    return broadcast(dropped, shape, kept)


RULES: dict[str, Rule] = {f"chlo.broadcast_{name}": broadcasting(name) for name in OPS.split()}
