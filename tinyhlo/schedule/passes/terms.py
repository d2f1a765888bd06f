"""Reduces computed in the order of axes in which their terms lie in memory.

In: a Graph. Out: an equivalent one, where what is reduced is not turned before, but what is left
of it after:

    max over axis 1 of transpose(x)  ->  transpose(max over axis 1 of x)

A reduce in an order other than that of its terms reads them across memory, or stores results lane
by lane; to turn the few results takes less. That goes for all reduces of terms that share what is
computed, such as the two of an argmax, and for what turns the terms back, as a gradient does: all
or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from math import prod

from tinyhlo.ir import build
from tinyhlo.ir.contraction import find_contraction
from tinyhlo.ir.graph import Elementwise, Expand, Graph, Iota, Node, Permute, Reduce
from tinyhlo.ir.simplify import rebuild, step
from tinyhlo.ir.walks import Users, has_control_flow, users_of
from tinyhlo.records import dataclass

LEAST_TERMS = 1 << 11  # terms: of fewer, a launch takes longer than what is won
TIMES_SMALLER = 4  # times smaller than the terms is what is repeated in them and may lie across

Order = tuple[int, ...]


@dataclass(slots=True)
class Terms:
    """What some reduces have in common: `values` are computed from `leaves`, for them and for
    `turns` alone unless they are `needed` besides."""

    reduces: set[Node] = field(default_factory=set)
    values: set[Node] = field(default_factory=set)
    leaves: set[Node] = field(default_factory=set)
    turns: set[Permute] = field(default_factory=set)
    needed: bool = False


def in_order_of_terms(graph: Graph) -> Graph:
    """The same Graph if all terms lie as they are reduced; regions of loops and branches
    included."""
    nodes = graph.nodes()
    users, kept, small = users_of(nodes), {*graph.results, *graph.effects}, small_among(nodes)
    turned: dict[Node, Order] = {}
    seen: set[Node] = set()
    for node in nodes:
        if not isinstance(node, Reduce) or node in seen:
            continue
        if prod(node.inputs[0].shape) >= LEAST_TERMS:
            terms = terms_of(node, users, kept, small)
            seen |= terms.reduces
            order = order_of(terms, small)
            if order:
                turned |= dict.fromkeys((*terms.reduces, *terms.values), order)
    if not turned and not has_control_flow(nodes):
        return graph

    def placed(node: Node, inputs: list[Node]) -> Node:
        order = turned.get(node)
        if order is None:
            found = rebuild(node, inputs, in_order_of_terms)
            return found if found is node else step(found)
        back = build.inverse(order)
        inputs = [step(build.permute(value, back)) for value in inputs]
        if isinstance(node, Elementwise):
            value = step(build.elementwise(node.op, *inputs, dtype=node.dtype))
            return build.permute(value, order)
        assert isinstance(node, Reduce)
        own = [order[axis] for axis in node.kept]
        found = step(build.reduce(node.op, inputs[0], [order[axis] for axis in node.axes]))
        return build.permute(found, [sorted(own).index(axis) for axis in own])

    return graph.mapped(placed)


def small_among(nodes: Sequence[Node]) -> set[Node]:
    """Values that need little memory: repeated, counted, or computed from such."""
    found: set[Node] = set()
    for node in nodes:
        match node:
            case Expand(inputs=(source,)) if prod(source.shape) * TIMES_SMALLER <= prod(node.shape):
                found.add(node)
            case Iota():
                found.add(node)
            case Elementwise() if found.issuperset(node.inputs):
                found.add(node)
            case _:
                pass
    return found


def terms_of(reduce: Reduce, users: Users, kept: set[Node], small: set[Node]) -> Terms:
    """What a reduce shares with others. A product is none of them: its factors are packed."""
    found = Terms()
    pending: list[Node] = [reduce]
    while pending:
        node = pending.pop()
        if node in found.reduces or node in found.values:
            continue
        if isinstance(node, Reduce) and node.inputs[0].shape == reduce.inputs[0].shape:
            found.needed |= find_contraction(node) is not None
            found.reduces.add(node)
        elif isinstance(node, Elementwise) and node not in small:
            found.needed |= node in kept
            found.values.add(node)
            for user in users[node]:
                if isinstance(user, Permute):
                    found.turns.add(user)
                elif isinstance(user, (Elementwise, Reduce)):
                    pending.append(user)
                else:
                    found.needed = True
        else:
            found.leaves.add(node)
            continue
        pending += node.inputs
    return found


def order_of(terms: Terms, small: set[Node]) -> Order | None:
    """The order that what lies in memory is brought into: where the terms themselves are turned
    back, or for reduces that leave axes exchanged."""
    orders = {stored_order(leaf) for leaf in terms.leaves - small}
    order = orders.pop() if len(orders) == 1 else None
    if terms.needed or order is None:
        return None
    if terms.turns:
        return (
            order if {turn.order for turn in terms.turns} == {tuple(build.inverse(order))} else None
        )
    for reduce in terms.reduces:
        assert isinstance(reduce, Reduce)
        shape = reduce.inputs[0].shape
        own = [order[k] for k in reduce.kept if shape[k] > 1]
        if own != sorted(own):
            return order
    return None


def stored_order(leaf: Node) -> Order | None:
    """The order that a node brings axes into, if what it turns is not computed where it is read."""
    match leaf:
        case Permute(inputs=(source,), order=order) if not isinstance(source, Elementwise):
            return order
        case _:
            return None
