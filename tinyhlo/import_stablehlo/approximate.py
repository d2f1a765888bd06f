"""The approximate top k, which here is the exact one.

    custom_call @ApproxTopK(%x, %positions, ...) {top_k = 5, reduction_dim = 1, ...}
    ->  the first elements of sort(x, positions) along axis 1

A sort of which only the first elements are read does not order the rest (`ir/limit.py`). Where JAX
asks for more candidates than k, they are the next ones in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyhlo.import_stablehlo.records import Operation
from tinyhlo.import_stablehlo.walker import Rule, Scope, UnsupportedError
from tinyhlo.ir.build import slice_, sort
from tinyhlo.ir.graph import Node, TensorType


def approx_top_k(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Node]:
    given: dict[str, Any] = operation.attributes["mhlo.backend_config"]
    (comparator,) = operation.attributes["called_computations"]
    values = inputs[: len(inputs) // 2]  # the rest are fillers for places without a value
    axis = int(given["reduction_dim"])
    order = scope.graph(scope.walker.decoder.function(comparator).body)
    results: list[Node] = []
    for value, type_ in zip(sort(values, axis, order), operation.types, strict=True):
        assert isinstance(type_, TensorType)
        if type_.shape[axis] > value.shape[axis]:
            raise UnsupportedError("it asks for more elements than there are")
        results.append(slice_(value, [0] * len(type_.shape), type_.shape))
    return results


TARGETS: dict[str, Rule] = {"ApproxTopK": approx_top_k}
