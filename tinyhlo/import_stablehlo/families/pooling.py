"""select_and_scatter, the gradient of max pooling, in gather form.

Each window finds the linear index of the element it selects. Each element then sums the sources of
those windows, among the ceil(size / stride) along each axis that may cover it, which selected it.
Everything is views, compares and reduces; nothing is written at a computed place. Scatter regions
other than a sum use Scatter.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tinyhlo.import_stablehlo.families.covering import covering_windows, repeated
from tinyhlo.import_stablehlo.families.reductions import monoids_of, widen, with_initial
from tinyhlo.import_stablehlo.families.sliding import Windows, windows_of
from tinyhlo.import_stablehlo.in_turn import fold, scatter
from tinyhlo.import_stablehlo.lifted.lifting import as_params
from tinyhlo.import_stablehlo.operands import element_numbers
from tinyhlo.import_stablehlo.records import Operation
from tinyhlo.import_stablehlo.walker import Rule, Scope
from tinyhlo.ir.build import broadcast, cast, param, reduce, reshape, scalar, where
from tinyhlo.ir.dtypes import DType, index_dtype
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import inline

NOWHERE = -1  # linear index of padding


def select_and_scatter(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    operand, source, initial = inputs
    select, combine = (scope.graph(region) for region in operation.regions)
    source, initial = as_params(
        operation.regions[1].types, operation.operand_types[1:], (source, initial)
    )
    if not source.type.size:
        return broadcast(initial, operand.shape)
    size = operation.attributes.get("window_dimensions") or (1,) * len(operand.shape)
    windows = windows_of(operation.attributes, size)
    chosen = selected_index(operand, windows, select)
    if monoids_of(combine) == [Op.ADD]:
        return gathered(operand, source, initial, chosen, windows)
    return scattered(operand, source, initial, chosen, combine)


def selected_index(operand: Node, windows: Windows, select: Graph) -> Node:
    """For each window the linear index of the element that `select` keeps."""
    index = element_numbers(operand.shape, scalar(0, index_dtype([operand.type.size])))
    nowhere = scalar(NOWHERE, index.dtype)
    nothing = scalar(0, operand.dtype)
    values, axes = windows.slide(operand, nothing)
    places, _ = windows.slide(index, nowhere)
    combiner = selection(select, operand.dtype, index.dtype)
    return fold([values, places], [nothing, nowhere], axes, combiner)[1]


def selection(select: Graph, dtype: DType, index: DType) -> Graph:
    """(value, place) of two elements -> the pair that `select` keeps; padding never wins."""
    left, left_place = param(0, (), dtype), param(1, (), index)
    right, right_place = param(2, (), dtype), param(3, (), index)
    selected = inline(select.results, (left, right))
    right_empty = right_place.equals(NOWHERE)
    left_exists = left_place.differs(NOWHERE)
    keep = right_empty | (left_exists & selected[0])
    params = (left.type, left_place.type, right.type, right_place.type)
    return Graph(params, (where(keep, left, right), where(keep, left_place, right_place)))


def gathered(operand: Node, source: Node, initial: Node, chosen: Node, windows: Windows) -> Node:
    """Sum, for each element, of the sources of the windows that chose it."""
    stride = tuple(
        step if count > 1 else size
        for step, count, size in zip(windows.stride, source.shape, windows.size, strict=True)
    )
    covering = covering_windows(replace(windows, stride=stride), source.shape, operand.shape)
    nowhere, nothing = scalar(NOWHERE, chosen.dtype), scalar(0, source.dtype)
    places, axes = covering.slide(repeated(chosen, stride), nowhere)
    sources, _ = covering.slide(repeated(source, stride), nothing)
    index = element_numbers(operand.shape, scalar(0, index_dtype([operand.type.size])))
    here = broadcast(index, places.shape, range(len(operand.shape)))
    mine = where(places.equals(here), sources, 0)
    total = reduce(Op.ADD, widen(Op.ADD, mine), axes)
    return cast(with_initial(Op.ADD, total, initial), initial.dtype)


def scattered(operand: Node, source: Node, initial: Node, chosen: Node, combine: Graph) -> Node:
    """The sources combined into the chosen places, one after another; by linear index, for an
    operand of rank 0 has no other."""
    start = broadcast(initial, (operand.type.size,))
    (combined,) = scatter([start], [source], [chosen], combine, unique=False)
    return reshape(combined, operand.shape)


RULES: dict[str, Rule] = {"stablehlo.select_and_scatter": select_and_scatter}
