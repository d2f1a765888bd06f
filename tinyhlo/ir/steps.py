"""What simplifies a node by its inputs alone, without a look at regions.

    x * 1 -> x,   cast(cast(x, f32), f64) -> cast(x, f64),   slice(slice(x)) -> slice(x)

In: a node. Out: an equal one, or None where the step does not apply; `simplify` repeats them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tinyhlo.ir import build
from tinyhlo.ir.algebra import ALGEBRA, joins
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.graph import (
    VIEWS,
    Constant,
    Elementwise,
    Expand,
    Flip,
    Gather,
    Graph,
    Iota,
    Node,
    Pad,
    Permute,
    Reshape,
    Shape,
    Slice,
)
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.meaning import evaluate
from tinyhlo.ir.ops import Op
from tinyhlo.ir.rewrite import rewrite, splat_value
from tinyhlo.ir.views import axis_groups

SMALL = 1024  # elements: larger constants are never computed at compile time
FEW = 32  # elements, and nodes, of which one is looked up


def algebra(node: Elementwise) -> Node | None:
    return rewrite(node, ALGEBRA)


def double_cast(node: Elementwise) -> Node | None:
    inner = node.inputs[0]
    if node.op is not Op.CAST or not isinstance(inner, Elementwise) or inner.op is not Op.CAST:
        return None
    source = inner.inputs[0]
    if not joins(source.dtype, inner.dtype, node.dtype):
        return None
    return build.cast(source, node.dtype)


def fold_constants(node: Elementwise) -> Node | None:
    """Small dense constants and scalars; a splat is computed once, on its scalar."""
    splats = [splat_value(child) for child in node.inputs]
    if all(value is not None for value in splats):
        value = evaluate(node.op, splats, node.dtype)  # type: ignore[arg-type]
        return build.broadcast(build.constant(np.asarray(value)), node.shape)
    if node.type.size > SMALL:
        return None
    arrays: list[np.ndarray] = []
    for child, splat in zip(node.inputs, splats, strict=True):
        if splat is not None:
            arrays.append(np.broadcast_to(splat, node.shape))
        elif isinstance(child, Constant):
            arrays.append(child.value)
        else:
            return None
    return build.constant(evaluate(node.op, arrays, node.dtype))


def clamps(node: Elementwise) -> Node | None:
    """Integers between constants are min(max(x, low), high), each bound once.

    In the other order ptxas up to 13.0 takes max(min(x, 7), 0) == 7 to be true on sm_90, whatever x
    is (docs/decisions/0052)."""
    match bounded(node):
        case (Elementwise() as source, bound) if (inner := bounded(source)) is not None:
            x, first = inner
        case _:
            return None
    nearer = max if node.op is Op.MAX else min
    if source.op is node.op:
        return build.elementwise(node.op, x, splat_of(nearer(bound, first), x))
    if nearer(bound, first) == bound:  # all that is on the other side of the first bound
        return splat_of(bound, x)
    if node.op is Op.MIN:
        return None
    low = build.elementwise(Op.MAX, x, splat_of(bound, x))
    low = (clamps(low) if isinstance(low, Elementwise) else None) or low
    return build.elementwise(Op.MIN, low, splat_of(first, x))


def bounded(node: Node) -> tuple[Node, int] | None:
    """What is not above, or not below, a constant, and that."""
    if not isinstance(node, Elementwise) or node.op not in (Op.MIN, Op.MAX):
        return None
    if not node.dtype.is_integer:
        return None
    for x, other in (node.inputs, node.inputs[::-1]):
        value = splat_value(other)
        if value is not None:
            return x, int(value)
    return None


def certain(node: Elementwise) -> Node | None:
    """A comparison of integers whose bounds decide it."""
    x, y = node.inputs[0], node.inputs[-1]
    if node.op not in (Op.LT, Op.LE) or not x.dtype.is_integer:
        return None
    (least, most), (low, high) = limits(x), limits(y)
    if node.op is Op.LE:
        low, high = low + 1, high + 1
    if most < low or least >= high:
        return build.full(most < low, node.shape, node.dtype)
    return None


def limits(node: Node) -> tuple[int, int]:
    """The least and the largest that an integer can be, as far as constants say."""
    value = splat_value(node)
    if value is not None:
        return int(value), int(value)
    match node:
        case Iota(shape=shape, axis=axis) if holds_positions(node.dtype, shape[axis]):
            return 0, max(shape[axis] - 1, 0)
        case Reshape() | Permute() | Expand() | Slice() | Flip():
            return limits(node.inputs[0])
        case Elementwise(op=Op.MIN | Op.MAX as op) if (found := bounded(node)) is not None:
            nearer, each = (max if op is Op.MAX else min), limits(found[0])
            return nearer(each[0], found[1]), nearer(each[1], found[1])
        case _:
            low, high = node.dtype.bounds
            return int(low), int(high)


def splat_of(value: int, like: Node) -> Node:
    return build.full(value, like.shape, like.dtype)


def plain_power(node: Elementwise) -> Node | None:
    """Powers of 1, 2, 3, +-1/2 and +-3/2 by products and a square root, within 2 ulp; types
    narrower than 32 bits would round too early."""
    if node.op is not Op.POW or node.dtype.bits < 32:
        return None
    x, splat = node.inputs[0], splat_value(node.inputs[1])
    if splat is None:
        return None
    match exponent := float(splat):
        case 1.0:
            return x
        case 2.0:
            return x * x
        case 3.0:
            return x * x * x
        case 0.5:
            result = build.sqrt(x) + 0.0  # -0 has the power +0
        case 1.5:
            result = x * build.sqrt(x)
        case -0.5:
            result = 1 / (build.sqrt(x) + 0.0)
        case -1.5:
            result = 1 / x / build.sqrt(x)
        case _:
            return None
    # the only negative with a power
    return build.where(x.equals(-np.inf), np.inf if exponent > 0 else 0.0, result)


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
    match node.inputs[0]:
        case Elementwise(op=Op.WHERE, inputs=(test, before, behind)) if node.type.size:
            end = joined_at(test)
        case _:
            return None
    if end is None:
        return None
    axis, place = end
    first = node.start[axis]
    last = first + (node.shape[axis] - 1) * node.step[axis]
    if first < place <= last:
        return None
    part = before if last < place else behind
    return build.strided(part, node.start, node.shape, node.step)


def joined_at(test: Node) -> tuple[int, int] | None:
    """(axis, end) of the test `iota < end`, in integers that hold every index."""
    match test:
        case Elementwise(op=Op.LT, inputs=(Iota(axis=axis, dtype=dtype), bound)):
            end = splat_value(bound)
            if end is not None and dtype.is_integer and holds_positions(dtype, test.shape[axis]):
                return axis, int(end)
    return None


def is_joined(node: Node) -> bool:
    """Whether a value is one of two by its position along an axis."""
    return (
        isinstance(node, Elementwise)
        and node.op is Op.WHERE
        and joined_at(node.inputs[0]) is not None
    )


def has_own_axes(view: Node) -> bool:
    """Whether a reshape is of what is made along its axes: indices would have to be taken apart."""
    if not isinstance(view, Reshape) or keeps_axes(view):
        return False
    return isinstance(view.inputs[0], (Expand, Permute)) or is_joined(view.inputs[0])


def keeps_axes(node: Node) -> bool:
    """Whether a node is a reshape that adds or drops axes of one element."""
    if not isinstance(node, Reshape):
        return False
    return [n for n in node.shape if n != 1] == [n for n in node.inputs[0].shape if n != 1]


def holds_positions(dtype: DType, extent: int) -> bool:
    """Whether every index below `extent` is a number of `dtype`: integers wrap, floats round."""
    most = 1 << (dtype.mantissa_bits + 1) if dtype.is_float else dtype.bounds[1]
    return extent - 1 <= most


def is_known(node: Node, elements: int, nodes: int) -> bool:
    """Whether a value is made of constants and positions alone: so many nodes at most, none of
    which has more than so many elements."""
    seen: set[Node] = {node}
    pending: list[Node] = [node]
    while pending:
        inner = pending.pop()
        known = isinstance(inner, (Constant, Iota, Elementwise, *VIEWS))
        if not known or inner.type.size > elements or len(seen) > nodes:
            return False
        new = [child for child in inner.inputs if child not in seen]
        seen.update(new)
        pending += new
    return True


def slice_of_known(node: Slice) -> Node | None:
    """One element of what is made of constants and positions, such as a start in a list of them."""
    if node.type.size != 1 or not is_known(node, FEW, FEW):
        return None
    (value,) = run_graph(Graph((), (node,)), ())
    return build.broadcast(build.constant(value.reshape(())), node.shape)


def slice_of_positions(node: Slice) -> Node | None:
    """Some positions along an axis are as many from the first, times the step, unless they were
    rounded."""
    inner = node.inputs[0]
    if not isinstance(inner, Iota):
        return None
    if node.dtype.is_float and not holds_positions(node.dtype, inner.shape[inner.axis]):
        return None
    start, step = node.start[inner.axis], node.step[inner.axis]
    position = build.iota(node.shape, node.dtype, inner.axis)
    if step != 1:
        position = position * step
    return position + start if start else position


def flip_of_flip(node: Flip) -> Node | None:
    inner = node.inputs[0]
    if not isinstance(inner, Flip):
        return None
    return build.flip(inner.inputs[0], sorted(set(node.axes) ^ set(inner.axes)))


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


def permute_of_positions(node: Permute) -> Node | None:
    """Positions are counted along where the axis went."""
    inner = node.inputs[0]
    if not isinstance(inner, Iota):
        return None
    return build.iota(node.shape, node.dtype, node.order.index(inner.axis))


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


def joined_axes(source: Shape, result: Shape) -> Iterator[tuple[list[int], list[int]]]:
    """Which axes of a reshape become which, those of extent 1 aside."""
    for first, stop, start, end in axis_groups(source, result):
        old = [axis for axis in range(first, stop) if source[axis] != 1]
        yield old, [axis for axis in range(start, end) if result[axis] != 1]


def one_position(node: Iota) -> Node | None:
    """The only position along an axis is zero."""
    return build.full(0, node.shape, node.dtype) if node.shape[node.axis] == 1 else None


def gather_of_positions(node: Gather) -> Node | None:
    """The element at a position of an array of positions is the position."""
    source, *indices = node.inputs
    if not isinstance(source, Iota):
        return None
    return build.cast(indices[source.axis], node.dtype)


def gather_of_ranges(node: Gather) -> Node | None:
    """Elements that follow each other from a place known now are a slice: x[iota + 2], x[3]."""
    source, *indices = node.inputs
    found = [counted_from(index) for index in indices]
    if not found or None in found or node.type.size == 0:
        return None
    start, counted = zip(*(place for place in found if place is not None), strict=True)
    sizes = [1 if axis is None else node.shape[axis] for axis in counted]
    if any(not 0 <= a <= n - m for a, m, n in zip(start, sizes, source.shape, strict=True)):
        return None
    axes = [axis for axis in counted if axis is not None]
    if len(set(axes)) < len(axes):
        return None
    block = build.strided(source, start, sizes, [1] * len(sizes))
    block = build.reshape(block, tuple(node.shape[axis] for axis in axes))
    return build.broadcast(block, node.shape, axes)


def counted_from(index: Node) -> tuple[int, int | None] | None:
    """The first index and the axis along which it counts up, if it does and that is known."""
    match index:
        case Iota(axis=axis):
            return 0, axis
        case Elementwise(op=Op.ADD, inputs=(first, Iota(axis=axis)) | (Iota(axis=axis), first)):
            start = splat_value(first)
            return None if start is None else (int(start), axis)
        case Constant(value=value, shape=(extent,)) if extent > 1:
            start = int(value[0])
            return (start, 0) if np.array_equal(value, np.arange(start, start + extent)) else None
        case Expand(inputs=(source,)) if splat_value(source) is None:
            return counted_from(source)
        case Reshape(inputs=(Constant(shape=(extent,)) | Iota(shape=(extent,)) as source,)) if (
            extent in index.shape
        ):
            found = counted_from(source)
            return None if found is None else (found[0], index.shape.index(extent))
        case _:
            start = splat_value(index)
            return None if start is None else (int(start), None)
