"""batch_norm_inference, _training and _grad, written out.

inference:  (x - mean) / sqrt(variance + epsilon) * scale + offset
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tinyhlo.import_stablehlo.operands import like
from tinyhlo.import_stablehlo.records import Operation
from tinyhlo.import_stablehlo.walker import Rule, Scope, Value
from tinyhlo.ir.build import broadcast, reduce, sqrt
from tinyhlo.ir.graph import Node
from tinyhlo.ir.ops import Op


@dataclass(frozen=True, slots=True)
class Features:
    """An array seen as its features: every other axis is averaged over."""

    array: Node
    axis: int

    def spread(self, per_feature: Node) -> Node:
        return broadcast(per_feature, self.array.shape, (self.axis,))

    def total(self, values: Node) -> Node:
        return reduce(Op.ADD, values, [k for k in range(len(values.shape)) if k != self.axis])

    def mean(self, values: Node) -> Node:
        total = self.total(values)
        count = values.type.size // max(1, values.shape[self.axis])
        return total / count


def inference(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    x, scale, offset, mean, variance = inputs
    features = Features(x, operation.attributes["feature_index"])
    return normalized(features, scale, offset, mean, variance, operation)


def normalized(
    features: Features, scale: Node, offset: Node, mean: Node, variance: Node, operation: Operation
) -> Node:
    centred = features.array - features.spread(mean)
    scaled = centred / features.spread(deviation(variance, operation))
    scaled = scaled * features.spread(scale)
    return scaled + features.spread(offset)


def deviation(variance: Node, operation: Operation) -> Node:
    """sqrt(variance + epsilon)"""
    epsilon = like(operation.attributes["epsilon"], variance)
    return sqrt(variance + epsilon)


def training(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Value]:
    x, scale, offset = inputs
    features = Features(x, operation.attributes["feature_index"])
    mean = features.mean(x)
    centred = x - features.spread(mean)
    variance = features.mean(centred * centred)
    return [normalized(features, scale, offset, mean, variance, operation), mean, variance]


def gradient(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Value]:
    """dx = scale / deviation * (dy - mean(dy) - x^ * mean(dy * x^)), x^ the normalised x
    (StableHLO specification, batch_norm_grad)."""
    x, scale, mean, variance, grad = inputs
    features = Features(x, operation.attributes["feature_index"])
    divisor = deviation(variance, operation)
    centred = x - features.spread(mean)
    unit = centred / features.spread(divisor)
    product = grad * unit
    rest = grad - features.spread(features.mean(grad))
    rest = rest - unit * features.spread(features.mean(product))
    factor = features.spread(scale / divisor)
    return [factor * rest, features.total(product), features.total(grad)]


RULES: dict[str, Rule] = {
    "stablehlo.batch_norm_inference": inference,
    "stablehlo.batch_norm_training": training,
    "stablehlo.batch_norm_grad": gradient,
}
