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


def in_own_shape(graph: Graph) -> Graph:
    """The same Graph if no work has to divide positions; regions of loops and branches included."""
    nodes = graph.nodes()
    known: dict[Node, bool] = {}
    if not has_control_flow(nodes) and not any(map(can_divide, nodes)):
        return graph

    def is_divided(node: Node) -> bool:
        if not can_divide(node):
            return False
        if node not in known:
            assert isinstance(node, Reshape)
            known[node] = divides(node, ())
        return known[node]

    def placed(node: Node, inputs: list[Node]) -> Node:
        if isinstance(node, Elementwise) and node.type.size >= LEAST_ELEMENTS:
            divided = [value for value in inputs if is_divided(value)]
            if divided:
                shape = divided[0].inputs[0].shape
                before = [in_shape(value, shape) for value in inputs]
                work = [value for value in before if value is not None]
                if len(work) == len(before):
                    done = step(build.elementwise(node.op, *work, dtype=node.dtype))
                    found = build.reshape(done, node.shape)
                    known[found] = True
                    return found
        found = rebuild(node, inputs, in_own_shape)
        return found if found is node else step(found)

    return graph.mapped(placed)


def can_divide(node: Node) -> bool:
    return isinstance(node, Reshape) and node.type.size >= LEAST_ELEMENTS


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
