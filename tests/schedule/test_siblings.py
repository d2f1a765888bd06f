"""Clusters that need nothing of each other: which share a kernel."""

from __future__ import annotations

import pytest

from tests.schedule.graphs import F32, add, launches, mul, normal, planned
from tinyhlo.ir.build import param, permute, reduce, strided
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.ops import Op
from tinyhlo.schedule.access import access
from tinyhlo.schedule.apart import directions


def kernels(*results: Node) -> int:
    """Of a graph of one argument."""
    (x,) = {node for node in Graph((), results).nodes() if not node.inputs}
    return len(launches(planned(Graph((x.type,), results), [normal(*x.shape)]).body))


@pytest.mark.parametrize(("axes", "count"), [((8, 9, 10), 3), ((0, 1, 2), 1)])
def test_sums_along_different_axes_of_pairs(axes: tuple[int, ...], count: int) -> None:
    """As gates on qubits of one state: loops over all are in order for none. Where memory runs
    behind the axes, vectors do."""
    x = param(0, (2,) * 11, F32)
    assert kernels(*(reduce(Op.ADD, x, (axis,)) for axis in axes)) == count
    assert kernels(*(reduce(op, x, axes[:1]) for op in (Op.ADD, Op.MAX))) == 1


@pytest.mark.parametrize(("extent", "count"), [(64, 2), (20, 1)])
def test_rows_and_columns_are_apart_but_for_a_few(extent: int, count: int) -> None:
    x = param(0, (extent, extent), F32)
    assert kernels(add(x, x), mul(permute(x, (1, 0)), permute(x, (1, 0)))) == count


def test_parts_that_lie_between_each_other_are_one_kernel() -> None:
    x = param(0, (64, 64), F32)
    parts = [strided(x, (0, first), (64, 32), (1, 2)) for first in (0, 1)]
    assert kernels(*(mul(part, part) for part in parts)) == 1


def test_a_reduce_of_one_element_walks_in_no_direction() -> None:
    x = param(0, (1, 1), F32)
    total = reduce(Op.ADD, x, (1,))
    assert directions([total], {total: access(total, lambda node: node is x)}) == set()
