"""Rewrite rules of elementwise expressions as data: pattern -> result.

    RULES = by_op(Rule(mul(X, Splat(1)), X), Rule(neg(neg(X)), X, "float"))
    rewrite(node, RULES)     # the rewritten node, or None

A pattern is a `Hole` (the same hole matches the same node), a `Splat` (a constant repeated over
the whole shape; floats compare with the sign of zero) or an `Apply`. Commutative operators are
tried both ways round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import copysign
from typing import Union

import numpy as np

from tinyhlo.ir.build import elementwise, full, splat_value
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.graph import Elementwise, Node
from tinyhlo.ir.ops import COMMUTATIVE, Op
from tinyhlo.records import dataclass

KINDS = {
    "any": ("bool", "signed", "unsigned", "float"),
    "float": ("float",),
    "integer": ("signed", "unsigned"),
    "number": ("signed", "unsigned", "float"),
}


@dataclass(frozen=True, slots=True)
class Hole:
    """Matches any node."""

    name: str


@dataclass(frozen=True, slots=True)
class Splat:
    """Matches a constant of this value in every element; -1 of integers means all bits."""

    value: float | bool


@dataclass(frozen=True, slots=True)
class Apply:
    op: Op
    inputs: tuple[Pattern, ...]


Pattern = Union[Hole, Splat, Apply]


@dataclass(frozen=True, slots=True)
class Rule:
    """`pattern` -> `result` when the element type of the result is one of `kinds`."""

    pattern: Apply
    result: Pattern
    kinds: str = "any"


Rules = Mapping[Op, Sequence[Rule]]


def by_op(*rules: Rule) -> Rules:
    """A table of rules by the op that they begin with."""
    table: dict[Op, list[Rule]] = {}
    for rule in rules:
        table.setdefault(rule.pattern.op, []).append(rule)
    return table


def rewrite(node: Elementwise, rules: Rules) -> Node | None:
    """The result of the first rule that matches, or None."""
    for rule in rules.get(node.op, ()):
        if node.dtype.kind not in KINDS[rule.kinds]:
            continue
        found = match(rule.pattern, node, {})
        if found is not None:
            return build(rule.result, found, node)
    return None


def match(pattern: Pattern, node: Node, bound: dict[str, Node]) -> dict[str, Node] | None:
    """What the holes stand for, or None."""
    if isinstance(pattern, Hole):
        known = bound.get(pattern.name, node)
        return {**bound, pattern.name: node} if known is node else None
    if isinstance(pattern, Splat):
        value = splat_value(node)
        return bound if value is not None and equals(value, pattern.value, node.dtype) else None
    if not isinstance(node, Elementwise) or node.op is not pattern.op:
        return None
    found = match_all(pattern.inputs, node.inputs, bound)
    if found is None and node.op in COMMUTATIVE:
        found = match_all(pattern.inputs, node.inputs[::-1], bound)
    return found


def match_all(
    patterns: tuple[Pattern, ...], nodes: tuple[Node, ...], bound: dict[str, Node]
) -> dict[str, Node] | None:
    found: dict[str, Node] | None = bound
    for pattern, node in zip(patterns, nodes, strict=True):
        if found is None:
            return None
        found = match(pattern, node, found)
    return found


def build(pattern: Pattern, bound: dict[str, Node], like: Node) -> Node:
    match pattern:
        case Hole(name):
            return bound[name]
        case Splat(value):
            return full(value, like.shape, like.dtype)
        case Apply(op, inputs):
            return elementwise(op, *(build(inner, bound, like) for inner in inputs))


def equals(value: np.ndarray, wanted: float | bool, dtype: DType) -> bool:
    if dtype.is_float:
        found = float(value)
        return found == wanted and copysign(1, found) == copysign(1, wanted)
    if dtype.kind == "bool":
        return bool(value) == bool(wanted)
    return int(value) % (1 << dtype.bits) == int(wanted) % (1 << dtype.bits)
