"""Arrays side by side, made and recognised, and what of an array lies along one axis.

join([a, b], 0)   ->  WHERE(iota < len(a), PAD(a), PAD(b))
join([x[:2], x[2:5]], 0)   ->  x[:5]
part(x, 0, 2, 5)  ->  SLICE(x), x[2:5]
nth(x, 0, 2)      ->  RESHAPE(SLICE(x)), x[2]
"""

from __future__ import annotations

import numpy as np

from tinyhlo.ir.build import (
    full,
    iota,
    pad,
    reshape,
    scalar,
    slice_,
    splat_value,
    update_slice,
    where,
)
from tinyhlo.ir.dtypes import holds_positions, index_dtype
from tinyhlo.ir.graph import Elementwise, Iota, Node, Slice
from tinyhlo.ir.ops import Op

SELECTED_PIECES = 16  # a select per piece and element; beyond it pieces are stored one by one


def join(pieces: list[Node], axis: int) -> Node:
    """Non-empty pieces one after another along `axis`."""
    pieces = neighbours_merged(pieces, axis)
    if len(pieces) == 1:
        return pieces[0]
    ends = [int(end) for end in np.cumsum([piece.shape[axis] for piece in pieces])]
    shape = tuple(ends[-1] if k == axis else n for k, n in enumerate(pieces[0].shape))
    if len(pieces) > SELECTED_PIECES:
        return join_by_stores(pieces, axis, ends, shape)
    position = iota(shape, index_dtype(shape), axis)
    *others, result = (
        padded(piece, axis, end - piece.shape[axis], shape[axis] - end)
        for piece, end in zip(pieces, ends, strict=True)
    )
    for whole, end in zip(reversed(others), reversed(ends[:-1]), strict=True):
        result = where(position < end, whole, result)
    return result


def neighbours_merged(pieces: list[Node], axis: int) -> list[Node]:
    """Slices of one array that lie side by side in it as one."""
    merged: list[Node] = []
    for piece in pieces:
        if merged and (both := as_one(merged[-1], piece, axis)) is not None:
            merged[-1] = both
        else:
            merged.append(piece)
    return merged


def as_one(first: Node, second: Node, axis: int) -> Node | None:
    if not isinstance(first, Slice) or not isinstance(second, Slice):
        return None
    end = list(first.start)
    end[axis] += first.shape[axis]
    if (
        first.inputs != second.inputs
        or tuple(end) != second.start
        or {*first.step, *second.step} != {1}
    ):
        return None
    stop = [start + size for start, size in zip(second.start, second.shape, strict=True)]
    return slice_(first.inputs[0], first.start, stop)


def join_by_stores(pieces: list[Node], axis: int, ends: list[int], shape: tuple[int, ...]) -> Node:
    """Each piece stored into place, so that many pieces cost no more than their elements."""
    dtype = index_dtype(shape)
    result = full(0, shape, pieces[0].dtype)
    for piece, end in zip(pieces, ends, strict=True):
        begin = [end - piece.shape[axis] if k == axis else 0 for k in range(len(shape))]
        result = update_slice(result, piece, [scalar(start, dtype) for start in begin])
    return result


def padded(x: Node, axis: int, before: int, after: int) -> Node:
    """x with so many zeros before and after it along `axis`; negative counts cut elements off."""
    low, high = [0] * len(x.shape), [0] * len(x.shape)
    low[axis], high[axis] = before, after
    return pad(x, scalar(0, x.dtype), low, high)


def part(x: Node, axis: int, start: int, stop: int) -> Node:
    """x[start:stop] along `axis`."""
    first, end = [0] * len(x.shape), list(x.shape)
    first[axis], end[axis] = start, stop
    return slice_(x, first, end)


def nth(x: Node, axis: int, number: int) -> Node:
    """x[number] along `axis`, which is dropped."""
    shape = list(x.shape)
    del shape[axis]
    return reshape(part(x, axis, number, number + 1), tuple(shape))


def is_joined(node: Node) -> bool:
    """Whether a value is one of two by its position along an axis."""
    return joined_parts(node) is not None


def joined_parts(node: Node) -> tuple[int, int, Node, Node] | None:
    """(axis, end, what a joined value is before `end` along the axis, and from there on)."""
    match node:
        case Elementwise(op=Op.WHERE, inputs=(test, before, behind)):
            found = joined_at(test)
            return (*found, before, behind) if found else None
    return None


def joined_at(test: Node) -> tuple[int, int] | None:
    """(axis, end) of the test `iota < end`, in integers that hold every index."""
    match test:
        case Elementwise(op=Op.LT, inputs=(Iota(axis=axis, dtype=dtype), bound)):
            end = splat_value(bound)
            if end is not None and dtype.is_integer and holds_positions(dtype, test.shape[axis]):
                return axis, int(end)
    return None
