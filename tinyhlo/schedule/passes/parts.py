"""Which parts of its inputs a part of a value needs.

    rows 3, 5, 7 of flip(x[8, 4])    ->    rows 0, 2, 4 of x, flipped

`PARTS` has the function of each class of nodes. What such a function gives may be larger than what
is asked: all of an axis that is scanned, all of axes that a reshape joins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tinyhlo.ir import build
from tinyhlo.ir.graph import (
    Elementwise,
    Expand,
    Flip,
    Gather,
    MultiReduce,
    Node,
    Pad,
    Permute,
    Reduce,
    Reshape,
    Scan,
    Shape,
    Slice,
    Sort,
    Window,
    intern,
)
from tinyhlo.ir.transform import find_transform
from tinyhlo.ir.views import axis_groups
from tinyhlo.schedule.passes.regions import (
    Need,
    Part,
    Parts,
    Rows,
    part_of,
    shape_in,
    types_in,
    whole,
)


def of_elementwise(node: Elementwise, own: Parts | Rows) -> Need:
    def made(inputs: list[Node]) -> Node:
        return build.elementwise(node.op, *inputs, dtype=node.dtype)

    return Need(own, (own,) * len(node.inputs), made)


def of_reduce(node: Reduce, own: Parts) -> Need | None:
    if find_transform(node) is not None:  # all rows are computed together
        return None
    asked = with_axes(own, node.axes, node.inputs[0].shape)
    return Need(own, (asked,), lambda inputs: build.reduce(node.op, inputs[0], node.axes))


def of_multi_reduce(node: MultiReduce, own: Parts) -> Need:
    count = len(node.results)
    asked = with_axes(own, node.axes, node.inputs[0].shape)
    types = types_in(own, node.results)

    def made(inputs: list[Node]) -> Node:
        return intern(MultiReduce, node.type, tuple(inputs), node.axes, node.combiner, types)

    return Need(own, (asked,) * count + (None,) * count, made)


def with_axes(own: Parts, axes: Sequence[int], shape: Shape) -> Parts:
    """Parts of what is reduced: those of the result, and all along `axes`."""
    rest = iter(own)
    return tuple(Part(0, 1, n) if axis in axes else next(rest) for axis, n in enumerate(shape))


def of_scan(node: Scan, own: Parts) -> Need:
    own = with_whole(own, (node.axis,), node.shape)
    return Need(own, (own,), lambda inputs: build.scan(node.op, inputs[0], node.axis, node.reverse))


def of_sort(node: Sort, own: Parts) -> Need:
    own = with_whole(own, (node.axis,), node.results[0].shape)
    asked = with_whole(own, (node.axis,), node.inputs[0].shape)
    types = types_in(own, node.results)

    def made(inputs: list[Node]) -> Node:
        return intern(Sort, node.type, tuple(inputs), node.axis, node.comparator, types)

    return Need(own, (asked,) * len(node.inputs), made)


def with_whole(own: Parts, axes: Sequence[int], shape: Shape) -> Parts:
    """The same parts, but all along `axes`."""
    return tuple(Part(0, 1, shape[k]) if k in axes else part for k, part in enumerate(own))


def of_gather(node: Gather, own: Parts | Rows) -> Need:
    asked = (None, *(own for _ in node.inputs[1:]))
    return Need(own, asked, lambda inputs: build.gather(inputs[0], inputs[1:]))


def of_permute(node: Permute, own: Parts) -> Need:
    asked = tuple(part for _, part in sorted(zip(node.order, own, strict=True)))
    return Need(own, (asked,), lambda inputs: build.permute(inputs[0], node.order))


def of_expand(node: Expand, own: Parts) -> Need:
    extents = node.inputs[0].shape
    asked = tuple(Part(0, 1, 1) if n == 1 else part for n, part in zip(extents, own, strict=True))
    return Need(own, (asked,), lambda inputs: build.expand(inputs[0], shape_in(own, node.shape)))


def of_flip(node: Flip, own: Parts) -> Need:
    asked = tuple(
        Part(node.shape[k] - 1 - part.last, part.step, part.size) if k in node.axes else part
        for k, part in enumerate(own)
    )
    return Need(own, (asked,), lambda inputs: build.flip(inputs[0], node.axes))


def of_slice(node: Slice, own: Parts) -> Need:
    triples = zip(node.start, node.step, own, strict=True)
    asked = tuple(
        part_of(start + part.start * step, start + part.last * step, part.step * step)
        for start, step, part in triples
    )
    return Need(own, (asked,), lambda inputs: inputs[0])


def of_pad(node: Pad, own: Parts) -> Need:
    """Neighbours, of axes that have nothing between elements."""
    source = node.inputs[0].shape
    kept: list[Part] = []
    asked: list[Part] = []
    low, high = list(node.low), list(node.high)
    for k, (part, n) in enumerate(zip(own, source, strict=True)):
        if node.interior[k]:
            kept.append(Part(0, 1, node.shape[k]))
            asked.append(Part(0, 1, n))
            continue
        start, stop = part.start, part.last + 1
        first = min(max(start - node.low[k], 0), n - 1)
        last = max(min(stop - node.low[k], n) - 1, first)
        low[k] = node.low[k] + first - start
        high[k] = stop - start - low[k] - (last + 1 - first)
        kept.append(part_of(start, stop - 1, 1))
        asked.append(part_of(first, last, 1))
    return Need(
        tuple(kept),
        (tuple(asked), None),
        lambda inputs: build.pad(inputs[0], inputs[1], low, high, node.interior),
    )


def of_window(node: Window, own: Parts) -> Need:
    """All of each window."""
    rank = len(node.size)
    own = with_whole(own, range(rank, 2 * rank), node.shape)
    stride = tuple(part.step * s for part, s in zip(own, node.stride, strict=False))
    asked = tuple(
        part_of(
            part.start * node.stride[k],
            part.last * node.stride[k] + (node.size[k] - 1) * node.dilation[k],
            1,
        )
        for k, part in enumerate(own[:rank])
    )
    return Need(
        own, (asked,), lambda inputs: build.window(inputs[0], node.size, stride, node.dilation)
    )


def of_reshape(node: Reshape, own: Parts) -> Need:
    """Runs of axes with equal products: all of one where its parts are no parts of the others."""
    source = node.inputs[0].shape
    kept, asked = list(own), list(whole(source))
    for first, stop, start, end in axis_groups(node.shape, source):
        if own[first:stop] == whole(node.shape[first:stop]):
            continue
        merged = merged_part(own[first:stop], node.shape[first:stop])
        split = None if merged is None else split_part(merged, source[start:end])
        if split is None:
            kept[first:stop] = whole(node.shape[first:stop])
        else:
            asked[start:end] = split
    own = tuple(kept)
    return Need(
        own, (tuple(asked),), lambda inputs: build.reshape(inputs[0], shape_in(own, node.shape))
    )


def merged_part(parts: Parts, shape: Shape) -> Part | None:
    """The positions of `parts` in row-major order, if they are a Part."""
    merged = Part(0, 1, 1)
    for part, extent in zip(parts, shape, strict=True):
        inner = part.start
        if merged.size == 1:
            step, count = part.step, part.size
        elif part.size == 1:
            step, count = merged.step * extent, merged.size
        elif merged.step == 1 and inner < part.step and part.step * part.size == extent:
            step, count = part.step, merged.size * part.size
        else:
            return None
        merged = Part(merged.start * extent + inner, step, count)
    return merged


def split_part(part: Part, shape: Shape) -> Parts | None:
    """Parts of axes whose positions in row-major order are `part`."""
    found: list[Part] = []
    for extent in reversed(shape):
        start, step, count = part
        outer, inner = divmod(start, extent)
        if count == 1 or step % extent == 0:
            found.append(Part(inner, 1, 1))
            part = part_of(outer, part.last // extent, max(step // extent, 1))
        elif part.last // extent == outer:
            found.append(Part(inner, step, count))
            part = Part(outer, 1, 1)
        elif extent % step == 0 and inner < step and step * count % extent == 0:
            found.append(part_of(inner, inner + extent - step, step))
            part = part_of(outer, outer + step * count // extent - 1, 1)
        else:
            return None
    return tuple(reversed(found))


PARTS: Mapping[type[Node], Callable[[Any, Parts], Need | None]] = {
    Elementwise: of_elementwise,
    Reduce: of_reduce,
    MultiReduce: of_multi_reduce,
    Scan: of_scan,
    Sort: of_sort,
    Gather: of_gather,
    Reshape: of_reshape,
    Permute: of_permute,
    Expand: of_expand,
    Pad: of_pad,
    Slice: of_slice,
    Flip: of_flip,
    Window: of_window,
}
