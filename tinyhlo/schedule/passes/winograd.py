"""Convolutions by 3x3 taps with fewer multiplications: Winograd's F(2x2, 3x3).

Four results lie in a square of the result and need a square `d` of 4x4 of the input. With taps `g`:

    Y = A' ((G g G') * (B' d B)) A        16 multiplications a channel in place of 36

In: a simplified Graph. Out: one that computes the same sums in another order. Of each channel the
16 elements of G g G' and of B' d B are stored, and their products summed over channels by 16
products of matrices. That pays where channels and features are many, so that the products take
longer than to write and to read what is stored.

Source: A. Lavin, S. Gray, Fast Algorithms for Convolutional Neural Networks, 2015, section 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from tinyhlo.ir import build
from tinyhlo.ir.contraction import find_contraction, varies
from tinyhlo.ir.dtypes import F32
from tinyhlo.ir.graph import (
    VIEWS,
    Elementwise,
    Graph,
    Node,
    Reduce,
    Shape,
    Window,
    added_locations,
)
from tinyhlo.ir.index import Var, axis_variables, point_of
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import rebuild, simplify
from tinyhlo.ir.views import ARRANGED, below_views, seen_through
from tinyhlo.ir.walks import Users, has_control_flow, reachable, users_of
from tinyhlo.numbers import ceil_div
from tinyhlo.records import dataclass
from tinyhlo.schedule.values import is_leaf
from tinyhlo.target import Target

TAPS, RESULTS = 3, 2  # along each of two axes
PLACES = TAPS + RESULTS - 1
# Multiply-adds that a core could do while it moves a byte to or from the last cache, or memory
CACHE_COST, MEMORY_COST = 2, 4
MOST_STORED = 1 << 29  # bytes
LEAST_SAVED = 1 << 24  # multiply-adds: 0.1 ms and more, for 0.1 s of compiling

Matrix = np.ndarray[Any, Any]
A = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])  # A', of four sums
B = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])  # B', of four places
G = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]]) / 2  # of three taps


@dataclass(frozen=True, slots=True)
class Convolution:
    """A sum of windows of `image` times taps. Axes are those of the product's shape: `axes[k]` is
    where axis k of the image goes (None: of extent one), `spatial` are the two axes of the image
    that windows run along, `slid` those of their taps. `taps` has the product's shape."""

    image: Node
    taps: Node
    axes: tuple[int | None, ...]
    spatial: tuple[int, int]
    slid: tuple[int, ...]
    channels: tuple[int, ...]
    kept: tuple[int, ...]

    @property
    def places(self) -> tuple[int, ...]:
        """The product's axes along which results lie."""
        return tuple(axis for k in self.spatial if (axis := self.axes[k]) is not None)


def fewer_multiplications(graph: Graph, target: Target) -> Graph:
    """The same Graph if there is no convolution for which it pays; regions of loops and branches
    included."""
    nodes = graph.nodes()
    found = any(isinstance(node, Window) and is_slid(node) is not None for node in nodes)
    if target.runs_grids or not (found or has_control_flow(nodes)):
        return graph
    users = users_of(nodes)
    origins: dict[Node, Node] = {}  # of new nodes: the convolution whose source line they have

    def changed(node: Node, inputs: list[Node]) -> Node:
        found = rebuild(node, inputs, lambda region: fewer_multiplications(region, target))
        convolution = find_convolution(found)
        if convolution is None or not pays(convolution, target):
            return found
        results = transformed(convolution, found.shape)
        image, taps = convolution.image, convolution.taps
        given = (image, below_views(image), taps)
        new = reachable([results], lambda n: () if n in given else n.inputs)
        origins.update((inner, node) for inner in new if inner not in given)
        return results if has_epilogue(node, users) else build.barrier(results)

    new = graph.mapped(changed)
    if new is graph:
        return graph
    locations = added_locations(new.locations, graph.locations, origins)
    return simplify(replace(new, locations=locations))


# ---------------------------------------------------------------- which, and whether


