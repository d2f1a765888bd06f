"""reduce_window: pad, slide, reduce. Cumulative windows become scans; what large ones hold is
combined along one axis after the other.

reduce_window add, window [3], padding 1  ->  Reduce(ADD, Window(Pad(x)), window axis)
window [n], padding (n-1, 0)              ->  Scan(ADD)
reduce_window max, window [7, 7]          ->  Reduce(MAX, Window(Reduce(MAX, Window(x))))

An initial value counts once in each window, as in XLA (but for its long running sums); by the text
of StableHLO it would once more for each place of padding, which differs where it changes what it is
combined with (-inf and -inf give a NaN in a sum of complex logarithms).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyhlo.import_stablehlo.families.covering import gaps_of, reached
from tinyhlo.import_stablehlo.families.reductions import (
    ROUNDING,
    is_idle,
    monoids_of,
    reduce_arrays,
    widen,
    with_initial,
)
from tinyhlo.import_stablehlo.families.sliding import Windows, windows_of
from tinyhlo.import_stablehlo.lifted.lifting import as_params
from tinyhlo.import_stablehlo.operands import is_half, known_scalar
from tinyhlo.import_stablehlo.records import Operation
from tinyhlo.import_stablehlo.walker import Rule, Scope, Value
from tinyhlo.ir.build import (
    broadcast,
    cast,
    full,
    iota,
    map_region,
    param,
    reduce,
    scalar,
    scan,
    where,
)
from tinyhlo.ir.dtypes import BOOL, index_dtype
from tinyhlo.ir.graph import Graph, Node, TensorType
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.joining import padded
from tinyhlo.ir.meaning import identity
from tinyhlo.ir.ops import Op
from tinyhlo.ir.scalars import is_scalar
from tinyhlo.records import dataclass


def reduce_window(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Value]:
    count = len(inputs) // 2
    combiner = scope.graph(operation.regions[0])
    values = as_params(operation.regions[0].types, operation.operand_types, inputs)
    sources, initials = values[:count], values[count:]
    windows = windows_of(operation.attributes, operation.attributes["window_dimensions"])
    monoids = monoids_of(combiner)
    cumulative = cumulative_axis(windows, sources[0].shape)
    if cumulative is not None:
        scanned = scan_arrays(sources, initials, cumulative, combiner)
        if scanned is not None:
            return scanned
    if monoids is not None and count == 1:
        return [of_one_monoid(monoids[0], sources[0], initials[0], windows)]
    if windows.are_padded and monoids is None and not stays(initials, combiner):
        found = reduce_inside(sources, initials, windows, combiner)
        if found is not None:
            return found
    ops = monoids or [None] * count
    fills = (fill_of(*pair) for pair in zip(ops, initials, strict=True))
    slid = [windows.slide(x, fill) for x, fill in zip(sources, fills, strict=True)]
    return reduce_arrays([node for node, _ in slid], initials, slid[0][1], combiner)


def fill_of(op: Op | None, initial: Node) -> Node:
    """What padding holds that leaves a window as it is: the identity of a monoid, or a value that
    stays what it is when combined with itself."""
    if op is None or is_idle(op, initial):
        return initial
    return scalar(identity(op, initial.dtype), initial.dtype)


def reduce_inside(
    sources: Sequence[Node], initials: Sequence[Node], windows: Windows, combiner: Graph
) -> Sequence[Node] | None:
    """Windows of which only elements inside of the arrays are combined; None where the combiner is
    no function of scalars."""
    count = len(sources)
    types = [*(x.dtype for x in sources), BOOL] * 2
    params = [param(k, (), dtype) for k, dtype in enumerate(types)]
    (*one, has_one), (*other, has_other) = params[: count + 1], params[count + 1 :]
    both = map_region(combiner, (*one, *other), ())
    if both is None:
        return None
    chosen = (
        where(has_one & has_other, new, where(has_one, x, y))
        for new, x, y in zip(both, one, other, strict=True)
    )
    region = Graph(tuple(node.type for node in params), (*chosen, has_one | has_other))
    inside = full(True, sources[0].shape, BOOL)
    fills = [*initials, scalar(False, BOOL)]
    pairs = zip((*sources, inside), fills, strict=True)
    slid = [windows.slide(x, fill) for x, fill in pairs]
    starts = (*initials, scalar(True, BOOL))
    return reduce_arrays([node for node, _ in slid], starts, slid[0][1], region)[:count]


SCRATCH = 8  # taps that an element between two axes takes as long as, written and read again
FAR_SCRATCH = 20  # the same of halves, which are converted, and of FAR bytes and more
FAR = 1 << 23


def of_one_monoid(op: Op, source: Node, initial: Node, windows: Windows) -> Node:
    """All that is in each window, combined."""
    fill = cast(fill_of(op, initial), source.dtype)
    if op is Op.ADD:
        source, windows = gaps_of(source, windows)
    result = axis_by_axis(op, source, fill, windows)
    if result is None:
        held, axes = held_by(op, source, fill, windows)
        result = reduce(op, widen(op, held), axes)
    return cast(with_initial(op, result, initial), initial.dtype)


def axis_by_axis(op: Op, source: Node, fill: Node, windows: Windows) -> Node | None:
    """What windows hold combined along one axis, then along the next: of 7x7 elements 14 are read
    for 49. None where that does not pay. Steps leave fewer elements for the axes behind, so the
    longest come first."""
    if op in ROUNDING:
        source, fill = widen(op, source), widen(op, fill)
    taps, result = 0, source
    between: list[TensorType] = []
    for axis in sorted(range(len(source.shape)), key=lambda axis: (-windows.stride[axis], -axis)):
        result, axes = held_by(op, result, fill, windows.along(axis))
        if axes:
            taps += result.type.size
            result = cast(reduce(op, widen(op, result), axes), source.dtype)
            between.append(result.type)
    far = is_half(source.dtype) or any(type_.nbytes >= FAR for type_ in between[:-1])
    scratch = sum(type_.size for type_ in between[:-1]) * (FAR_SCRATCH if far else SCRATCH)
    direct = held_by(op, source, fill, windows)[0].type.size
    return result if between[1:] and taps + scratch < direct else None


def held_by(op: Op, source: Node, fill: Node, windows: Windows) -> tuple[Node, tuple[int, ...]]:
    """What windows hold, as `Windows.slide`; of a sum it is enough to have what is no gap."""
    found = reached(source, windows) if op is Op.ADD else None
    return found or windows.slide(source, fill)


SHORT_SCAN = 16  # elements; up to here folding each window anew is cheaper, and in order


@dataclass(frozen=True, slots=True)
class Cumulative:
    """A running reduction along `axis`, from its end when `reverse`."""

    axis: int
    reverse: bool


def cumulative_axis(windows: Windows, shape: tuple[int, ...]) -> Cumulative | None:
    """The axis along which every result is the reduction of all elements up to its own."""
    rank = len(shape)
    ones = (1,) * rank
    if windows.stride != ones or windows.base_dilation != ones or windows.window_dilation != ones:
        return None
    long = [axis for axis in range(rank) if windows.size[axis] > 1]
    if len(long) != 1:
        return None
    (axis,) = long
    edge = tuple(shape[axis] - 1 if k == axis else 0 for k in range(rank))
    zeros = (0,) * rank
    if windows.size[axis] != shape[axis] or {windows.low, windows.high} != {edge, zeros}:
        return None
    return Cumulative(axis, reverse=windows.high == edge)


def scan_arrays(
    sources: Sequence[Node], initials: Sequence[Node], along: Cumulative, combiner: Graph
) -> Sequence[Node] | None:
    """A cumulative reduction; None when plain windows are to be reduced: because they are short,
    or the combiner is not a function of scalars only."""
    monoids = monoids_of(combiner)
    if monoids is not None:
        scans = [
            scan(op, widen(op, source), along.axis, along.reverse)
            for op, source in zip(monoids, sources, strict=True)
        ]
        return [
            cast(with_initial(op, wide, initial), source.dtype)
            for op, wide, initial, source in zip(monoids, scans, initials, sources, strict=True)
        ]
    shape = sources[0].shape
    if shape[along.axis] <= SHORT_SCAN:
        return None
    starts = [broadcast(initial, shape) for initial in initials]
    results = shifted_scan(sources, along, combiner)
    return None if results is None else map_region(combiner, (*starts, *results), shape)


def stays(initials: Sequence[Node], combiner: Graph) -> bool:
    """Whether initial values are known to be no other when combined with themselves."""
    known = [known_scalar(initial) for initial in initials]
    if not is_scalar(combiner) or any(value is None for value in known):
        return False
    arrays = [np.asarray(value) for value in known]
    pairs = zip(run_graph(combiner, [*arrays, *arrays]), arrays, strict=True)
    return all(twice.tobytes() == once.tobytes() for twice, once in pairs)


def shifted_scan(
    sources: Sequence[Node], along: Cumulative, combiner: Graph
) -> Sequence[Node] | None:
    """Any associative combiner in log2(n) steps: combine each element with the one 1, 2, 4, ...
    before it (Hillis and Steele, "Data parallel algorithms", 1986)."""
    shape = sources[0].shape
    extent = shape[along.axis]
    position = iota(shape, index_dtype(shape), along.axis)
    values = tuple(sources)
    distance = 1
    while distance < extent:
        earlier = [shifted(node, along, distance) for node in values]
        combined = map_region(combiner, (*earlier, *values), shape)
        if combined is None:
            return None
        has_earlier = position < extent - distance if along.reverse else distance <= position
        values = tuple(
            where(has_earlier, new, old) for new, old in zip(combined, values, strict=True)
        )
        distance *= 2
    return values


def shifted(node: Node, along: Cumulative, distance: int) -> Node:
    """The element `distance` before (after, in reverse) each position; zero where there is none."""
    before = -distance if along.reverse else distance
    return padded(node, along.axis, before, -before)


RULES: dict[str, Rule] = {"stablehlo.reduce_window": reduce_window}
