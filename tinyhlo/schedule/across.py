"""Values that lie across what they are combined with: stored in the order in which they are read.

    sum over b, c of x[a, b, c] * y[c, b]   ->   y' = transpose(y);  sum of x[a, b, c] * y'[b, c]

In: the nodes of a graph, some of them chosen as items. Out: the turned values that are items too.
Walked across memory such a value gives one element of a line at a time. A buffer of its own is
turned once, by the kernel that turns matrices anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence, Set
from math import prod

from tinyhlo.ir import graph as ir
from tinyhlo.ir.contraction import find_contraction, varies
from tinyhlo.ir.graph import VIEWS, Elementwise, Node
from tinyhlo.ir.joining import is_joined
from tinyhlo.ir.walks import Users, reachable
from tinyhlo.schedule.values import is_in_memory, takes_rows
from tinyhlo.target import NEAR, Target

# Elements of a value, how often each is read, and how many follow each other.
LARGE_SIZE, TIMES_READ, LONG_RUN = 1 << 14, 8, 16


def repeated_across(nodes: Sequence[Node], users: Users) -> Iterator[Node]:
    """Repeated values that lie across what they are combined with: read so again and again, where
    all of one in the right order costs little. Tiles of products turn their factors themselves."""
    across: set[Node] = set()
    for node in nodes:
        below = node.inputs if isinstance(node, (Elementwise, *VIEWS)) else ()
        if takes_apart(node) or not across.isdisjoint(below):
            across.add(node)
    for node in nodes:
        if not isinstance(node, ir.Expand) or node.type.size < LARGE_SIZE:
            continue
        source = node.inputs[0]
        others = [child for user in users[node] for child in user.inputs if child is not node]
        if (
            source in across
            and TIMES_READ * source.type.size <= node.type.size
            and source.shape[-1] >= LONG_RUN
            and across.isdisjoint(others)
            and any(len(child.shape) - 1 in varies(child) for child in others)
            and not all(is_tiled(user, users) for user in users[node])
        ):
            yield source


def across_others(nodes: Sequence[Node], chosen: Set[Node], target: Target) -> Iterator[Node]:
    """Values that lie across others in the terms of reduces, where other passes read both as well,
    or where cache lines leave the first cache before all of them is read, in whichever order loops
    walk. What only stores turns them on the way (`codegen/moves/turned.py`)."""
    passes, reduced = Counter[Node](), set[Node]()
    for node in nodes:
        if node not in chosen or not isinstance(node, (Elementwise, ir.Reduce)):
            continue
        size, product = node.inputs[0].type.size, find_contraction(node)
        if size < LARGE_SIZE or (product and product.m and product.n):
            continue
        leaves = [leaf for leaf in leaves_of(node, chosen) if 2 * leaf.type.size > size]
        across = {leaf for leaf in leaves if isinstance(leaf, ir.Permute) and crosses(leaf)}
        others = [x for x in leaves if x not in across and len(x.shape) - 1 in varies(x)]
        for leaf in across if others else ():
            passes[leaf] += 1
            if isinstance(node, ir.Reduce):
                reduced.add(leaf)
                if is_far(leaf, others, node.axes, 2 * target.l1_bytes):
                    yield leaf
    yield from (leaf for leaf in reduced if passes[leaf] > 1)


def is_far(node: ir.Permute, others: Sequence[Node], reduced: Sequence[int], nbytes: int) -> bool:
    """Whether a reduce walks `nbytes` or more across memory in whichever order: of others, along
    memory of what `node` turns; of that, along memory of others."""
    own, last = node.order.index(len(node.order) - 1), len(node.order) - 1
    if own not in reduced:
        return False  # lanes along that axis read rows of others, and turn them in registers
    step = min(strides(other)[own] for other in others)
    spans = step * node.shape[own], strides(node)[last] * node.shape[last]
    return min(spans) * node.dtype.itemsize >= nbytes


def strides(node: Node) -> list[int]:
    """Elements from one position along each axis to the next, where a node lies."""
    order: Sequence[int] = range(len(node.shape))
    if isinstance(node, ir.Permute):
        node, order = node.inputs[0], node.order
    return [prod(node.shape[axis + 1 :]) for axis in order]


def leaves_of(value: Node, chosen: Set[Node]) -> Iterator[Node]:
    """What a value, or the terms of a reduce, is computed from element by element."""

    def is_computed(node: Node) -> bool:
        return isinstance(node, Elementwise) and node not in chosen

    inside = reachable(value.inputs, lambda node: node.inputs if is_computed(node) else ())
    return (n for n in inside if not is_computed(n) and not isinstance(n, (ir.Expand, ir.Iota)))


def takes_apart(node: Node) -> bool:
    """Whether neighbours along the last axis lie far apart where a value takes its elements: it is
    turned, a column, every so many-th element, or at places that are data; or are chosen among
    parts at such places."""
    match node:
        case ir.Permute():
            return crosses(node)
        case ir.Slice(step=step):
            source = node.inputs[0].shape
            last = next((k for k in reversed(range(len(step))) if node.shape[k] > 1), 0)
            return step[last] * prod(source[last + 1 :]) > NEAR
        case ir.Gather(inputs=(source, *_)):
            return not takes_rows(node) or is_joined(source)
    return False


def lies_across(value: Node, stored: Container[Node]) -> bool:
    """Whether something that a value is computed of has neighbours of it far apart."""

    def below(node: Node) -> Sequence[Node]:
        return () if node in stored or is_in_memory(node) else node.inputs

    inside = reachable([value], below)
    return any(isinstance(node, ir.Permute) and crosses(node) for node in inside)


def crosses(node: ir.Permute) -> bool:
    """Whether neighbours along the last axis lie far apart in what is permuted."""
    source = node.inputs[0].shape
    last = next((axis for axis in reversed(node.order) if source[axis] > 1), 0)
    return prod(source[last + 1 :]) > NEAR


def is_tiled(factor: Node, users: Users) -> bool:
    """Whether products of a value are those of two matrices."""
    found = [find_contraction(user) for user in users[factor]]
    return bool(found) and all(c is not None and c.m and c.n for c in found)
