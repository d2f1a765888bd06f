"""reduce: a monoid becomes Reduce, argmax and argmin two of them, anything else a MultiReduce with
the region as combiner.

reduce(x init: 0) applies add across [1]       ->  Reduce(ADD, x, (1,))
^(a, b): return add(b, a)                      ->  Op.ADD
^(a, b): convert(add(convert a, convert b))    ->  Op.ADD   (halves added in f32)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from tinyhlo.import_stablehlo.in_turn import fold
from tinyhlo.import_stablehlo.lifted.lifting import as_params
from tinyhlo.import_stablehlo.operands import accumulator, is_half, is_nan, known_scalar
from tinyhlo.import_stablehlo.records import Operation
from tinyhlo.import_stablehlo.walker import Rule, Scope, Value
from tinyhlo.ir.build import broadcast, cast, elementwise, reduce, where
from tinyhlo.ir.dtypes import BOOL, F32
from tinyhlo.ir.graph import Elementwise, Graph, Iota, Node, Param
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.meaning import identity
from tinyhlo.ir.ops import COMPARISONS, MONOIDS, Op

ROUNDING = (Op.ADD, Op.MUL)  # monoids whose partial results round, so halves accumulate in f32


def reduce_op(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Value]:
    count = len(inputs) // 2
    combiner = scope.graph(operation.regions[0])
    values = as_params(operation.regions[0].types, operation.operand_types, inputs)
    axes = operation.attributes["dimensions"]
    return reduce_arrays(values[:count], values[count:], axes, combiner)


def reduce_arrays(
    sources: Sequence[Node], initials: Sequence[Node], axes: Sequence[int], combiner: Graph
) -> Sequence[Node]:
    """The reduction over `axes` of arrays of the combiner's types."""
    monoids = monoids_of(combiner)
    if monoids is None:
        extreme = first_extreme(sources, initials, axes, combiner)
        if extreme is not None:
            return extreme
        return fold(sources, initials, axes, combiner)
    return [
        cast(with_initial(op, reduce(op, widen(op, source), axes), initial), source.dtype)
        for op, source, initial in zip(monoids, sources, initials, strict=True)
    ]


# ---- which reductions are a monoid, and whether initial values matter to it ----------------------


def monoids_of(graph: Graph) -> list[Op] | None:
    """The monoid of each value, where a region of 2n scalars combines each with its own kind, in
    either order of its operands."""
    count = len(graph.results)
    if len(graph.params) != 2 * count:
        return None
    found = [monoid_of(graph.results[k], {k, k + count}) for k in range(count)]
    return None if None in found else found  # type: ignore[return-value]


def monoid_of(result: Node, operands: set[int]) -> Op | None:
    """What combines two params; looks through a widening of halves around it."""
    if isinstance(result, Elementwise) and result.op is Op.CAST:
        if not is_half(result.dtype) or result.inputs[0].dtype is not F32:
            return None
        result = result.inputs[0]
    if not isinstance(result, Elementwise) or result.op not in MONOIDS:
        return None
    return result.op if {_position(node) for node in result.inputs} == operands else None


def _position(node: Node) -> int | None:
    """Which param a node is, looking through a widening cast."""
    if isinstance(node, Elementwise) and node.op is Op.CAST:
        node = node.inputs[0]
    return node.position if isinstance(node, Param) else None


def is_identity(op: Op, initial: Node) -> bool:
    """Whether combining with `initial` changes nothing (but the sign of a zero)."""
    known = known_scalar(initial)
    return known is not None and bool(known == identity(op, initial.dtype))


def is_idle(op: Op, initial: Node) -> bool:
    """Whether it does not matter how often `initial` is combined."""
    return op in (Op.MAX, Op.MIN, Op.AND, Op.OR) or is_identity(op, initial)


def widen(op: Op, node: Node) -> Node:
    """The node in the type in which `op` accumulates it. Maxima of halves are found in f32 as well:
    it is exact, and only the last one has to be made a half again."""
    wide = op in ROUNDING or op in (Op.MAX, Op.MIN)
    return cast(node, accumulator(node.dtype)) if wide else node


def with_initial(op: Op, reduced: Node, initial: Node) -> Node:
    """`reduced` combined with the initial value of a reduction, where that matters."""
    if is_identity(op, initial):
        return reduced
    start = broadcast(cast(initial, reduced.dtype), reduced.shape)
    return elementwise(op, reduced, start)


# ---- argmax and argmin: which regions they are, and the two plain reduces that they become -------

# Plain reduces are faster: code generation has more ways to run them. A region of comparisons and
# selects alone depends on nothing but how its operands compare, so running it on a few numbers that
# compare in every possible way shows what it does.
OF_BOOLEANS: dict[Op | None, Op] = {Op.MAX: Op.OR, Op.MIN: Op.AND}
CHOICES = COMPARISONS | {Op.AND, Op.OR, Op.XOR, Op.NOT, Op.WHERE, Op.MAX, Op.MIN}


def first_extreme(
    sources: Sequence[Node], initials: Sequence[Node], axes: Sequence[int], combiner: Graph
) -> list[Node] | None:
    """(extreme, its first position); None where the reduction is anything else.

    reduce((x, iota), first greatest, across [1])
    ->  m = max(x); k = min(where(x == m | x != x, iota, largest))       # m is NaN if any x is
    """
    if len(sources) != 2 or not is_position(sources[1], axes) or not sources[0].type.size:
        return None
    op = extreme_of(combiner)
    if sources[0].dtype is BOOL:
        op = OF_BOOLEANS.get(op)
    if op is None or not is_identity(op, initials[0]) or known_scalar(initials[1]) != 0:
        return None
    source, position = sources
    kept = [axis for axis in range(len(source.shape)) if axis not in axes]
    extreme = reduce(op, source, axes)
    hit = source.equals(broadcast(extreme, source.shape, kept))
    if source.dtype.is_float:
        hit = hit | is_nan(source)
    last = position.dtype.bounds[1]
    return [extreme, reduce(Op.MIN, where(hit, position, last), axes)]


def is_position(node: Node, axes: Sequence[int]) -> bool:
    """Whether `node` counts along the one axis that is reduced."""
    moving = [axis for axis in axes if node.shape[axis] != 1]
    return isinstance(node, Iota) and moving in ([], [node.axis])


def extreme_of(combiner: Graph) -> Op | None:
    """MAX or MIN for a region (value, position, other value, later position) that keeps the better
    value, the first of equal ones, and the first NaN."""
    value = combiner.params[0].dtype
    for node in combiner.nodes():
        if not isinstance(node, Param) and not (
            isinstance(node, Elementwise) and node.op in CHOICES
        ):
            return None
    numbers = [0.0, 1.0, np.nan] if value.is_float else [0, 1]
    cases = list(product(numbers, numbers, [(0, 1), (0, 0)]))
    first, second = (np.array([case[k] for case in cases], value.numpy) for k in (0, 1))
    dtype = combiner.params[1].dtype
    places = np.array([case[2] for case in cases], dtype.numpy)
    found = run_graph(combiner, (first, places[:, 0], second, places[:, 1]))
    a, b = first.astype(np.float64), second.astype(np.float64)
    for op, better in ((Op.MAX, a >= b), (Op.MIN, a <= b)):
        stays = np.isnan(a) | (better & ~np.isnan(b))
        expected = np.where(stays, a, b), np.where(stays, places[:, 0], places[:, 1])
        if all(
            np.array_equal(got.astype(np.float64), want, equal_nan=True)
            for got, want in zip(found, expected, strict=True)
        ):
            return op
    return None


RULES: dict[str, Rule] = {"stablehlo.reduce": reduce_op}
