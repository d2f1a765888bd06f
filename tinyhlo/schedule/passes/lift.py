"""Values of a loop's body that can be computed before the loop.

In: a Loop. Out: which nodes of its body are *invariant* (made of state that does not change and
of constants) or *rows* (made of those and of row `i` of invariant arrays), and the same values
outside: the value of an invariant one; of one made of rows the values for all `i` at once, along a
new first axis.

    h + xs[i] @ w        invariant: xs, w      rows: xs[i], xs[i] @ w      outside: xs @ w
"""

from __future__ import annotations

from tinyhlo.ir import build
from tinyhlo.ir.graph import (
    VIEWS,
    Constant,
    Elementwise,
    Expand,
    Flip,
    Gather,
    Iota,
    Loop,
    Node,
    Param,
    Permute,
    Reduce,
    Reshape,
    Scan,
    Slice,
    topological,
)
from tinyhlo.ir.simplify import rebuild
from tinyhlo.ir.views import below_views

PURE = (Constant, Iota, Elementwise, Reduce, Gather, Scan, *VIEWS)
STACKED = (Elementwise, Reduce, Reshape, Expand, Permute, Flip, Slice)


class Lift:
    """The values of one loop; `rows` maps each to the gather of the row that it is made of."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.invariant: set[Node] = set()
        self.rows: dict[Node, Gather] = {}
        self._values: dict[Node, Node] = {}
        self._stacks: dict[Node, Node] = {}
        for node in loop.body.nodes():
            if isinstance(node, Param):
                if loop.is_invariant(node.position):
                    self.invariant.add(node)
            elif isinstance(node, PURE) and all(child in self.invariant for child in node.inputs):
                self.invariant.add(node)
            elif isinstance(node, Gather):
                if node.inputs[0] in self.invariant and takes_a_row(node):
                    self.rows[node] = node
            elif isinstance(node, STACKED) and (row := self.row_of(node)) is not None:
                self.rows[node] = row

    def row_of(self, node: Node) -> Gather | None:
        """The row that is all of the operands of `node` that changes."""
        rows = [self.rows[child] for child in node.inputs if child in self.rows]
        known = all(child in self.rows or child in self.invariant for child in node.inputs)
        if not rows or not known:
            return None
        return rows[0] if all(key_of(row) == key_of(rows[0]) for row in rows) else None

    def value(self, node: Node) -> Node:
        """An invariant value outside."""
        pending = [node]
        while pending:
            each = pending[-1]
            missing = [child for child in each.inputs if child not in self._values]
            if missing:
                pending += missing
                continue
            pending.pop()
            if isinstance(each, Param):
                self._values[each] = self.loop.inputs[each.position]
            elif each not in self._values:
                self._values[each] = rebuild(each, [self._values[child] for child in each.inputs])
        return self._values[node]

    def stack(self, node: Node, count: int) -> Node:
        """The values of `node`, which is made of rows, for `count` of them along a new first
        axis."""
        key = key_of(self.rows[node])
        for each in topological((node,)):
            if each in self.rows and each not in self._stacks and key_of(self.rows[each]) == key:
                self._stacks[each] = self.stacked(each, count)
        return self._stacks[node]

    def stacked(self, node: Node, count: int) -> Node:
        """The same of one operation, its operands stacked."""
        shape = (count, *node.shape)

        def of(position: int) -> Node:
            child = node.inputs[position]
            if child in self.rows:
                return self._stacks[child]
            one = build.reshape(self.value(child), (1, *child.shape))
            return build.expand(one, (count, *child.shape))

        match node:
            case Gather():
                return build.reshape(self.value(node.inputs[0]), shape)
            case Elementwise(op=op):
                inputs = [of(k) for k in range(len(node.inputs))]
                return build.elementwise(op, *inputs, dtype=node.dtype)
            case Reduce(op=op, axes=axes):
                return build.reduce(op, of(0), [axis + 1 for axis in axes])
            case Reshape():
                return build.reshape(of(0), shape)
            case Expand():
                return build.expand(of(0), shape)
            case Permute(order=order):
                return build.permute(of(0), (0, *(axis + 1 for axis in order)))
            case Flip(axes=axes):
                return build.flip(of(0), [axis + 1 for axis in axes])
            case Slice(start=start, step=step):
                return build.strided(of(0), (0, *start), shape, (1, *step))
            case _:
                raise TypeError(type(node).__name__)  # STACKED lets no other through


def key_of(row: Gather) -> tuple[Node, int]:
    """Gathers with the same key take the same row number of as many rows."""
    return row_number(row), row.inputs[0].shape[0]


def row_number(row: Gather) -> Node:
    """The scalar index of a gather that takes a row."""
    return below_views(row.inputs[1], (Expand, Reshape))


def takes_a_row(node: Gather) -> bool:
    """Whether it is source[i] for a scalar i: one index repeated, the others along their axes."""
    source, index, *others = node.inputs
    if node.shape != (1, *source.shape[1:]) or row_number(node).type.size != 1:
        return False
    return index.type.size > 0 and all(
        source.shape[axis] == 1 or (isinstance(other, Iota) and other.axis == axis)
        for axis, other in enumerate(others, 1)
    )
