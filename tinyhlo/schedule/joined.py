"""Values that are joined of parts by position: concatenations, and arrays with slices replaced.

In: nodes, inputs first. Out: those to store, as a formula for each part would be too much code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence

from tinyhlo.ir import graph as ir
from tinyhlo.ir.graph import VIEWS, Elementwise, Node
from tinyhlo.ir.joining import is_joined
from tinyhlo.ir.views import below_views
from tinyhlo.ir.walks import Users, reachable

# Slices of a joined value from which on it is stored: each cuts the loops that read it where the
# parts meet, and a window of 7x7 would be written out for every border and corner.
MANY_SLICES = 16
MOST_PARTS = 128  # of a joined value that one kernel computes, each by a formula of its own
TAPS = 2  # that a window may have of an element of a joined value that is not stored
MANY_PARTS = 8  # joins below a value that a transform takes, from which on it is stored


def read_by_windows(nodes: Sequence[Node], users: Users) -> set[Node]:
    """Joined values of which there are many slices, those of values that are joined of them
    included: a slice within one part reads the part. A Window has a part for each of its taps."""
    slices: Counter[Node] = Counter()
    windowed: set[Node] = set()
    found: set[Node] = set()
    for node in reversed(nodes):
        joined = is_joined(node)
        if not joined and not isinstance(node, VIEWS):
            continue
        own = sum(isinstance(user, ir.Slice) for user in users[node])
        slices[node] = min(own + sum(slices[user] for user in users[node]), MANY_SLICES)
        if isinstance(node, ir.Window) and node.type.size > TAPS * node.inputs[0].type.size:
            windowed.add(node)
        elif not windowed.isdisjoint(users[node]):
            (found if joined else windowed).add(node)
        if joined and own > 1 and slices[node] == MANY_SLICES:
            found.add(node)
    return found


def has_many_parts(node: Node) -> bool:
    """Whether a value is computed from many that are joined. A transform is written out: it would
    have the choice among them in each of its rows."""
    if not isinstance(node, Elementwise):
        return False
    below = (Elementwise, *VIEWS)
    inside = reachable(node.inputs, lambda n: n.inputs if isinstance(n, below) else ())
    return is_joined(node) + sum(map(is_joined, inside)) >= MANY_PARTS


def count_parts(
    node: Node, known: Mapping[Node, int], stored: Container[Node]
) -> tuple[int, tuple[Node, ...]]:
    """How many parts a value is joined from, given those `known` of others, and what of it to store
    besides what is `stored` where they are too many: parts that are joined themselves."""
    if not isinstance(node, (Elementwise, *VIEWS)):
        return 1, ()
    inner = [below_views(child) for child in node.inputs]
    counts = [1 if value in stored else known.get(value, 1) for value in inner]
    if not is_joined(node):
        return max(counts, default=1), ()
    total = sum(counts[1:])
    if total <= MOST_PARTS:
        return total, ()
    parts = parts_of(node)
    return len(parts), tuple(part for part in parts if known.get(part, 1) > 1)


def parts_of(node: Node) -> list[Node]:
    """What a value is joined from, side by side; what is in several places of it once."""
    found: list[Node] = []
    pending, seen = [node], {node}
    while pending:
        for child in pending.pop().inputs[1:]:
            inner = below_views(child)
            if inner not in seen:
                seen.add(inner)
                rest = is_joined(inner) and inner.type.size == node.type.size
                (pending if rest else found).append(inner)
    return found
