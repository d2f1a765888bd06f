"""What a view means: the index of its input for an index of its result.

    through(permute(x, (1, 0)), (i, j))   ->  (j, i), no condition
    below_views(slice(permute(x)))        ->  x

This is the only place that gives views a meaning for code generation; the interpreter has its own
(NumPy) one, and tests hold the two against each other. Also which axes of a reshape are which.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.graph import VIEWS, Expand, Flip, Node, Pad, Permute, Reshape, Shape, Slice, Window
from tinyhlo.ir.index import ZERO, Index, axis_variables, constant, linear, point_of, unravel
from tinyhlo.ir.joining import is_joined

Indices = tuple[Index, ...]

ARRANGED = (Reshape, Permute, Expand)  # views that have all elements, some of them repeated
UNFILLED = tuple(kind for kind in VIEWS if kind is not Pad)  # of nothing but elements


def through(node: Node, at: Indices) -> tuple[Indices, tuple[Condition, ...]]:
    """(index of `node.inputs[0]`, conditions under which it is read; else the fill of a Pad)."""
    source = node.inputs[0].shape
    match node:
        case Reshape():
            return reshape_index(node.shape, source, at), ()
        case Permute(order=order):
            inner = [ZERO] * len(order)
            for result_axis, source_axis in enumerate(order):
                inner[source_axis] = at[result_axis]
            return tuple(inner), ()
        case Expand():
            return tuple([ZERO if n == 1 else i for n, i in zip(source, at, strict=True)]), ()
        case Slice(start=start, step=step):
            return tuple(i * s + a for i, a, s in zip(at, start, step, strict=True)), ()
        case Flip(axes=axes):
            return tuple(
                constant(source[k] - 1) - i if k in axes else i for k, i in enumerate(at)
            ), ()
        case Window(stride=stride, dilation=dilation):
            rank = len(source)
            return tuple(at[k] * stride[k] + at[rank + k] * dilation[k] for k in range(rank)), ()
        case Pad():
            return pad_index(node, source, at)
    raise TypeError(f"{type(node).__name__} is not a view")


def seen_through(
    node: Node, at: Indices, kinds: tuple[type[Node], ...] = VIEWS
) -> tuple[Node, Indices]:
    """What views of these kinds show, and at which index; not whether pads show it there."""
    while isinstance(node, kinds):
        at, _ = through(node, at)
        node = node.inputs[0]
    return node, at


def steps_of(node: Node) -> list[int | None]:
    """How far apart neighbours along each axis lie in the memory behind the views of a node; None
    where that differs."""
    shown, at = seen_through(node, point_of(node.shape), ARRANGED)
    where = linear(at, shown.shape)
    return [where.coefficient(axis) for axis in axis_variables(node.shape)]


def views_of(node: Node, kinds: tuple[type[Node], ...] = VIEWS) -> Iterator[Node]:
    """A node, what it is a view of, and so on; the last is no view of these kinds."""
    yield node
    while isinstance(node, kinds):
        node = node.inputs[0]
        yield node


def below_views(node: Node, kinds: tuple[type[Node], ...] = VIEWS) -> Node:
    """What `node` has some elements of, or those and the filling of a Pad."""
    while isinstance(node, kinds):
        node = node.inputs[0]
    return node


def pad_index(
    node: Pad, source: tuple[int, ...], at: Indices
) -> tuple[Indices, tuple[Condition, ...]]:
    inner: list[Index] = []
    conditions: list[Condition] = []
    for position, n, low, interior in zip(at, source, node.low, node.interior, strict=True):
        shifted = position + -low
        if interior:
            conditions.append(Condition(shifted % (interior + 1), 0, 1))
            shifted = shifted // (interior + 1)
        conditions.append(Condition(shifted, 0, n))
        inner.append(shifted)
    return tuple(inner), tuple(c for c in conditions if not c.always)


def reshape_index(result: tuple[int, ...], source: tuple[int, ...], at: Indices) -> Indices:
    """Regroup axes: runs of result axes and source axes with equal products map to each other,
    so an untouched axis keeps its plain index."""
    if 0 in result:  # no element is ever read: any index will do
        return (ZERO,) * len(source)
    inner: list[Index] = []
    for first, stop, start, end in axis_groups(result, source):
        if stop - first == end - start == 1:
            inner.append(at[first])
        else:
            element = linear(at[first:stop], result[first:stop])
            inner.extend(unravel(element, source[start:end]))
    return tuple(inner)


@lru_cache(maxsize=1024)
def axis_groups(
    result: tuple[int, ...], source: tuple[int, ...]
) -> tuple[tuple[int, int, int, int], ...]:
    """The runs of axes with equal products: where they begin and end in both shapes. Without an
    element there is one run, of all axes."""
    if 0 in result:
        return ((0, len(result), 0, len(source)),)
    found: list[tuple[int, int, int, int]] = []
    i = j = 0
    while i < len(result) or j < len(source):
        first, start = i, j
        left = right = 1
        if i < len(result):
            left, i = result[i], i + 1
        if j < len(source):
            right, j = source[j], j + 1
        while left != right:
            if left < right:
                left, i = left * result[i], i + 1
            else:
                right, j = right * source[j], j + 1
        found.append((first, i, start, j))
    return tuple(found)


def joined_axes(source: Shape, result: Shape) -> Iterator[tuple[list[int], list[int]]]:
    """Which axes of a reshape become which, those of extent 1 aside."""
    for first, stop, start, end in axis_groups(source, result):
        old = [axis for axis in range(first, stop) if source[axis] != 1]
        yield old, [axis for axis in range(start, end) if result[axis] != 1]


def keeps_axes(node: Node) -> bool:
    """Whether a node is a reshape that adds or drops axes of one element."""
    if not isinstance(node, Reshape):
        return False
    return [n for n in node.shape if n != 1] == [n for n in node.inputs[0].shape if n != 1]


def has_own_axes(view: Node) -> bool:
    """Whether a reshape is of what is made along its axes: indices would have to be taken apart."""
    if not isinstance(view, Reshape) or keeps_axes(view):
        return False
    return isinstance(view.inputs[0], (Expand, Permute)) or is_joined(view.inputs[0])