def find_convolution(node: Node) -> Convolution | None:
    """The convolution by 3x3 taps that a node computes: of floats, in one group, without strides
    or dilations."""
    product = find_contraction(node)
    if not isinstance(node, Reduce) or product is None or node.dtype is not F32 or product.batch:
        return None
    for factor, taps in ((product.left, product.right), (product.right, product.left)):
        windows = windows_below(factor)
        spatial = is_slid(windows[0]) if windows is not None else None
        if windows is None or spatial is None:
            continue
        window, axes = windows
        rank = len(window.size)
        slid = tuple(axis for k in spatial if (axis := axes[rank + k]) is not None)
        channels = tuple(axis for axis in node.axes if axis not in slid)
        image = window.inputs[0]
        found = Convolution(image, taps, axes[:rank], spatial, slid, channels, node.kept)
        slides = len(found.places) == 2 and {*found.places} <= {*node.kept} - varies(taps)
        if slides and {*slid} < {*product.k} <= varies(taps) & varies(factor):
            return found
    return None


def windows_below(factor: Node) -> tuple[Window, tuple[int | None, ...]] | None:
    """The windows of which a factor is another arrangement, and to which of its axes each of theirs
    goes (None: of extent one)."""
    point = point_of(factor.shape)
    node, at = seen_through(factor, point, ARRANGED)
    numbers = {i: axis for axis, i in enumerate(point) if factor.shape[axis] > 1}
    if not isinstance(node, Window) or not all(i in numbers or i.is_constant for i in at):
        return None
    return node, tuple(numbers.get(i) for i in at)


def is_slid(window: Window) -> tuple[int, int] | None:
    """The two axes along which windows of 3x3 neighbours begin at every place."""
    axes = tuple(axis for axis, size in enumerate(window.size) if size > 1)
    if len(axes) != 2 or any(window.size[axis] != TAPS for axis in axes):
        return None
    plain = all(n == 1 for n in (*window.stride, *(window.dilation[axis] for axis in axes)))
    return (axes[0], axes[1]) if plain else None


def pays(convolution: Convolution, target: Target) -> bool:
    """Whether the multiply-adds that are saved take longer than moving what is stored."""
    shape, own = convolution.taps.shape, varies(convolution.taps)
    channels = prod(shape[axis] for axis in convolution.channels)
    features = prod(shape[axis] for axis in convolution.kept if axis in own)
    results = prod(shape[axis] for axis in convolution.kept) // features
    places = [shape[axis] for axis in convolution.places]
    squares = results // prod(places) * prod(squares_along(n) for n in places)
    saved = (results * TAPS**2 - squares * PLACES**2) * channels * features
    stored = PLACES**2 * (squares * (channels + features) + channels * features) * F32.itemsize
    cost = CACHE_COST if stored <= target.l3_bytes // 2 else MEMORY_COST
    return stored <= MOST_STORED and saved >= max(LEAST_SAVED, 2 * cost * stored)


def has_epilogue(node: Node, users: Users) -> bool:
    """Whether only work on its elements follows a value, up to products, which take that from
    memory. Other loops would find the four results of a square far apart: for them it is stored."""
    followed = reachable([node], lambda n: (u for u in users[n] if isinstance(u, Elementwise)))
    last = [user for n in followed for user in users[n] if not isinstance(user, Elementwise)]
    behind = reachable(last, lambda n: users[n] if isinstance(n, VIEWS) else ())
    ends = [n for n in behind if not isinstance(n, VIEWS)]
    return all(any(find_contraction(user) for user in users[n]) for n in ends)


# ---------------------------------------------------------------- how


def transformed(convolution: Convolution, shape: Shape) -> Node:
    """The results, of `shape`. Products have the axis of the 16 elements first, then what is kept,
    channels last; four results of a square are the rows of one more product."""
    kept, channels = convolution.kept, convolution.channels
    extents = {axis: convolution.taps.shape[axis] for axis in (*kept, *channels)}
    extents |= {axis: squares_along(extents[axis]) for axis in convolution.places}
    position = {axis: 1 + k for k, axis in enumerate((*kept, *channels))}
    product = (PLACES**2, *extents.values())

    def factor(matrix: Matrix, source: Node, axes: Sequence[int]) -> Node:
        last = len(source.shape) - 2, len(source.shape) - 1
        found = elements(np.kron(matrix, matrix), source, last)
        return build.broadcast(found, product, (0, *(position[axis] for axis in axes)))

    image = factor(B, *squares_of(convolution))
    taps = factor(G, *taps_of(convolution))
    sums = build.reduce(Op.ADD, image * taps, [position[axis] for axis in channels])
    squares = elements(np.kron(A, A), sums, (0,))
    order = [*range(2, 2 + len(kept))]
    for number, axis in enumerate(convolution.places):
        order.insert(1 + order.index(1 + position[axis]), number)
    whole = build.permute(build.reshape(squares, (RESULTS, RESULTS, *squares.shape[1:])), order)
    even = tuple(extents[a] * (RESULTS if a in convolution.places else 1) for a in kept)
    return build.slice_(build.reshape(whole, even), [0] * len(shape), shape)


