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
from math import prod

from tinyhlo.ir import build
from tinyhlo.ir.contraction import find_contraction, varies
from tinyhlo.ir.dtypes import F32
from tinyhlo.ir.graph import VIEWS, Expand, Graph, Node, Permute, Reduce, Reshape, Shape, Window
from tinyhlo.ir.index import Var, index
from tinyhlo.ir.joining import join, nth
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import rebuild, simplify
from tinyhlo.ir.views import through
from tinyhlo.ir.walks import has_control_flow
from tinyhlo.records import dataclass
from tinyhlo.target import Target

TAPS, RESULTS = 3, 2  # along each of two axes
PLACES = TAPS + RESULTS - 1
# Multiply-adds that a core could do while it moves a byte: to or from the cache that all share, or
# memory, which serves so many cores at once
CACHE_COST, MEMORY_COST, SERVED = 2, 4, 4
LEAST_SAVED = 1 << 24  # multiply-adds: 0.1 ms and more, for 0.1 s of compiling

Row = Sequence[Node]


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

    def changed(node: Node, inputs: list[Node]) -> Node:
        found = rebuild(node, inputs, lambda region: fewer_multiplications(region, target))
        convolution = find_convolution(found)
        if convolution is None or not pays(convolution, target):
            return found
        return transformed(convolution, found.shape)

    nodes = graph.nodes()
    found = any(isinstance(node, Window) and is_slid(node) is not None for node in nodes)
    if target.runs_grids or not (found or has_control_flow(nodes)):
        return graph
    new = graph.mapped(changed)
    return graph if new is graph else simplify(new)


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
        kept = tuple(axis for axis in range(len(factor.shape)) if axis not in node.axes)
        image = window.inputs[0]
        found = Convolution(image, taps, axes[:rank], spatial, slid, channels, kept)
        slides = len(found.places) == 2 and {*found.places} <= {*kept} - varies(taps)
        if slides and {*slid} < {*product.k} <= varies(taps) & varies(factor):
            return found
    return None


