"""Values that are seen in a shape that mixes their rows, and do not lie in memory as they are.

    reshape(permute(x), (1200, 50)) + v   ->   x' = permute(x);  reshape(x') + v    # x is 200x300

In: the nodes of a graph, some of them chosen as items. Out: the values that are items too: a
reshape of what is stored is a view for nothing. What is needed in part is not stored for that, nor
what repeats little many times.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence, Set

from tinyhlo.ir import graph as ir
from tinyhlo.ir.graph import Elementwise, Node
from tinyhlo.ir.views import ARRANGED, below_views, joined_axes, steps_of
from tinyhlo.ir.walks import Users, reachable
from tinyhlo.schedule.across import lies_across
from tinyhlo.schedule.places import LEAST_APART, lies_apart
from tinyhlo.schedule.values import is_in_memory

# What takes all elements of what it is made of.
WHOLE = (Elementwise, ir.Reduce, ir.MultiReduce, ir.Flip, ir.Pad, *ARRANGED)
VECTOR = 64  # bytes of the longest
REPEATED = 4  # times


def seen_mixed(nodes: Sequence[Node], users: Users, chosen: Set[Node]) -> Iterator[Node]:
    """Values whose readers would divide each position, `chosen` items aside. Once more turned, all
    may lie in steps again; of whole vectors in rows, elementwise work divides the first alone."""
    whole = set(reachable(chosen, lambda node: node.inputs if isinstance(node, WHOLE) else ()))

    def divides(user: Node, shown: ir.Reshape) -> bool:
        if user not in whole:
            return False
        if isinstance(user, ir.Permute):
            source = below_views(user, ARRANGED)
            stored = source in chosen or is_in_memory(source)
            return not stored or steps_of(user)[-1] is None
        by_vectors = isinstance(user, Elementwise) and keeps_vectors(shown, chosen)
        return isinstance(user, (Elementwise, ir.Reduce, ir.MultiReduce)) and not by_vectors

    for node in nodes:
        if not isinstance(node, ir.Reshape) or node.type.size < LEAST_APART:
            continue
        value, axes = node.inputs[0], mixed_axes(node)
        if value in chosen or not axes or not lies_apart(value, axes, chosen):
            continue
        if value.type.size > REPEATED * sum(leaf.type.size for leaf in stored_below(value, chosen)):
            continue
        if any(divides(user, node) for user in users[node]):
            yield value


def stored_below(value: Node, stored: Container[Node]) -> Iterator[Node]:
    """What a value is computed of that is in memory."""

    def is_stored(node: Node) -> bool:
        return node in stored or is_in_memory(node)

    inside = reachable([value], lambda node: () if is_stored(node) else node.inputs)
    return filter(is_stored, inside)


def keeps_vectors(node: ir.Reshape, stored: Container[Node]) -> bool:
    """Whether rows before and after a reshape of two axes are whole vectors, of neighbours in
    memory."""
    value, size = node.inputs[0], node.dtype.itemsize
    if any(shape[-1] * size % VECTOR for shape in (value.shape, node.shape)):
        return False
    turned = isinstance(below_views(value, ARRANGED), ir.Flip) or lies_across(value, stored)
    return len(mixed_axes(node)) == 2 and not turned


def mixed_axes(node: ir.Reshape) -> set[int]:
    """Which axes a reshape takes apart and puts together in other ways, if the last is one."""
    shape = node.inputs[0].shape
    last = max((axis for axis, extent in enumerate(shape) if extent != 1), default=0)
    groups = joined_axes(shape, node.shape)
    return {axis for old, new in groups if len(old) > 1 < len(new) and last in old for axis in old}