def elements(matrix: Matrix, source: Node, axes: Sequence[int]) -> Node:
    """A matrix times what lies along `axes` of `source`; its rows are the first axis."""
    shape = (len(matrix), *source.shape)
    summed = [1 + axis for axis in axes]
    columns = matrix.reshape(len(matrix), *(shape[k] for k in summed)).astype(np.float32)
    coefficients, mask = (
        build.broadcast(build.constant(c), shape, (0, *summed)) for c in (columns, columns != 0)
    )
    terms = coefficients * build.broadcast(source, shape, range(1, len(shape)))
    return build.reduce(Op.ADD, build.where(mask, terms, 0), summed)


def squares_of(convolution: Convolution) -> tuple[Node, list[int]]:
    """Squares of the image that overlap by two places, their own axes last, and which of the
    product's axes the others are, in the order of memory."""
    image = over_stored(convolution.image)
    order = in_memory_order(image)
    shape = [image.shape[axis] for axis in order]
    spatial = [order.index(axis) for axis in convolution.spatial]
    size, step, missing = [1] * len(shape), [1] * len(shape), [0] * len(shape)
    for axis in spatial:
        size[axis], step[axis] = PLACES, RESULTS
        missing[axis] = RESULTS * squares_along(shape[axis] - TAPS + 1) + TAPS - 1 - shape[axis]
    even = build.pad(build.permute(image, order), build.scalar(0, F32), [0] * len(shape), missing)
    windows = build.window(even, size, step, [1] * len(shape))
    axes = {k: convolution.axes[axis] for k, axis in enumerate(order)}
    own = [k for k, axis in axes.items() if axis is not None]
    last = [len(shape) + axis for axis in spatial]
    ones = [k for k in range(len(windows.shape)) if k not in (*own, *last)]
    squares = build.permute(windows, [*own, *ones, *last])
    extents = (*(windows.shape[k] for k in own), PLACES, PLACES)
    return build.reshape(squares, extents), [axis for axis in axes.values() if axis is not None]


def taps_of(convolution: Convolution) -> tuple[Node, list[int]]:
    """Taps, their axes last, and which of the product's axes the others are, in the order of
    memory."""
    taps, slid = convolution.taps, convolution.slid
    own = [axis for axis in in_memory_order(taps) if axis in varies(taps) and axis not in slid]
    kept = (*own, *slid)
    extents = [n if axis in kept else 1 for axis, n in enumerate(taps.shape)]
    some = build.slice_(taps, [0] * len(extents), extents)
    ones = [axis for axis in range(len(extents)) if axis not in kept]
    found = build.permute(some, [*ones, *kept])
    return build.reshape(found, tuple(extents[axis] for axis in kept)), own


def over_stored(image: Node) -> Node:
    """The same views of a value that is stored: each of its places is read for four squares."""
    if isinstance(image, VIEWS):
        return rebuild(image, [over_stored(image.inputs[0]), *image.inputs[1:]])
    return image if is_leaf(image) else build.barrier(image)


def in_memory_order(node: Node) -> list[int]:
    """The axes of a view, those outside first in the memory that it is a view of."""
    numbers = {var: axis for axis, var in enumerate(axis_variables(node.shape))}
    _, at = seen_through(node, point_of(node.shape))
    found = dict.fromkeys(numbers[a] for i in at for a, _ in i.terms if isinstance(a, Var))
    return [*(axis for axis in numbers.values() if axis not in found), *found]


def squares_along(results: int) -> int:
    return ceil_div(results, RESULTS)
