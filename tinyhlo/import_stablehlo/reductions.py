"""reduce: a monoid becomes Reduce, anything else a MultiReduce with the region as combiner.

reduce(x init: 0) applies add across [1]  ->  Reduce(ADD, x, (1,))
argmax                                    ->  Reduces of its own: `extremes.py`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyhlo.import_stablehlo.extremes import first_extreme
from tinyhlo.import_stablehlo.monoids import monoids_of, widen, with_initial
from tinyhlo.import_stablehlo.records import Operation
from tinyhlo.import_stablehlo.walker import Rule, Scope, Value
from tinyhlo.ir.build import cast, multi_reduce, reduce
from tinyhlo.ir.graph import Graph, Node


def reduce_op(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Value]:
    count = len(inputs) // 2
    combiner = scope.graph(operation.regions[0])
    axes = operation.attributes["dimensions"]
    results = reduce_arrays(inputs[:count], inputs[count:], axes, combiner)
    return [cast(node, type_.dtype) for node, type_ in zip(results, operation.types, strict=True)]  # type: ignore[union-attr]


def reduce_arrays(
    sources: Sequence[Node], initials: Sequence[Node], axes: Sequence[int], combiner: Graph
) -> Sequence[Node]:
    """The reduction of arrays over `axes`, in the combiner's types."""
    count = len(sources)
    initials = [
        cast(node, type_.dtype)
        for node, type_ in zip(initials, combiner.params[:count], strict=True)
    ]
    sources = [
        cast(node, type_.dtype)
        for node, type_ in zip(sources, combiner.params[count:], strict=True)
    ]
    monoids = monoids_of(combiner)
    if monoids is None:
        extreme = first_extreme(sources, initials, axes, combiner)
        if extreme is not None:
            return extreme
        return multi_reduce(sources, initials, axes, combiner)
    return [
        cast(with_initial(op, reduce(op, widen(op, source), axes), initial), source.dtype)
        for op, source, initial in zip(monoids, sources, initials, strict=True)
    ]


RULES: dict[str, Rule] = {"stablehlo.reduce": reduce_op}
