"""CHLO's arithmetic that broadcasts by itself: `chlo.broadcast_add` and its kin.

    broadcast_add(x[2,4], y[2], broadcast_dimensions [0])  ->  add(x, broadcast(y))

On complex numbers jaxlib's pass writes them out, where the smaller operand's axes are the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tinyhlo.import_stablehlo.records import Form, Operation
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
        given = tuple(spread(value, shape, axes) for value in inputs)
        types = tuple(TensorType(shape, value.dtype) for value in given)
        base = replace(operation, name=f"stablehlo.{name}", operand_types=types, form=Form.PLAIN)
        return apply_rule(scope.walker.rule_of(base), base, given, scope)

    return rule


def spread(value: Node, shape: Shape, axes: Sequence[int] | None) -> Node:
    """`value` in `shape`: its axes are the last ones, or `axes`; sizes of one are repeated."""
    rank = len(value.shape)
    if axes is None or rank == len(shape):
        axes = range(len(shape) - rank, len(shape))
    kept = [axis for axis, size in zip(axes, value.shape, strict=True) if size == shape[axis]]
    dropped = reshape(value, tuple(shape[axis] for axis in kept))
    return broadcast(dropped, shape, kept)


RULES: dict[str, Rule] = {f"chlo.broadcast_{name}": broadcasting(name) for name in OPS.split()}
