"""argmax and argmin: which regions they are, and the two plain reduces that they become.

    reduce((x, iota), first greatest, across [1])
    ->  m = max(x); k = min(where(x == m | x != x, iota, largest))       # m is NaN if any x is

Reduces of one value run in lanes, over several rows or by threads, each as its shape wants it.
A region is known by what it does: made of comparisons and choices alone, it depends on nothing but
how its operands compare, and a few of them show every case.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from tinyhlo.import_stablehlo.monoids import is_identity
from tinyhlo.import_stablehlo.operands import known_scalar
from tinyhlo.ir.build import broadcast, elementwise, full, reduce, where
from tinyhlo.ir.dtypes import BOOL
from tinyhlo.ir.graph import Elementwise, Graph, Iota, Node, Param
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import COMPARISONS, Op

OF_BOOLEANS: dict[Op | None, Op] = {Op.MAX: Op.OR, Op.MIN: Op.AND}
CHOICES = COMPARISONS | {Op.AND, Op.OR, Op.XOR, Op.NOT, Op.WHERE, Op.MAX, Op.MIN}


def first_extreme(
    sources: Sequence[Node], initials: Sequence[Node], axes: Sequence[int], combiner: Graph
) -> list[Node] | None:
    """(extreme, its first position); None where the reduction is anything else."""
    if len(sources) != 2 or not is_position(sources[1], axes):
        return None
    op = extreme_of(combiner)
    if sources[0].dtype is BOOL:
        op = OF_BOOLEANS.get(op)
    if op is None or not is_identity(op, initials[0]) or known_scalar(initials[1]) != 0:
        return None
    source, position = sources
    kept = [axis for axis in range(len(source.shape)) if axis not in axes]
    extreme = reduce(op, source, axes)
    hit = elementwise(Op.EQ, source, broadcast(extreme, source.shape, kept))
    if source.dtype.is_float:
        hit = hit | elementwise(Op.NE, source, source)
    last = full(position.dtype.bounds[1], position.shape, position.dtype)
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
