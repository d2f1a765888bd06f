"""Work on what a reshape shows is done before the reshape, where its positions would be divided.

In: a Graph. Out: an equivalent one, where such work has the shape of what it is done on:

    max(reshape(x[1:, 1:] - x[:-1, :-1]), 0)  ->  reshape(max(x[1:, 1:] - x[:-1, :-1], 0))

The loops over the result of the one divide each position by the length of a row, those of the
other run along the rows; and what is stored is seen through the reshape for nothing.
"""

from __future__ import annotations

from tinyhlo.ir import build
from tinyhlo.ir.graph import Elementwise, Expand, Graph, Node, Reshape, Shape
from tinyhlo.ir.simplify import rebuild, step
from tinyhlo.ir.walks import has_control_flow
from tinyhlo.schedule.places import divides
from tinyhlo.schedule.values import base, is_leaf

LEAST_ELEMENTS = 1 << 10  # of fewer, no time is won
LEAST_ROW = 8  # elements along the last axis: along shorter rows, vectors are few


def in_own_shape(graph: Graph) -> Graph:
    """The same Graph if no work has to divide positions; regions of loops and branches included."""
    nodes = graph.nodes()
    known: dict[Node, bool] = {}
    if not has_control_flow(nodes) and not any(map(can_divide, nodes)):
        return graph

    def shape_of_work(inputs: list[Node]) -> Shape | None:
        """The shape of what the first operand that positions are divided for is a reshape of."""
        for value in filter(can_divide, inputs):
            assert isinstance(value, Reshape)
            if value not in known:
                known[value] = divides(value, ())
            if known[value]:
                return value.inputs[0].shape
        return None

    def placed(node: Node, inputs: list[Node]) -> Node:
        work = isinstance(node, Elementwise) and node.type.size >= LEAST_ELEMENTS
        shape = shape_of_work(inputs) if work else None
        before = [] if shape is None else [in_shape(value, shape) for value in inputs]
        if not before or None in before:
            found = rebuild(node, inputs, in_own_shape)
            return found if found is node else step(found)
        assert isinstance(node, Elementwise)
        operands = [value for value in before if value is not None]
        found = build.reshape(
            step(build.elementwise(node.op, *operands, dtype=node.dtype)), node.shape
        )
        known[found] = True
        return found

    return graph.mapped(placed)


def can_divide(node: Node) -> bool:
    if not isinstance(node, Reshape) or node.type.size < LEAST_ELEMENTS:
        return False
    return node.inputs[0].shape[-1] >= LEAST_ROW


def in_shape(value: Node, shape: Shape) -> Node | None:
    """A value before its reshape to another shape; a number for all elements or memory as one of
    this shape. None of others, which would have to be divided in turn."""
    match value:
        case Reshape(inputs=(source,)) if source.shape == shape:
            return source
        case Expand(inputs=(source,)) if source.type.size == 1:
            return build.expand(build.reshape(source, (1,) * len(shape)), shape)
        case _:
            return step(build.reshape(value, shape)) if is_leaf(base(value)) else None
