"""An argmax of sums of products is one of their positions, however the two loops are compiled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.codegen.native import run_native
from tests.schedule.graphs import F32, I32, TARGET, add, mul, normal
from tinyhlo.ir.build import (
    broadcast,
    elementwise,
    full,
    gather,
    iota,
    param,
    reduce,
    reshape,
    slice_,
    where,
)
from tinyhlo.ir.graph import Elementwise, Graph, Node
from tinyhlo.ir.joining import join
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import simplify
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.passes.alike import alike

NONE = 2**31 - 1


def argmax(values: Node) -> Node:
    """Of the rows of a matrix, as it is imported."""
    greatest = broadcast(reduce(Op.MAX, values, (1,)), values.shape, (0,))
    here = elementwise(Op.EQ, values, greatest)
    position = iota(values.shape, I32, 1)
    return reduce(Op.MIN, where(here, position, full(NONE, values.shape, I32)), (1,))


def squares(x: Node) -> Node:
    return add(mul(x, x), full(1.0, x.shape, F32))


def repeated(x: Node) -> Node:
    rows, columns = x.shape
    return reshape(broadcast(x, (rows, 2, columns), (0, 2)), (rows, 2 * columns))


def rolled(x: Node) -> Node:
    rows, columns = x.shape
    parts = slice_(x, (0, columns - 1), x.shape), slice_(x, (0, 0), (rows, columns - 1))
    return join(parts, 1)


def taken(x: Node) -> Node:
    backwards = elementwise(Op.SUB, full(x.shape[1] - 1, x.shape, I32), iota(x.shape, I32, 1))
    return gather(x, [iota(x.shape, I32, 0), backwards])


FORMS = {
    "plain": squares,
    "repeated": lambda x: squares(repeated(x)),
    "rolled": lambda x: squares(rolled(x)),
    "both": lambda x: squares(rolled(repeated(squares(x)))),
    "taken": lambda x: taken(squares(x)),
    "power": lambda x: add(elementwise(Op.EXP, x), x),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", [1, 7, 8])
def test_the_greatest_is_found(form: str, rows: int) -> None:
    for columns in (3, 5, 7, 8, 10, 15, 16, 31):
        value = normal(rows, columns, seed=columns)
        x = param(0, value.shape, F32)
        (found,) = run_native(simplify(Graph((x.type,), (argmax(FORMS[form](x)),))), [value])
        assert found.min() >= 0
        assert found.max() < 2 * columns


def test_what_is_compared_with_its_extreme_is_rounded_first() -> None:
    x, y = param(0, (8, 8), F32), param(1, (8, 8), F32)
    types = x.type, y.type
    product = mul(x, y)
    compared = Graph(types, (argmax(add(product, y)),))

    def fences(graph: Graph) -> int:
        nodes = graph.nodes()
        return sum(isinstance(node, Elementwise) and node.op is Op.ROUNDED for node in nodes)

    assert fences(alike(compared, TARGET)) == 1
    assert fences(alike(Graph(types, (argmax(product),)), TARGET)) == 0
    assert fences(alike(Graph(types, (argmax(add(x, y)),)), TARGET)) == 0
    assert fences(alike(Graph(types, (reduce(Op.MAX, add(product, y), (1,)),)), TARGET)) == 0
    # compilers that fuse nothing
    assert alike(compared, named_target("x86-64-v2", threads=1)) is compared
    assert alike(compared, replace(TARGET, group_items=256)) is compared
