"""sort, and the approximate top k, which here is the exact one.

    custom_call @ApproxTopK(%x, %positions, ...) {top_k = 5, reduction_dim = 1, ...}
    ->  the first elements of sort(x, positions) along axis 1

A sort of which only the first elements are read does not order the rest (`ir/limit.py`). Where JAX
asks for more candidates than k, they are the next ones in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyhlo.import_stablehlo.in_turn import sort
from tinyhlo.import_stablehlo.lifted.lifting import flat_types
from tinyhlo.import_stablehlo.records import Block, Operation
from tinyhlo.import_stablehlo.walker import Rule, Scope, UnsupportedError, Value
from tinyhlo.ir.build import param
from tinyhlo.ir.graph import Graph, Node, TensorType
from tinyhlo.ir.joining import part
from tinyhlo.ir.simplify import inline


def sort_op(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Value]:
    rank = len(inputs[0].shape)
    axis = operation.attributes.get("dimension", -1)
    if inputs[0].shape[axis] < 2:
        return inputs  # rows of one are sorted
    comparator = by_pairs(scope.graph(operation.regions[0]), operation.regions[0])
    return sort(inputs, axis + rank if axis < 0 else axis, comparator)


def by_pairs(comparator: Graph, region: Block) -> Graph:
    """The comparator with its params in pairs (left, right) also where a complex value is two."""
    places = list(range(len(comparator.params)))
    following = iter(places)
    planes = [[next(following) for _ in flat_types([type_])] for type_ in region.types]
    pairs = zip(planes[::2], planes[1::2], strict=True)
    order = [
        place for left, right in pairs for pair in zip(left, right, strict=True) for place in pair
    ]
    if order == places:
        return comparator
    types = tuple(comparator.params[place] for place in order)
    params = [param(order.index(k), t.shape, t.dtype) for k, t in enumerate(comparator.params)]
    return Graph(types, inline(comparator.results, params), (), comparator.locations)


def approx_top_k(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Node]:
    match operation.attributes:
        case {"mhlo.backend_config": {"reduction_dim": axis}, "called_computations": [comparator]}:
            axis = int(axis)
        case _:
            raise UnsupportedError("it says neither reduction_dim nor a comparator, as JAX does")
    values = inputs[: len(inputs) // 2]  # the rest are fillers for places without a value
    order = scope.graph(scope.walker.decoder.function(comparator).body)
    results: list[Node] = []
    for value, type_ in zip(sort(values, axis, order), operation.types, strict=True):
        assert isinstance(type_, TensorType)
        if type_.shape[axis] > value.shape[axis]:
            raise UnsupportedError("it asks for more elements than there are")
        results.append(part(value, axis, 0, type_.shape[axis]))
    return results


RULES: dict[str, Rule] = {"stablehlo.sort": sort_op}
TARGETS: dict[str, Rule] = {"ApproxTopK": approx_top_k}
