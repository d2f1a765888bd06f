"""Which values get memory of their own."""

from __future__ import annotations

from tinyhlo.ir.build import elementwise, expand, param, reduce, reshape
from tinyhlo.ir.dtypes import U32
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.ops import Op
from tinyhlo.schedule.items import find_items

SHAPE = (64,)


def rounds(x: Node, y: Node, count: int) -> Node:
    """Like a hash: every value is used twice by the next round."""
    for _ in range(count):
        x, y = elementwise(Op.ADD, x, y), elementwise(Op.XOR, x, elementwise(Op.MUL, y, y))
    return elementwise(Op.SUB, x, y)


def inputs() -> tuple[Node, Node]:
    return param(0, SHAPE, U32), param(1, SHAPE, U32)


def items(*results: Node) -> tuple[Node, ...]:
    return find_items(Graph(tuple(x.type for x in inputs()), results)).values


def test_what_flows_into_one_value_needs_no_memory() -> None:
    result = rounds(*inputs(), 20)
    assert items(result) == (result,)


def test_dear_value_of_two_results_is_stored() -> None:
    x, y = inputs()
    shared = rounds(x, y, 10)
    first, second = elementwise(Op.ADD, shared, x), elementwise(Op.MUL, shared, y)
    assert set(items(first, second)) == {shared, first, second}


def test_dear_value_that_a_sum_needs_is_stored() -> None:
    x, y = inputs()
    shared = rounds(x, y, 10)
    total = reduce(Op.ADD, shared, (0,))
    result = elementwise(Op.MUL, shared, expand(reshape(total, (1,)), SHAPE))
    assert set(items(result)) == {shared, total, result}
