"""What simplifies a view by what it views: constants, other views, arrays side by side.

    slice(slice(x)) -> slice(x),   permute(expand(x)) -> expand(permute(x))

In: a node. Out: an equal one, or None where the step does not apply.
"""

from __future__ import annotations

import numpy as np

from tinyhlo.ir import build
from tinyhlo.ir.build import splat_value
from tinyhlo.ir.graph import Elementwise, Expand, Graph, Node, Pad, Permute, Reshape, Slice
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.joining import as_one, is_joined, joined_parts, padded
from tinyhlo.ir.views import axis_groups, joined_axes
from tinyhlo.ir.walks import is_known

MOST_KNOWN = 32  # elements, and nodes, of which one is looked up


def view_of_splat(node: Node) -> Node | None:
    value = splat_value(node.inputs[0])
    if value is None or node.type.size == 0:
        return None
    if isinstance(node, Pad):
        fill = splat_value(node.inputs[1])
        if fill is None or fill.tobytes() != value.tobytes():
            return None
    return build.broadcast(build.constant(np.array(value)), node.shape)


def slice_of(node: Slice) -> Node | None:
    """A slice of a slice is one; a slice of a pad that keeps off the padding skips it."""
    inner = node.inputs[0]
    if 0 in node.shape:
        return None
    if isinstance(inner, Slice):
        start = [a + b * s for a, b, s in zip(inner.start, node.start, inner.step, strict=True)]
        steps = [a * b for a, b in zip(inner.step, node.step, strict=True)]
        return build.strided(inner.inputs[0], start, node.shape, steps)
    if isinstance(inner, Expand):
        source = inner.inputs[0]
        ends = zip(source.shape, node.start, node.step, node.shape, strict=True)
        kept = [(a, s, n) if extent > 1 else (0, 1, 1) for extent, a, s, n in ends]
        start, steps, shape = zip(*kept, strict=True)
        return build.expand(build.strided(source, start, shape, steps), node.shape)
    if isinstance(inner, Pad) and not any(inner.interior):
        source = inner.inputs[0]
        start = [a - low for a, low in zip(node.start, inner.low, strict=True)]
        places = zip(start, node.step, node.shape, source.shape, strict=True)
        if all(a >= 0 and a + (n - 1) * s < extent for a, s, n, extent in places):
            return build.strided(source, start, node.shape, node.step)
    return None


def slice_of_part(node: Slice) -> Node | None:
    """A slice that stays within one part of what is joined, `where(iota < end, ...)`, reads that
    part alone: rows stacked by a scan that is unrolled, and taken apart again by its gradient."""
    joined = joined_parts(node.inputs[0])
    if joined is None or not node.type.size:
        return None
    axis, place, before, behind = joined
    first = node.start[axis]
    last = first + (node.shape[axis] - 1) * node.step[axis]
    if first < place <= last:
        return None
    part = before if last < place else behind
    return build.strided(part, node.start, node.shape, node.step)


def joined_slices(node: Elementwise) -> Node | None:
    """Slices that are joined as they lie in what they are slices of."""
    match joined_parts(node):
        case axis, place, Pad(inputs=(first, _)) as before, Pad(inputs=(second, _)) as behind:
            pass
        case _:
            return None
    whole = as_one(first, second, axis)
    rest = node.shape[axis] - place
    if whole is None or whole.type != node.type or first.shape[axis] != place:
        return None
    in_place = before is padded(first, axis, 0, rest) and behind is padded(second, axis, place, 0)
    return whole if in_place else None


def slice_of_known(node: Slice) -> Node | None:
    """One element of what is made of constants and positions, such as a start in a list of them."""
    if node.type.size != 1 or not is_known(node, MOST_KNOWN, MOST_KNOWN):
        return None
    (value,) = run_graph(Graph((), (node,)), ())
    return build.broadcast(build.constant(value.reshape(())), node.shape)


def permute_of_repeats(node: Permute) -> Node | None:
    """Repeat last: what is done along the repeated axis is then done once."""
    inner = node.inputs[0]
    if not isinstance(inner, Expand):
        return None
    return build.expand(build.permute(inner.inputs[0], node.order), node.shape)


def permute_of_joined_axes(node: Permute) -> Node | None:
    """What repeats or joins has its own axes in another order, which then are split or joined."""
    inner = node.inputs[0]
    if not isinstance(inner, Reshape) or node.type.size == 0:
        return None
    source = inner.inputs[0]
    if not isinstance(source, Expand) and not is_joined(source):
        return None
    groups = {first: rest for first, *rest in axis_groups(inner.shape, source.shape)}
    order, k = list[int](), 0
    while k < len(node.order):
        first = node.order[k]
        if first not in groups:
            return None
        stop, start, end = groups[first]
        if node.order[k : k + stop - first] != tuple(range(first, stop)):
            return None  # what is joined does not stay together
        order += range(start, end)
        k += stop - first
    order += [axis for axis in range(len(source.shape)) if axis not in order]  # of one element
    return build.permute(source, order)


def reshape_of_repeats(node: Node) -> Node | None:
    """The same where each axis stays, or is joined with others that all repeat or all vary."""
    inner = node.inputs[0]
    if not isinstance(inner, Expand) or node.type.size == 0:
        return None
    core = inner.inputs[0]
    shape = list(node.shape)
    for old, new in joined_axes(inner.shape, node.shape):
        repeated = {core.shape[axis] == 1 for axis in old if inner.shape[axis] != 1}
        if len(repeated) > 1:
            return None
        if repeated == {True}:
            for axis in new:
                shape[axis] = 1
    return build.expand(build.reshape(core, tuple(shape)), node.shape)
