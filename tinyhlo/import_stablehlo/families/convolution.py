"""convolution as padded sliding windows, a multiply and a sum.

    y[n, o, s] = sum over i, k of window(pad(x))[n, i, s, k] * w[o, i, k]

Any layout, stride, padding, dilation of either side, window reversal, feature groups and batch
groups. Groups are one more axis that both operands share; axes of extent 1 that carry nothing are
left out, so that a pointwise convolution is a plain matrix product. Dilated inputs: `phases.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import gcd
from typing import Any

from tinyhlo.import_stablehlo.families.contraction import sum_of_products
from tinyhlo.import_stablehlo.families.phases import Phases, phases_of, taps_of
from tinyhlo.import_stablehlo.families.sliding import Windows, windows_of
from tinyhlo.import_stablehlo.precision import multiplication_of
from tinyhlo.import_stablehlo.records import ConvolutionDimensions, Operation
from tinyhlo.import_stablehlo.walker import Rule, Scope
from tinyhlo.ir.build import flip, full, pad, permute, reshape, scalar, slice_, window
from tinyhlo.ir.graph import Node, Shape
from tinyhlo.ir.joining import join
from tinyhlo.ir.ops import Op
from tinyhlo.numbers import ceil_div


def convolution(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    """One sum of products, or one for each kind of place that sees other taps of the kernel."""
    lhs, rhs = inputs
    multiply = multiplication_of(operation, lhs, rhs, scope.walker.rounded)
    given = operation.attributes
    lhs, rhs = standard_layout(lhs, rhs, given["dimension_numbers"])
    reversal = given.get("window_reversal") or ()
    rhs = flip(rhs, [2 + axis for axis, reversed_ in enumerate(reversal) if reversed_])
    windows = windows_of(given, rhs.shape[2:], "lhs_dilation", "rhs_dilation")
    shape = operation.type.shape
    if 0 in shape or 0 in lhs.shape or 0 in rhs.shape:
        return full(0, shape, operation.type.dtype)
    rhs, windows = taps_that_meet(lhs, rhs, windows)
    if 0 in windows.size:
        return full(0, shape, operation.type.dtype)
    dilations = zip(windows.stride, windows.base_dilation, windows.window_dilation, strict=True)
    common = tuple(gcd(base, between) if stride == 1 else 1 for stride, base, between in dilations)
    if max(common, default=1) > 1:
        return at_common_places(operation, lhs, rhs, windows, common, multiply)
    return convolved(operation, lhs, rhs, windows, shape, multiply)


def taps_that_meet(lhs: Node, rhs: Node, windows: Windows) -> tuple[Node, Windows]:
    """The kernel without taps at its ends that meet padding alone, wherever the window is: of
    eleven that look back from three steps, the last three are left."""
    start, stop, low, high = [0, 0], list(rhs.shape[:2]), list(windows.low), list(windows.high)
    for k, (extent, taps) in enumerate(zip(lhs.shape[2:], windows.size, strict=True)):
        step, between = windows.stride[k], windows.window_dilation[k]
        end = (extent - 1) * windows.base_dilation[k]  # the last place of the input
        last = (end + low[k] + high[k] - (taps - 1) * between) // step * step  # window's beginning
        first = min(max(ceil_div(low[k] - last, between), 0), taps)
        past = max(min((end + low[k]) // between + 1, taps), first)
        low[k] -= first * between
        high[k] -= (taps - past) * between
        start.append(first)
        stop.append(past)
    size = tuple(past - first for first, past in zip(start[2:], stop[2:], strict=True))
    met = replace(windows, size=size, low=tuple(low), high=tuple(high))
    return slice_(rhs, start, stop), met


def at_common_places(
    operation: Operation,
    lhs: Node,
    rhs: Node,
    windows: Windows,
    common: tuple[int, ...],
    multiply: Op,
) -> Node:
    """Where both dilations have a factor in common, taps meet the input at every such place only.
    A convolution with what is left of the dilations gives these; zeros lie between them."""
    numbers: ConvolutionDimensions = operation.attributes["dimension_numbers"]
    shape = operation.type.shape
    low, high, between, inner = [0] * len(shape), [0] * len(shape), [0] * len(shape), list(shape)
    behind = list(windows.high)
    base, dilation = (
        tuple(n // g for n, g in zip(given, common, strict=True))
        for given in (windows.base_dilation, windows.window_dilation)
    )
    before = tuple(n // g for n, g in zip(windows.low, common, strict=True))
    for k, (axis, g) in enumerate(zip(numbers.output_spatial_dimensions, common, strict=True)):
        if g == 1:
            continue
        low[axis], between[axis] = windows.low[k] % g, g - 1
        inner[axis] = count = ceil_div(shape[axis] - low[axis], g)
        if count < 1:
            return full(0, shape, operation.type.dtype)
        high[axis] = shape[axis] - low[axis] - (count - 1) * g - 1
        spread, reach = (
            (n - 1) * step
            for n, step in ((lhs.shape[2 + k], base[k]), (windows.size[k], dilation[k]))
        )
        behind[k] = count - 1 + reach - spread - before[k]
    left = replace(
        windows, base_dilation=base, window_dilation=dilation, low=before, high=tuple(behind)
    )
    places = convolved(operation, lhs, rhs, left, tuple(inner), multiply)
    return pad(places, scalar(0, places.dtype), low, high, between)


def convolved(
    operation: Operation, lhs: Node, rhs: Node, windows: Windows, shape: Shape, multiply: Op
) -> Node:
    base, ones = windows.base_dilation, (1,) * len(windows.size)
    if windows.stride == windows.window_dilation == ones and base != ones:
        return by_phases(operation, lhs, rhs, windows, shape, multiply)
    gaps = [step - 1 for step in base]
    low, high, between = ((0, 0, *each) for each in (windows.low, windows.high, gaps))
    lhs = pad(lhs, scalar(0, lhs.dtype), low, high, between)
    if ones:
        size, stride, dilation = windows.size, windows.stride, windows.window_dilation
        lhs = window(lhs, (1, 1, *size), (1, 1, *stride), (1, 1, *dilation))
    return reshape(products(operation, lhs, reshape(rhs, rhs.shape + ones), multiply), shape)


def by_phases(
    operation: Operation, lhs: Node, rhs: Node, windows: Windows, shape: Shape, multiply: Op
) -> Node:
    """Each group of phases, then all of them side by side, along one axis after the other."""
    numbers: ConvolutionDimensions = operation.attributes["dimension_numbers"]
    lows, bases = windows.low, windows.base_dilation
    kernel, ones = rhs.shape[2:], (1,) * len(bases)
    spatial = numbers.output_spatial_dimensions
    counts = [ceil_div(shape[axis], base) for axis, base in zip(spatial, bases, strict=True)]
    kinds = [phases_of(*axis) for axis in zip(kernel, bases, lows, strict=True)]

    def joined(chosen: tuple[Phases, ...]) -> Node:
        if len(chosen) < len(kinds):
            place = spatial[len(chosen)]
            pieces = [joined((*chosen, phases)) for phases in kinds[len(chosen)]]
            return join(pieces, place + sum(axis < place for axis in spatial) + 1)
        low = [-p.offset for p in chosen]
        sizes = zip(counts, chosen, lhs.shape[2:], low, strict=True)
        high = [count + p.taps - 1 - n - before for count, p, n, before in sizes]
        inside = pad(lhs, scalar(0, lhs.dtype), (0, 0, *low), (0, 0, *high))
        seen = window(inside, (1, 1, *(p.taps for p in chosen)), (1, 1, *ones), (1, 1, *ones))
        return products(operation, seen, taps_of(rhs, chosen, bases, lows), multiply)

    whole = list(shape)
    for axis, count, base in zip(spatial, counts, bases, strict=True):
        whole[axis] = count * base
    result = reshape(joined(()), tuple(whole))
    return slice_(result, (0,) * len(whole), shape)


def products(operation: Operation, lhs: Node, rhs: Node, multiply: Op) -> Node:
    """Windows [batch, channels, places..., 1, 1, taps...] times [features, channels, taps...,
    phases...], in the output's layout; each place is followed by its phases. Names the axes of
    both, multiplies where names meet, and sums over channels and taps."""
    given = operation.attributes
    numbers: ConvolutionDimensions = given["dimension_numbers"]
    groups, batch_groups = given["feature_group_count"], given["batch_group_count"]
    rank = len(numbers.input_spatial_dimensions)
    spatial, taps, phases = ([f"{kind}{axis}" for axis in range(rank)] for kind in "skp")
    extents = {
        "batch_group": batch_groups,
        "n": lhs.shape[0] // batch_groups,
        "group": groups,
        "o": rhs.shape[0] // (groups * batch_groups),
        "i": rhs.shape[1],
        **dict(zip(spatial, lhs.shape[2 : 2 + rank], strict=True)),
        **dict(zip((*taps, *phases), rhs.shape[2:], strict=True)),
    }
    every = output_axes(numbers, spatial, phases)
    merged = result_shape(every, extents)
    if 0 in rhs.shape[2 : 2 + rank]:
        return full(0, merged, operation.type.dtype)
    idle = ("batch_group", "group", "i", *taps, *phases)
    dropped = {name for name in idle if extents[name] == 1}
    kept = [name for name in every if name not in dropped]
    axes = [*kept, *(name for name in ("i", *taps) if name not in dropped)]
    lhs_axes = [n for n in ("batch_group", "n", "group", "i", *spatial, *taps) if n in axes]
    rhs_axes = [n for n in ("group", "batch_group", "o", "i", *taps, *phases) if n in axes]
    total = sum_of_products(
        reshape(lhs, tuple(extents[name] for name in lhs_axes)),
        [axes.index(name) for name in lhs_axes],
        reshape(rhs, tuple(extents[name] for name in rhs_axes)),
        [axes.index(name) for name in rhs_axes],
        tuple(extents[name] for name in axes),
        len(kept),
        operation.type.dtype,
        multiply,
    )
    return reshape(total, merged)


def output_axes(
    numbers: ConvolutionDimensions, spatial: Sequence[str], phases: Sequence[str]
) -> list[str]:
    """Names of the result's axes in the order of the op's own output layout: the sum is made in
    that order, so that neither it nor what is computed from it has to be turned around."""
    names = {numbers.output_batch_dimension: ["n"]}
    names[numbers.output_feature_dimension] = ["batch_group", "group", "o"]
    for place, pair in zip(
        numbers.output_spatial_dimensions, zip(spatial, phases, strict=True), strict=True
    ):
        names[place] = list(pair)
    return [name for place in sorted(names) for name in names[place]]


def result_shape(axes: Sequence[str], extents: Mapping[str, int]) -> tuple[int, ...]:
    """Extents of the result's axes, all features as one."""
    shape: list[int] = []
    for name in axes:
        if name in ("group", "o"):
            shape[-1] *= extents[name]
        else:
            shape.append(extents[name])
    return tuple(shape)


def standard_layout(lhs: Node, rhs: Node, numbers: ConvolutionDimensions) -> tuple[Node, Node]:
    """Input as [batch, channels, spatial...], kernel as [features, channels, spatial...]."""
    batch, channels = numbers.input_batch_dimension, numbers.input_feature_dimension
    features = numbers.kernel_output_feature_dimension
    inputs = numbers.kernel_input_feature_dimension
    return (
        permute(lhs, (batch, channels, *numbers.input_spatial_dimensions)),
        permute(rhs, (features, inputs, *numbers.kernel_spatial_dimensions)),
    )


RULES: dict[str, Rule] = {"stablehlo.convolution": convolution}
