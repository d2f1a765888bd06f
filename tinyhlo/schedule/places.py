"""Where kernels find what they read and write: places that are data, and positions taken apart.

y[wrapped(d[i])] += x[held(wrapped(s[i]))] * w[i]    places_of_elements: wrapped(d), held(...)
zeros.at[bins].max(sqrt(x * x + y * y))              serial_work: 13 additions
zeros.at[bins].add((x / s)[:, None])                 repeated_in_updates: x / s, for each column
reshape(x[1:, 1:] - x[:-1, :-1])[i]                  divides: x[i // 9 + 1, i % 9 + 1] ...
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from math import prod

from tinyhlo.ir.contraction import varies
from tinyhlo.ir.graph import (
    VIEWS,
    Constant,
    Elementwise,
    Expand,
    Flip,
    Gather,
    Loop,
    Node,
    Pad,
    Reshape,
    Scatter,
    Slice,
)
from tinyhlo.ir.ops import SLOW
from tinyhlo.ir.views import ARRANGED, below_views, joined_axes
from tinyhlo.ir.walks import reachable
from tinyhlo.schedule.values import base, is_in_memory, is_position, is_reduced, own_work

LEAST_APART = 1 << 8  # elements that are read through a reshape that is no view of memory


def places_given(node: Node) -> Sequence[Node]:
    """The places that a gather or scatter takes, and what a loop only reads."""
    match node:
        case Gather():
            return node.inputs[1:]
        case Scatter():
            return node.inputs[2 * len(node.results) :]
        case Loop():
            return [value for k, value in enumerate(node.inputs) if node.is_invariant(k)]
        case _:
            return ()


def puts_elements(scatter: Scatter) -> bool:
    """Whether a scatter's updates of one place are one element each: no position runs along their
    last axis."""
    shape = scatter.inputs[len(scatter.results)].shape
    along = [axis for axis, extent in enumerate(shape) if extent > 1][-1:]
    return not any(is_position(p) and varies(p).issuperset(along) for p in places_given(scatter))


def places_of_elements(scatter: Scatter, stored: Container[Node]) -> Iterator[Node]:
    """Arithmetic that tells a scatter where to put an update, and the gathers that its kernel
    computes updates from where to take something."""

    def below(node: Node) -> Sequence[Node]:
        return () if node in stored or is_in_memory(node) else node.inputs

    count = len(scatter.results)
    for node in (scatter, *reachable(scatter.inputs[count : 2 * count], below)):
        if node is scatter or isinstance(node, Gather):
            values = (below_views(where, ARRANGED) for where in places_given(node))
            yield from (value for value in values if isinstance(value, Elementwise))


def serial_work(value: Node, stored: Container[Node]) -> int:
    """Rough cost of an element that is computed alone, in additions of floats: a quotient or root
    takes as long as one of a whole vector, integers wait for the units that make addresses. Places
    that something is taken from do not count."""

    def below(node: Node) -> Sequence[Node]:
        if node in stored or is_in_memory(node):
            return ()
        match node:
            case Expand(inputs=(source,)) if source.type.size == 1:
                return ()
            case Gather():
                return node.inputs[:1]
            case _:
                return node.inputs

    nodes = (node for node in reachable([value], below) if node not in stored)
    return sum(own_work(node) * (2 if is_slow_alone(node) else 1) for node in nodes)


def is_slow_alone(node: Node) -> bool:
    return isinstance(node, Elementwise) and (node.op in SLOW or node.dtype.is_integer)


def repeated_in_updates(scatter: Scatter) -> Iterator[tuple[Elementwise, int]]:
    """Values that a scatter puts into several places each, and how many. What is the same for a
    whole row of updates counts once: it is hoisted out of the row."""
    count = len(scatter.results)
    for update in scatter.inputs[count : 2 * count]:
        value = below_views(update, ARRANGED)
        outside = prod(update.shape[: max(varies(update), default=-1) + 1])
        if isinstance(value, Elementwise) and outside >= 2 * value.type.size > 0:
            yield value, outside // value.type.size


def is_of_floats(value: Node) -> bool:
    """Whether arithmetic rounds floats to integers: which of those are too large for one, or none
    at all, is asked of each by itself where there are no vectors."""
    inside = reachable([value], lambda n: n.inputs if isinstance(n, (Elementwise, *VIEWS)) else ())
    return any(
        isinstance(n, Elementwise) and n.dtype.is_integer and n.inputs[-1].dtype.is_float
        for n in inside
    )


def is_divided(view: Node, stored: Container[Node]) -> bool:
    """Whether positions below a reshape of more than a few elements are divided."""
    if not isinstance(view, Reshape) or view.type.size < LEAST_APART:
        return False
    return divides(view, stored)


def divides(reshape: Reshape, stored: Container[Node]) -> bool:
    """Whether what a reshape shows does not lie in memory as it has it, so that its reader would
    divide each position by the extents of the axes that it joins."""
    value = base(reshape)
    if value in stored or not isinstance(value, (Elementwise, Slice, Pad, Expand)):
        return False
    inner: set[int] = set()
    for old, new in joined_axes(value.shape, reshape.shape):
        if len(old) > 1 and [value.shape[k] for k in old] != [reshape.shape[k] for k in new]:
            inner.update(old[1:])
    return bool(inner) and lies_apart(value, inner, stored)


def lies_apart(value: Node, axes: set[int], stored: Container[Node]) -> bool:
    """Whether something that a value is computed of does not lie in memory as the value has it
    along `axes`: a part, in another order, or with repeats."""
    pending: list[Node] = [value]
    seen: set[Node] = set()
    while pending:
        node = pending.pop()
        if node in seen or node.type.size == 1:
            continue
        seen.add(node)
        if node in stored or is_in_memory(node) or is_reduced(node) or isinstance(node, Constant):
            continue
        if isinstance(node, (Slice, Pad)):
            source = node.inputs[0].shape
            if any(node.shape[axis] != source[axis] for axis in axes):
                return True
        elif isinstance(node, Expand):
            if node.inputs[0].type.size > 1:
                return True
        elif isinstance(node, Flip):
            if axes.intersection(node.axes):
                return True
        elif not isinstance(node, Elementwise):
            return True
        pending += node.inputs
    return False
