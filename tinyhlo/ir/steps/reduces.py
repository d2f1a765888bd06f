"""What simplifies a reduce by what it reduces: views, reduces, axes of extent 1, zeros but one.

sum(transpose(x)) -> sum(x) over other axes,   sum(sum(x)) -> one sum over all their axes

And scans along a few elements: cumsum([a, b, c]) -> [a, a + b, a + b + c].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinyhlo.ir import build
from tinyhlo.ir.build import splat_value
from tinyhlo.ir.contraction import find_contraction, varies
from tinyhlo.ir.dtypes import I32, holds_positions
from tinyhlo.ir.graph import (
    Elementwise,
    Expand,
    Iota,
    Node,
    Permute,
    Reduce,
    Reshape,
    Scan,
    TensorType,
    intern,
)
from tinyhlo.ir.joining import join, part
from tinyhlo.ir.ops import Op
from tinyhlo.ir.steps.views import reshape_of_repeats
from tinyhlo.ir.views import axis_groups, has_own_axes, joined_axes, keeps_axes

MOST_SEEN = 32  # nodes of elementwise work through which a view is looked for
FEW_SCANNED = 6  # elements of a scan, at most, that is written out


def reduce_of_view(node: Reduce) -> Node | None:
    """Elements are summed over the axes that they have, in the order of memory: sum(y ** 2), with
    y = reshape(transpose(x), -1), is sum(x ** 2) over all axes. The result may have its axes split
    or joined otherwise than `node`."""
    view = node.inputs[0]
    for _ in range(MOST_SEEN):  # as far as `seen_directly` looks
        if not isinstance(view, Elementwise):
            break
        below = [child for child in view.inputs if splat_value(child) is None] or view.inputs
        view = next((child for child in below if not isinstance(child, Expand)), below[0])
    if not isinstance(view, (Permute, Reshape)) or node.type.size == 0:
        return None
    axes = axes_below(view, node.axes)
    source = seen_directly(node.inputs[0], view, {}) if axes else None
    if axes is None or source is None:
        return None
    result = build.reduce(node.op, source, axes)
    return result if result.shape == node.shape or has_own_axes(view) else None


def axes_below(view: Permute | Reshape, axes: Sequence[int]) -> list[int] | None:
    """The axes of what is viewed that `axes` of the view are made of, where all others stay in
    order, and are not joined without need."""
    if isinstance(view, Permute):
        kept = [axis for k, axis in enumerate(view.order) if k not in axes]
        return [view.order[axis] for axis in axes] if kept == sorted(kept) else None
    found: list[int] = []
    for old, new in joined_axes(view.inputs[0].shape, view.shape):
        gone = {axis in axes for axis in new}
        same = len(old) == len(new) == 1 or has_own_axes(view)
        if len(gone) > 1 or (gone == {False} and not same):
            return None
        found += old if gone == {True} else []
    return found


def seen_directly(
    node: Node, view: Permute | Reshape, known: dict[Node, Node | None]
) -> Node | None:
    """The same elementwise work on what `view` is of, if it sees all its operands in that way."""
    if node not in known and len(known) < MOST_SEEN:
        known[node] = None
        shape, value = view.inputs[0].shape, splat_value(node)
        if is_same_view(node, view):
            known[node] = node.inputs[0]
        elif value is not None:
            known[node] = build.broadcast(build.constant(np.asarray(value)), shape)
        elif isinstance(node, Expand) and isinstance(view, Reshape):
            known[node] = reshape_of_repeats(build.reshape(node, shape))
        elif isinstance(node, Elementwise):
            children = [seen_directly(child, view, known) for child in node.inputs]
            found = tuple(child for child in children if child is not None)
            if len(found) == len(children):
                known[node] = intern(Elementwise, TensorType(shape, node.dtype), found, node.op)
    return known.get(node)


def is_same_view(node: Node, view: Permute | Reshape) -> bool:
    if isinstance(node, Permute) and isinstance(view, Permute):
        return node.order == view.order
    alike = isinstance(node, Reshape) and isinstance(view, Reshape)
    return alike and node.inputs[0].shape == view.inputs[0].shape


def reduce_single(node: Reduce) -> Node | None:
    """An axis of extent 1 has nothing to reduce. It goes after the sum, not before: a view between
    product and sum would hide a contraction, such as the gradient of weights from a batch of 1."""
    source = node.inputs[0]
    axes = [axis for axis in node.axes if source.shape[axis] != 1]
    if len(axes) == len(node.axes):
        return None
    if not axes:
        single = build.reshape(source, node.shape)
        return from_zero(single) if node.op is Op.ADD else single
    return build.reshape(build.reduce(node.op, source, axes), node.shape)


def sum_of_one(node: Reduce) -> Node | None:
    """Of elements that are zero along an axis but at one index, which is data, the sum is that one:
    sum(where(iota == i, x, 0)) = where(0 <= i < extent, x, 0)."""
    source = node.inputs[0]
    negative = isinstance(source, Elementwise) and source.op is Op.NEG
    choice = source.inputs[0] if negative else source
    match choice:
        case Elementwise(op=Op.WHERE, inputs=(Elementwise(op=Op.EQ, inputs=sides), value, other)):
            zero = splat_value(other)
        case _:
            return None
    counts = [isinstance(side, Iota) and node.axes == (side.axis,) for side in sides]
    if node.op is not Op.ADD or zero is None or zero != 0 or counts.count(True) != 1:
        return None
    (axis,) = node.axes
    place = sides[counts.index(False)]
    once = place.dtype.is_integer and place.dtype.bits >= 32  # no number comes again, or between
    if not once or axis in varies(place) | varies(value):
        return None
    first = [0] * len(source.shape)
    stop = [1 if k == axis else extent for k, extent in enumerate(source.shape)]
    place, value, none = (
        build.reshape(build.slice_(each, first, stop), node.shape) for each in (place, value, other)
    )
    found = build.where((place >= 0) & (place < source.shape[axis]), value, none)
    return from_zero(-found if negative else found)


def sum_of_diagonal(node: Reduce) -> Node | None:
    """Of elements that are zero but on the diagonal of two axes, only those there are added up:
    sum(where(i == j, x[i, j], 0)) = sum(x[i, i]), a trace."""
    match node.inputs[0]:
        case Elementwise(op=Op.WHERE, inputs=(condition, value, other)) as source:
            zero, found = splat_value(other), sorted(varies(condition))
        case _:
            return None
    core = condition
    while isinstance(core, (Expand, Permute)) or keeps_axes(core):
        core = core.inputs[0]
    match core:
        case Elementwise(op=Op.EQ, inputs=(Iota(axis=first, dtype=dtype), Iota(axis=second))):
            pass
        case _:
            return None
    extents = {source.shape[axis] for axis in found}
    gone = [axis for axis in found if axis in node.axes]
    if node.op is not Op.ADD or zero is None or zero != 0 or first == second:
        return None
    if len(found) != 2 or len(extents) != 1 or not gone:
        return None
    if not holds_positions(dtype, *extents):
        return None
    axis = gone[-1]
    kept = [k for k in range(len(source.shape)) if k != axis]
    shape = tuple(source.shape[k] for k in kept)
    (along,) = (k for k in found if k != axis)
    places = (kept.index(along if k == axis else k) for k in range(len(source.shape)))
    diagonal = build.gather(value, [build.iota(shape, I32, place) for place in places])
    rest = [kept.index(k) for k in node.axes if k != axis]
    return build.reduce(Op.ADD, diagonal, rest) if rest else from_zero(diagonal)


def from_zero(total: Node) -> Node:
    """A sum starts at +0, which -0 must meet."""
    return total + 0.0 if total.dtype.is_float else total


def narrow_sum(node: Elementwise) -> Node | None:
    """Integers that are widened, added up and narrowed again, as `packbits` does: what they are
    modulo 2^bits needs no wider sum. In the shape of the sum, which a view of it may not have."""
    total = node.inputs[0]
    total = total.inputs[0] if isinstance(total, Reshape) else total
    if node.op is not Op.CAST or not isinstance(total, Reduce) or total.op is not Op.ADD:
        return None
    match total.inputs[0]:
        case Elementwise(op=Op.CAST, inputs=(narrow,)) as wide if narrow.dtype is node.dtype:
            widens = wide.dtype.is_integer and wide.dtype.bits > narrow.dtype.bits
        case _:
            return None
    if not (widens and narrow.dtype.is_integer):
        return None
    return build.reduce(Op.ADD, narrow, total.axes)


def scan_of_few(node: Scan) -> Node | None:
    """Along an axis of a few elements, what has been combined so far, one after another: rows of
    elementwise work, which fuse with what is around them."""
    source, axis, count = node.inputs[0], node.axis, node.shape[node.axis]
    if not 1 <= count <= FEW_SCANNED or node.type.size == 0:
        return None
    order = reversed(range(count)) if node.reverse else range(count)
    first, *others = (part(source, axis, k, k + 1) for k in order)
    totals = [from_zero(first) if node.op is Op.ADD else first]
    for other in others:
        totals.append(build.elementwise(node.op, totals[-1], other))
    return join(totals[::-1] if node.reverse else totals, axis)


def reduce_of_reduce(node: Reduce) -> Node | None:
    """One reduce over the axes of both, whose results may have been split or joined in between:
    the gradient of `repeat` along two axes."""
    view = node.inputs[0]
    inner = view.inputs[0] if isinstance(view, Reshape) else view
    if not isinstance(inner, Reduce) or inner.op is not node.op or node.type.size == 0:
        return None
    source, reduced = inner.inputs[0], sorted(inner.axes)
    shape, axes = list[int](), list[int]()

    def insert(before: int) -> None:
        """The reduced axes that come before a kept one."""
        while reduced and reduced[0] - (len(inner.axes) - len(reduced)) <= before:
            axes.append(len(shape))
            shape.append(source.shape[reduced.pop(0)])

    for first, stop, start, end in axis_groups(inner.shape, view.shape):
        insert(first)
        if reduced and reduced[0] - (len(inner.axes) - len(reduced)) < stop:
            return None  # in the middle of what was joined
        axes += [len(shape) + axis - start for axis in range(start, end) if axis in node.axes]
        shape += view.shape[start:end]
    insert(len(inner.shape))
    whole = build.reduce(node.op, build.reshape(source, tuple(shape)), axes)
    if find_contraction(inner) is not None and find_contraction(whole) is None:
        return None  # the product is computed once, fast, and may be needed elsewhere
    return whole
