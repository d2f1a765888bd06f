"""Depths that consist of whole groups.

In: a Layout, a Form that multiplies neighbours along the depth in groups, the left operand's
source. Out: the same with another innermost axis of the depth, or with zeros at its end:

    3x3 windows of 16 channels, NCHW  ->  channels innermost: the box that is staged is NHWC
    3x3 windows of 15 channels bf16   ->  of 16: the box of the image that is staged has one more

Otherwise a group would hold the last element of a window's row and the first of the next one, and
every element of the left operand would be copied from a place that has to be divided out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tinyhlo.codegen.contraction.cut import MAX_DEPTH, split_depth
from tinyhlo.codegen.contraction.form import Form
from tinyhlo.codegen.contraction.layout import Layout
from tinyhlo.codegen.contraction.operand import Source
from tinyhlo.ir import build
from tinyhlo.ir.graph import Node
from tinyhlo.numbers import ceil_div, round_up
from tinyhlo.target import Target

PACKED_SLOTS = 4  # of issue, for each element that is packed from a place that is divided out


def whole_groups(
    layout: Layout, form: Form, target: Target, left: Source | None
) -> tuple[Layout, Source | None]:
    """The layout and the left operand's source. Nothing is filled up where so many columns are
    multiplied by the zeros that packing takes less. Matrices have rows that are packed whole, and
    end in zeros of their own."""
    if form.group == 1 or form.of_matrices or left is None:
        return layout, left
    layout = with_channels_last(layout, form, left)
    c = layout.contraction
    axis, extents = c.k[-1], [c.left.shape[k] for k in c.k]
    number, parts, _ = split_depth(extents)
    extent = extents[-1]
    step = extent // parts if number == len(extents) - 1 else extent
    if step % form.group == 0:
        return layout, left
    more = round_up(extent, form.group * ceil_div(extent, MAX_DEPTH)) - extent
    at_once = target.vector_bytes // form.sums.itemsize * form.group
    if more * c.extent(c.n) > PACKED_SLOTS * extent * at_once:
        return layout, left
    longer = filled_source(left, axis, extent, more, exact=form.sums.is_integer)
    if longer is None:
        return layout, left
    both = (filled(operand, axis, more) for operand in (c.left, c.right))
    return replace(layout, contraction=replace(c, left=next(both), right=next(both))), longer


def with_channels_last(layout: Layout, form: Form, left: Source) -> Layout:
    """Where groups do not divide the columns of a window, but the channels of an image that lies by
    channels, those are the innermost axis of the depth: the box that is staged is turned."""
    c = layout.contraction
    if c.left.shape[c.k[-1]] % form.group == 0:
        return layout
    whole = [k for k in c.k if c.left.shape[k] % form.group == 0 and walks_alone(left, k, c.batch)]
    if not whole:
        return layout
    order = (*(k for k in c.k if k != whole[-1]), whole[-1])
    return replace(layout, contraction=replace(c, k=order))


def walks_alone(source: Source, axis: int, batch: Sequence[int] = ()) -> bool:
    """Whether an axis of the product walks along one of the source's, on which no other does but
    those of a batch."""
    along = source.axis_along(axis)
    if along is None:
        return False
    steps = source.index[along].coefficients.items()
    return all(k == axis or k in batch for k, step in steps if step)


def filled(node: Node, axis: int, more: int) -> Node:
    """With so many zeros at the end of an axis; without so many of its elements, if negative."""
    high = [more if k == axis else 0 for k in range(len(node.shape))]
    return build.pad(node, build.scalar(0, node.dtype), [0] * len(high), high)


def filled_source(source: Source, axis: int, extent: int, more: int, exact: bool) -> Source | None:
    """The source with zeros where an axis of the product goes on beyond its extent; None where that
    walks along none of the source's. Where others walk there, too, along windows or groups of
    channels, what lies beside them is multiplied by zeros of the right operand, which does where
    that is `exact`: floats may be no numbers."""
    along = source.axis_along(axis)
    if along is None:
        return None
    place, node = source.index[along], source.node
    step = place.coefficient(axis)
    alone = walks_alone(source, axis)
    if not (alone or exact):
        return None
    if alone:  # nothing of what follows a slice
        node = filled(node, along, place.offset + step * (extent - 1) + 1 - node.shape[along])
    return Source(filled(node, along, step * more), source.index)
