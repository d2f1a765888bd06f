"""gather, torch_index_select, dynamic slices; where windows lie, for them and for scatter.

    dynamic_slice(x[8,4], i, j, sizes [2,4])  ->  Gather(x, clamp(i, 0, 6) + iota, iota)

    x[(iota + 1) % n]                         ->  x[1:] and x[:1], side by side

Starts are clamped so that the whole slice lies inside; every index of a Gather is in bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tinyhlo.import_stablehlo.operands import clamp_index, known_array, known_scalar
from tinyhlo.import_stablehlo.records import WindowDimensions
from tinyhlo.import_stablehlo.walker import SHAPE, Rule, UnsupportedError, on_values
from tinyhlo.ir.build import (
    broadcast,
    constant,
    elementwise,
    expand,
    full,
    gather,
    iota,
    scalar,
    slice_,
    update_slice,
)
from tinyhlo.ir.dtypes import DType, index_dtype
from tinyhlo.ir.graph import Elementwise, Expand, Graph, Node, Pad, Shape
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.joining import join, joined_parts, nth, part
from tinyhlo.ir.walks import is_known
from tinyhlo.records import dataclass

FEW_RUNS = 4  # beyond so many runs of starts a gather stays one Gather,
LONG_RUNS = 4  # as it does where runs have fewer starts on average
MOST_STARTS = 1 << 20  # that are computed while importing
MOST_NODES = 64  # of the graph that computes them


@dataclass(frozen=True, slots=True)
class Placement:
    """Which element of an array of shape `array` each element of `windows`, a shape, is: what a
    gather reads or a scatter writes. `window_axis` maps an axis of the array to the axis of the
    windows that runs along it; their other axes, `batch_axes`, count windows."""

    numbers: WindowDimensions
    starts: Node
    array: Shape
    windows: Shape
    batch_axes: tuple[int, ...]
    window_axis: Mapping[int, int]

    @property
    def dtype(self) -> DType:
        return index_dtype(self.array)

    def size(self, axis: int) -> int:
        """Extent of a window along an axis of the array."""
        return self.windows[self.window_axis[axis]] if axis in self.window_axis else 1

    def start(self, axis: int) -> Node | None:
        """The starts along an axis of the array (shape: the batch), None where none are given."""
        if axis not in self.numbers.indexed_axes:
            return None
        vector, component = self.numbers.vector_axis, self.numbers.indexed_axes.index(axis)
        if vector == len(self.starts.shape):
            return self.starts
        return component_of(self.starts, vector, component)

    def spread(self, of_batch: Node) -> Node:
        """A value of each window, for each of its elements."""
        return broadcast(of_batch, self.windows, self.batch_axes)

    def index(self, axis: int, start: Node | None) -> Node:
        """The index along an axis of the array, for windows that begin at `start`."""
        numbers = self.numbers
        counted: list[int] = []
        if axis in numbers.batching_axes:
            rank = range(len(self.starts.shape))
            batch = [k for k in rank if k != numbers.vector_axis]
            own = numbers.starts_batching_axes[numbers.batching_axes.index(axis)]
            counted.append(self.batch_axes[batch.index(own)])
        if self.size(axis) > 1:
            counted.append(self.window_axis[axis])
        first = None if start is None else self.spread(start)
        return index_of(self.windows, self.dtype, first, counted)


def component_of(starts: Node, axis: int, number: int) -> Node:
    """starts[number] along an axis, of components alone: that of [k, 0] held within [0, 0] and
    [9, 0] is k within 0 and 9, or 0, where a part of the whole would depend on k."""
    done: dict[tuple[Node, int], Node] = {}

    def component(x: Node, number: int) -> Node:
        if (x, number) not in done:
            done[x, number] = made(x, number)
        return done[x, number]

    def made(x: Node, number: int) -> Node:
        joined = joined_parts(x)
        if joined is not None and joined[0] == axis:
            _, end, before, behind = joined
            return component(before if number < end else behind, number)
        match x:
            case Expand(inputs=(source,)):
                one = component(source, number if source.shape[axis] > 1 else 0)
                return expand(one, (*x.shape[:axis], *x.shape[axis + 1 :]))
            case Pad(inputs=(source, _)) if is_padded_along(x, axis):
                place = number - x.low[axis]
                if 0 <= place < source.shape[axis]:
                    return component(source, place)
            case Elementwise(inputs=inputs, op=op):
                parts = [component(each, number) for each in inputs]
                return elementwise(op, *parts, dtype=x.dtype)
        known = known_array(x)
        if known is None:
            return nth(x, axis, number)
        return constant(np.array(known.take(number, axis), order="C"))

    return component(starts, number)


def is_padded_along(x: Pad, axis: int) -> bool:
    """Whether elements are put before and behind along an axis, and nowhere else."""
    others = (x.low[k] == x.high[k] == 0 for k in range(len(x.low)) if k != axis)
    return not any(x.interior) and all(others)


def placement_of(
    numbers: WindowDimensions, starts: Node, array: Shape, windows: Shape
) -> Placement:
    """Read the dimension numbers of a gather or scatter."""
    batch_axes = tuple(k for k in range(len(windows)) if k not in numbers.window_axes)
    removed = numbers.removed_axes + numbers.batching_axes
    kept = [axis for axis in range(len(array)) if axis not in removed]
    window_axis = dict(zip(kept, numbers.window_axes, strict=True))
    return Placement(numbers, starts, array, windows, batch_axes, window_axis)


def index_of(shape: Shape, dtype: DType, start: Node | None, counted: Sequence[int]) -> Node:
    """`start` (None: zero) plus the positions along the axes `counted`."""
    total = start
    for axis in counted:
        position = iota(shape, dtype, axis)
        total = position if total is None else total + position
    return full(0, shape, dtype) if total is None else total


@dataclass(frozen=True, slots=True)
class Run:
    """`size` indices `first`, `first + step`, ..., which are those from position `begin` on."""

    begin: int
    size: int
    first: int
    step: int

    @property
    def least(self) -> int:
        """The smallest of them."""
        return min(self.first, self.first + self.step * (self.size - 1))

    def one_by_one(self) -> list[Run]:
        return [Run(self.begin + k, 1, self.first + k * self.step, 1) for k in range(self.size)]

    def index(self, shape: Shape, dtype: DType, along: int) -> Node:
        """An array of `shape` of these indices, counted along the axis `along`."""
        first, position = full(self.first, shape, dtype), iota(shape, dtype, along)
        return first + (position if self.step == 1 else position * self.step)


def runs_of(starts: Node) -> list[Run] | None:
    """The few runs that the starts of windows consist of, where they differ along one axis only and
    depend on no argument: the two of neighbours on a ring, (iota + 1) % n. Else None."""
    count = starts.type.size
    if count < 2 or count != max(starts.shape) or not is_known(starts, MOST_STARTS, MOST_NODES):
        return None
    (values,) = run_graph(Graph((), (starts,)), ())
    values = values.reshape(-1).astype(np.int64)
    runs: list[Run] = []
    steps, begin = np.diff(values), 0
    while begin < count:
        step = int(steps[begin]) if begin < count - 1 else 0
        other = np.flatnonzero(steps[begin:] != step)
        size = int(other[0]) + 1 if len(other) else count - begin
        if size == 2 and begin + size < count:
            size = 1  # its second one may be the first of the next
        runs.append(Run(begin, size, int(values[begin]), step))
        begin += size
        if len(runs) > FEW_RUNS:
            return None
    return runs if len(runs) == 1 or count >= LONG_RUNS * len(runs) else None


def gather_slices(operand: Node, starts: Node, numbers: WindowDimensions, shape: Shape) -> Node:
    """Windows of `operand` at `starts`, clamped to lie inside: one Gather, or one for each of a few
    runs of starts that are known now."""
    if not operand.shape:
        return broadcast(operand, shape)
    if 0 in shape:
        return full(0, shape, operand.dtype)
    place = placement_of(numbers, starts, operand.shape, shape)
    indices: list[Node] = []
    in_runs: list[tuple[int, int, list[Run]]] = []  # axes of the operand and of the windows
    for axis, extent in enumerate(operand.shape):
        limit = extent - place.size(axis)
        start = place.start(axis) if limit else None
        clamped = None if start is None else clamp_index(start, limit, place.dtype)
        indices.append(place.index(axis, clamped))
        runs = None if clamped is None else runs_of(clamped)
        if clamped is not None and runs is not None:
            batch_axis = max(range(len(clamped.shape)), key=clamped.shape.__getitem__)
            in_runs.append((axis, place.batch_axes[batch_axis], runs))
    if len(in_runs) != 1:
        return gather(operand, indices)
    axis, along, runs = in_runs[0]
    pieces: list[Node] = []
    for run in runs:
        piece = tuple(run.size if k == along else n for k, n in enumerate(shape))
        own = [part(index, along, run.begin, run.begin + run.size) for index in indices]
        counted = [place.window_axis[axis]] if place.size(axis) > 1 else []
        own[axis] = index_of(piece, place.dtype, run.index(piece, place.dtype, along), counted)
        pieces.append(gather(operand, own))
    return join(pieces, along)


def index_select(operand: Node, starts: Node, shape: Shape, axis: int, batch: int) -> Node:
    """What lies at the starts along an axis, whose place theirs take; the first `batch` axes of
    both run together.

    Raises UnsupportedError when the axis is one of those.
    """
    if not 0 <= batch <= axis:
        raise UnsupportedError(f"batch_dims = {batch} and dim = {axis}: 0 <= batch_dims <= dim")
    rank = len(starts.shape)
    batching, places = tuple(range(batch)), range(axis, axis + rank - batch)
    windows = tuple(k for k in range(batch, len(shape)) if k not in places)
    numbers = WindowDimensions(windows, (axis,), batching, batching, (axis,), rank)
    return gather_slices(operand, starts, numbers, shape)


def slice_at(operand: Node, starts: Sequence[Node], sizes: Sequence[int]) -> Node:
    """The block of `sizes` at the clamped scalar `starts`; a plain Slice when they are known."""
    shape = tuple(sizes)
    if shape == operand.shape:
        return operand
    limits = [extent - size for extent, size in zip(operand.shape, sizes, strict=True)]
    known = [
        0 if limit == 0 else known_scalar(start)
        for start, limit in zip(starts, limits, strict=True)
    ]
    if all(start is not None for start in known):
        first = [min(max(int(k), 0), limit) for k, limit in zip(known, limits, strict=True)]  # type: ignore[arg-type]
        return slice_(operand, first, [a + size for a, size in zip(first, sizes, strict=True)])
    dtype = index_dtype(operand.shape)
    indices: list[Node] = []
    for axis, (start, limit) in enumerate(zip(starts, limits, strict=True)):
        first = broadcast(clamp_index(start, limit, dtype), shape) if limit else None
        indices.append(index_of(shape, dtype, first, [axis] if sizes[axis] > 1 else []))
    return gather(operand, indices)


def store_at(operand: Node, update: Node, starts: Sequence[Node]) -> Node:
    """`operand` with the block `update` stored at the clamped scalar `starts`."""
    if update.shape == operand.shape:
        return update
    if 0 in update.shape:
        return operand
    dtype = index_dtype(operand.shape)
    clamped = [
        clamp_index(start, extent - size, dtype) if extent > size else scalar(0, dtype)
        for start, extent, size in zip(starts, operand.shape, update.shape, strict=True)
    ]
    return update_slice(operand, update, clamped)


RULES: dict[str, Rule] = {
    "stablehlo.gather": on_values(gather_slices, "dimension_numbers", SHAPE),
    "stablehlo.torch_index_select": on_values(index_select, SHAPE, "dim", "batch_dims"),
    "stablehlo.dynamic_slice": on_values(
        lambda operand, *rest: slice_at(operand, rest[:-1], rest[-1]), "slice_sizes"
    ),
    "stablehlo.dynamic_update_slice": on_values(
        lambda operand, update, *starts: store_at(operand, update, starts)
    ),
}
