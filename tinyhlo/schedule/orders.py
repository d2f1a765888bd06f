"""Products computed in the order of axes in which they are read.

In: a simplified Graph. Out: an equivalent one, where such a product has its axes in that order:

    g = cast(sum over k of dy[k, n] * x[k, m], bf16);  w - 0.1 * transpose(g)
    ->  h = cast(sum over k of x[k, m] * dy[k, n], bf16);  w - 0.1 * h

A product holds tiles anyway and may store them either way round, where a reader of the other order
would walk across memory. Casts keep the order, and sums over all axes do not ask for one: the norm
of all gradients reads `h` as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyhlo.ir import build
from tinyhlo.ir.contraction import find_contraction
from tinyhlo.ir.graph import Elementwise, Graph, Node, Permute, Reduce
from tinyhlo.ir.ops import Op
from tinyhlo.ir.rewrite import splat_value
from tinyhlo.ir.simplify import rebuild, step
from tinyhlo.ir.walks import Users, has_control_flow, users_of


def in_order(graph: Graph) -> Graph:
    """The same Graph if every product is read as it is; regions of loops and branches included."""
    nodes = graph.nodes()
    users = users_of(nodes)
    kept = {*graph.results, *graph.effects}
    turned = {
        node.inputs[0]: node.order
        for node in nodes
        if isinstance(node, Permute) and is_wanted(node, users, kept)
    }
    if not turned and not has_control_flow(nodes):
        return graph

    def placed(node: Node, inputs: list[Node]) -> Node:
        found, order = rebuild(node, inputs, in_order), turned.get(node)
        if order is None:
            return step(found) if isinstance(found, Reduce) and found is not node else found
        back = build.inverse(order)
        return build.permute(with_axes(found, order), back)

    return graph.mapped(placed)


def is_wanted(permute: Permute, users: Users, kept: set[Node]) -> bool:
    """Whether a product, or a cast of one, is needed in the order of `permute` alone."""
    value = permute.inputs[0]
    if value in kept or not all(
        (isinstance(user, Permute) and user.order == permute.order) or is_total(user, users, kept)
        for user in users[value]
    ):
        return False
    while isinstance(value, Elementwise) and value.op is Op.CAST:
        value = value.inputs[0]
        if value in kept or len(users[value]) > 1:
            return False
    product = find_contraction(value)
    return product is not None and bool(product.m and product.n)


def is_total(node: Node, users: Users, kept: set[Node]) -> bool:
    """Whether a node is a reduce over all axes, or work on elements for such alone."""
    pending = [node]
    while pending:
        each = pending.pop()
        if isinstance(each, Reduce) and not each.shape:
            continue
        if not isinstance(each, Elementwise) or each in kept:
            return False
        if len({child for child in each.inputs if splat_value(child) is None}) != 1:
            return False
        pending += users[each]
    return True


def with_axes(value: Node, order: Sequence[int]) -> Node:
    """A product, or a cast of one, with its axes in another order."""
    if isinstance(value, Elementwise):
        return build.cast(with_axes(value.inputs[0], order), value.dtype)
    assert isinstance(value, Reduce)
    terms = value.inputs[0]
    assert isinstance(terms, Elementwise)
    rank = len(terms.shape)
    own = [axis for axis in range(rank) if axis not in value.axes]
    axes = (*(own[k] for k in order), *value.axes)
    factors = (step(build.permute(factor, axes)) for factor in terms.inputs)
    return build.reduce(Op.ADD, build.elementwise(terms.op, *factors), range(len(own), rank))
