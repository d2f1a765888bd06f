"""Work on turned values that is turned in its turn is done in the last order.

In: a Graph. Out: an equivalent one, where values are turned once, before the work:

    transpose(transpose(x) * transpose(exp(y)))  ->  x * exp(y)

Kernels compose views anyway. But which axis neighbours of an operand lie along, and along which
others are read, is seen where both are in the order of what is computed.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyhlo.ir import build
from tinyhlo.ir.graph import Elementwise, Graph, Node, Permute
from tinyhlo.ir.simplify import rebuild, step
from tinyhlo.ir.walks import Users, has_control_flow, users_of
from tinyhlo.schedule.passes.terms import Order, small_among


def sink(graph: Graph) -> Graph:
    """The same Graph if nothing is turned twice; regions of loops and branches included."""
    nodes = graph.nodes()
    orders = orders_of(nodes, users_of(nodes), {*graph.results, *graph.effects})
    if not orders and not has_control_flow(nodes):
        return graph

    def placed(node: Node, inputs: list[Node]) -> Node:
        order = orders.get(node)
        if order is not None:  # seen by its one user, which knows that it is turned
            pairs = zip(node.inputs, inputs, strict=True)
            inputs = [
                new if old in orders else step(build.permute(new, order)) for old, new in pairs
            ]
            assert isinstance(node, Elementwise)
            return step(build.elementwise(node.op, *inputs, dtype=node.dtype))
        if isinstance(node, Permute) and node.inputs[0] in orders:
            return inputs[0]
        found = rebuild(node, inputs, sink)
        return found if found is node else step(found)

    return graph.mapped(placed)


def orders_of(nodes: Sequence[Node], users: Users, kept: set[Node]) -> dict[Node, Order]:
    """Work on turned values that only a Permute reads, or other such work: in which order."""
    small = small_among(nodes)
    alone: set[Node] = set()
    for node in nodes:
        if (
            isinstance(node, Elementwise)
            and node not in small
            and node not in kept
            and len(users[node]) == 1
        ):
            large = (child for child in node.inputs if child not in small)
            if all(isinstance(child, Permute) or child in alone for child in large):
                alone.add(node)
    found: dict[Node, Order] = {}
    for node in reversed(nodes):
        if node in alone:
            (user,) = users[node]
            order = user.order if isinstance(user, Permute) else found.get(user)
            if order is not None:
                found[node] = order
    return found
