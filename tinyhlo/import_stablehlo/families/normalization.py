"""batch_norm_inference, _training and _grad, written out.

inference:  (x - mean) / sqrt(variance + epsilon) * scale + offset

All of it in f32 for halves, whose results are rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyhlo.import_stablehlo.families.elementwise import in_wide
from tinyhlo.import_stablehlo.walker import Rule, on_values
from tinyhlo.ir.build import broadcast, reduce, sqrt
from tinyhlo.ir.graph import Node
from tinyhlo.ir.ops import Op
from tinyhlo.records import dataclass


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


def inference(
    x: Node, scale: Node, offset: Node, mean: Node, variance: Node, axis: int, epsilon: float
) -> Node:
    features = Features(x, axis)
    scaled = (x - features.spread(mean)) / features.spread(sqrt(variance + epsilon))
    return scaled * features.spread(scale) + features.spread(offset)


def training(x: Node, scale: Node, offset: Node, axis: int, epsilon: float) -> Sequence[Node]:
    features = Features(x, axis)
    mean = features.mean(x)
    centred = x - features.spread(mean)
    variance = features.mean(centred * centred)
    return [inference(x, scale, offset, mean, variance, axis, epsilon), mean, variance]


def gradient(
    x: Node, scale: Node, mean: Node, variance: Node, grad: Node, axis: int, epsilon: float
) -> Sequence[Node]:
    """dx = scale / deviation * (dy - mean(dy) - x^ * mean(dy * x^)), x^ the normalised x
    (StableHLO specification, batch_norm_grad)."""
    features, divisor = Features(x, axis), sqrt(variance + epsilon)
    centred = x - features.spread(mean)
    unit = centred / features.spread(divisor)
    product = grad * unit
    rest = grad - features.spread(features.mean(grad))
    rest = rest - unit * features.spread(features.mean(product))
    factor = features.spread(scale / divisor)
    return [factor * rest, features.total(product), features.total(grad)]


GIVEN = ("feature_index", "epsilon")
RULES: dict[str, Rule] = {
    "stablehlo.batch_norm_inference": on_values(in_wide(inference), *GIVEN),
    "stablehlo.batch_norm_training": on_values(in_wide(training), *GIVEN),
    "stablehlo.batch_norm_grad": on_values(in_wide(gradient), *GIVEN),
}