def windows_below(factor: Node) -> tuple[Window, tuple[int | None, ...]] | None:
    """The windows of which a factor is another arrangement, and to which of its axes each of theirs
    goes (None: of extent one)."""
    variables = [Var(f"p{axis}", extent) for axis, extent in enumerate(factor.shape)]
    at = tuple(map(index, variables))
    node = factor
    while isinstance(node, (Reshape, Permute, Expand)):
        at, _ = through(node, at)
        node = node.inputs[0]
    numbers = {index(var): axis for axis, var in enumerate(variables) if var.extent > 1}
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
    shape, features_axes = convolution.taps.shape, varies(convolution.taps)
    channels = prod(shape[axis] for axis in convolution.channels)
    features = prod(shape[axis] for axis in convolution.kept if axis in features_axes)
    results = prod(shape[axis] for axis in convolution.kept) // features
    places = [shape[axis] for axis in convolution.places]
    squares = results // prod(places) * prod(squares_along(n) for n in places)
    saved = (results * TAPS**2 - squares * PLACES**2) * channels * features
    stored = PLACES**2 * (squares * (channels + features) + channels * features) * F32.itemsize
    far = MEMORY_COST * max(1, target.threads // SERVED)
    cost = CACHE_COST if stored <= target.l3_bytes // 2 else far
    return saved >= max(LEAST_SAVED, 2 * cost * stored)


# ---------------------------------------------------------------- how


def transformed(convolution: Convolution, shape: Shape) -> Node:
    """The results, of `shape`. Products have the axis of the 16 elements first, then what is kept,
    channels last."""
    kept, channels = convolution.kept, convolution.channels
    extents = {axis: convolution.taps.shape[axis] for axis in (*kept, *channels)}
    extents |= {axis: squares_along(extents[axis]) for axis in convolution.places}
    position = {axis: 1 + k for k, axis in enumerate((*kept, *channels))}
    product = (PLACES**2, *extents.values())

    def factor(elements: Sequence[Row], node: Node, axes: Sequence[int | None]) -> Node:
        """All elements, of which axis k is the product's `axes[k]`, in the order of `node`."""
        order = [k for k in in_memory_order(node) if axes[k] is not None]
        own = [axis for k in order if (axis := axes[k]) is not None]
        squeezed = [k for k, axis in enumerate(axes) if axis is not None]
        shape = [extents[axis] for axis in axes if axis is not None]
        pieces = [build.reshape(each, tuple(shape)) for row in elements for each in row]
        turned = [build.permute(each, [squeezed.index(k) for k in order]) for each in pieces]
        return build.broadcast(stacked(turned, 0), product, (0, *(position[axis] for axis in own)))

    image = factor(image_elements(convolution), convolution.image, convolution.axes)
    own = varies(convolution.taps) & {*extents}
    axes = [k if k in own else None for k in range(len(convolution.taps.shape))]
    taps = factor(taps_elements(convolution), convolution.taps, axes)
    sums = build.reduce(Op.ADD, image * taps, [position[axis] for axis in channels])
    elements = [[nth(sums, 0, PLACES * i + j) for j in range(PLACES)] for i in range(PLACES)]
    rows = turned([sums_of_three(row) for row in turned([sums_of_three(r) for r in elements])])
    first, second = (position[axis] - 1 for axis in convolution.places)
    (upper, lower) = (stacked(row, second + 1) for row in rows)
    whole = stacked([upper, lower], first + 1 + (second < first))
    even = tuple(extents[a] * (RESULTS if a in convolution.places else 1) for a in kept)
    return build.slice_(build.reshape(whole, even), [0] * len(shape), shape)


def image_elements(convolution: Convolution) -> list[Row]:
    """B' d B of all squares: each element has the image's axes, the square's number along two."""
    image, spatial = convolution.image, convolution.spatial
    shape, none = list(image.shape), [0] * len(image.shape)
    counts = [squares_along(shape[axis] - TAPS + 1) for axis in spatial]
    missing = [RESULTS * n + TAPS - 1 - shape[a] for n, a in zip(counts, spatial, strict=True)]
    padded = build.pad(image, build.scalar(0, F32), none, placed(none, spatial, missing))
    extents, step = placed(shape, spatial, counts), placed([1] * len(shape), spatial, [RESULTS] * 2)

    def square(i: int, j: int) -> Node:
        return build.strided(padded, placed(none, spatial, (i, j)), extents, step)

    rows = [[square(i, j) for j in range(PLACES)] for i in range(PLACES)]
    return turned([differences(row) for row in turned([differences(row) for row in rows])])


def taps_elements(convolution: Convolution) -> list[Row]:
    """G g G' for each channel and feature, with the product's axes."""
    taps, slid = convolution.taps, convolution.slid
    own = varies(taps) - {*slid}
    extents = [n if axis in own else 1 for axis, n in enumerate(taps.shape)]

    def tap(i: int, j: int) -> Node:
        return build.strided(
            taps, placed([0] * len(extents), slid, (i, j)), extents, [1] * len(extents)
        )

    rows = [[tap(i, j) for j in range(TAPS)] for i in range(TAPS)]
    return turned([halves(row) for row in turned([halves(row) for row in rows])])


def squares_along(results: int) -> int:
    return -(-results // RESULTS)


def differences(d: Row) -> Row:
    """B' d"""
    return d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]


def halves(g: Row) -> Row:
    """G g"""
    return g[0], (g[0] + g[1] + g[2]) * 0.5, (g[0] - g[1] + g[2]) * 0.5, g[2]


def sums_of_three(m: Row) -> Row:
    """A' m"""
    return m[0] + m[1] + m[2], m[1] - m[2] - m[3]


def turned(rows: Sequence[Row]) -> list[Row]:
    return list(zip(*rows, strict=True))


def in_memory_order(node: Node) -> list[int]:
    """The axes of a view, those outside first in the memory that it is a view of."""
    variables = [Var(f"p{axis}", extent) for axis, extent in enumerate(node.shape)]
    numbers = {var: axis for axis, var in enumerate(variables)}
    at = tuple(map(index, variables))
    while isinstance(node, VIEWS):
        at, _ = through(node, at)
        node = node.inputs[0]
    found = dict.fromkeys(numbers[atom] for i in at for atom, _ in i.terms if isinstance(atom, Var))
    return [*(axis for axis in numbers.values() if axis not in found), *found]


def placed(values: Sequence[int], axes: Sequence[int], new: Sequence[int]) -> list[int]:
    """The values, with new ones at two axes."""
    given = dict(zip(axes, new, strict=True))
    return [given.get(axis, value) for axis, value in enumerate(values)]


def stacked(pieces: Row, axis: int) -> Node:
    """Pieces along a new axis."""
    return join([build.reshape(p, (*p.shape[:axis], 1, *p.shape[axis:])) for p in pieces], axis)
