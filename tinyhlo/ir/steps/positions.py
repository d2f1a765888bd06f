"""What simplifies positions, `iota`, and arrays of which elements at positions are taken.

    iota[2:5] -> iota + 2,   x[iota + 2] -> x[2:],   x[3] -> a slice

In: a node. Out: an equal one, or None where the step does not apply.
"""

from __future__ import annotations

import numpy as np

from tinyhlo.ir import build
from tinyhlo.ir.build import splat_value
from tinyhlo.ir.dtypes import holds_positions
from tinyhlo.ir.graph import (
    Constant,
    Elementwise,
    Expand,
    Gather,
    Iota,
    Node,
    Permute,
    Reshape,
    Slice,
)
from tinyhlo.ir.ops import Op


def one_position(node: Iota) -> Node | None:
    """The only position along an axis is zero."""
    return build.full(0, node.shape, node.dtype) if node.shape[node.axis] == 1 else None


def permute_of_positions(node: Permute) -> Node | None:
    """Positions are counted along where the axis went."""
    inner = node.inputs[0]
    if not isinstance(inner, Iota):
        return None
    return build.iota(node.shape, node.dtype, node.order.index(inner.axis))


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
        case Iota(axis=axis) if holds_positions(index.dtype, index.shape[axis]):
            return 0, axis
        case Elementwise(op=Op.ADD, inputs=(first, Iota(axis=axis)) | (Iota(axis=axis), first)):
            start = splat_value(first)
            if start is None or not holds_positions(index.dtype, int(start) + index.shape[axis]):
                return None
            return int(start), axis
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
