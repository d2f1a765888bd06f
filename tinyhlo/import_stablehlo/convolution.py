"""convolution as padded sliding windows, a multiply and a sum.

    y[n, o, s] = sum over i, k of window(pad(x))[n, i, s, k] * w[o, i, k]

Any layout, stride, padding, dilation of either side, window reversal, feature groups and batch
groups. Groups are one more axis that both operands share; axes of extent 1 that carry nothing are
left out, so that a pointwise convolution is a plain matrix product.
"""

from __future__ import annotations

from typing import Any

from tinyhlo.import_stablehlo.contraction import sum_of_products
from tinyhlo.import_stablehlo.records import ConvolutionDimensions, Operation
from tinyhlo.import_stablehlo.walker import Rule, Scope
from tinyhlo.ir.build import flip, pad, permute, reshape, scalar, window
from tinyhlo.ir.graph import Node


def convolution(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    """Name the axes of both operands, multiply where names meet, sum over `i` and the kernel."""
    lhs, rhs = inputs
    given = operation.attributes
    numbers: ConvolutionDimensions = given["dimension_numbers"]
    groups, batch_groups = given["feature_group_count"], given["batch_group_count"]
    rank = len(numbers.input_spatial_dimensions)
    lhs, rhs = standard_layout(lhs, rhs, numbers)
    reversal = given.get("window_reversal") or (False,) * rank
    rhs = flip(rhs, [2 + axis for axis in range(rank) if reversal[axis]])
    lhs = sliding_windows(lhs, rhs.shape[2:], operation)

    spatial = {f"s{axis}": lhs.shape[2 + axis] for axis in range(rank)}
    kernel = {f"k{axis}": extent for axis, extent in enumerate(rhs.shape[2:])}
    extents = {
        "batch_group": batch_groups,
        "n": lhs.shape[0] // batch_groups,
        "group": groups,
        "o": rhs.shape[0] // (groups * batch_groups),
        **spatial,
        "i": rhs.shape[1],
        **kernel,
    }
    dropped = {name for name in ("batch_group", "group", "i", *kernel) if extents[name] == 1}
    summed = ("i", *kernel)
    kept = [name for name in output_axes(numbers, list(spatial)) if name not in dropped]
    axes = [*kept, *(name for name in summed if name not in dropped)]
    lhs_axes = [n for n in ("batch_group", "n", "group", "i", *spatial, *kernel) if n in axes]
    rhs_axes = [n for n in ("group", "batch_group", "o", "i", *kernel) if n in axes]
    total = sum_of_products(
        reshape(lhs, tuple(extents[name] for name in lhs_axes)),
        [axes.index(name) for name in lhs_axes],
        reshape(rhs, tuple(extents[name] for name in rhs_axes)),
        [axes.index(name) for name in rhs_axes],
        tuple(extents[name] for name in axes),
        len(kept),
        operation.type.dtype,
    )
    return reshape(total, operation.type.shape)


def output_axes(numbers: ConvolutionDimensions, spatial: list[str]) -> list[str]:
    """Names of the result's axes in the order of the op's own output layout: the sum is made in
    that order, so that neither it nor what is computed from it has to be turned around."""
    names = {numbers.output_batch_dimension: ["n"]}
    names[numbers.output_feature_dimension] = ["batch_group", "group", "o"]
    for place, name in zip(numbers.output_spatial_dimensions, spatial, strict=True):
        names[place] = [name]
    return [name for place in sorted(names) for name in names[place]]


def standard_layout(lhs: Node, rhs: Node, numbers: ConvolutionDimensions) -> tuple[Node, Node]:
    """Input as [batch, channels, spatial...], kernel as [features, channels, spatial...]."""
    batch, channels = numbers.input_batch_dimension, numbers.input_feature_dimension
    features = numbers.kernel_output_feature_dimension
    inputs = numbers.kernel_input_feature_dimension
    return (
        permute(lhs, (batch, channels, *numbers.input_spatial_dimensions)),
        permute(rhs, (features, inputs, *numbers.kernel_spatial_dimensions)),
    )


def sliding_windows(lhs: Node, kernel: tuple[int, ...], operation: Operation) -> Node:
    """[batch, channels, places..., 1, 1, kernel...] of the dilated and padded input."""
    ones = (1,) * len(kernel)
    given = operation.attributes
    base = given.get("lhs_dilation") or ones
    stride = given.get("window_strides") or ones
    dilation = given.get("rhs_dilation") or ones
    padding = given["padding"].array.tolist() if "padding" in given else [[0, 0]] * len(kernel)
    low, high = [low for low, _ in padding], [high for _, high in padding]
    gaps = [step - 1 for step in base]
    padded = pad(lhs, scalar(0, lhs.dtype), (0, 0, *low), (0, 0, *high), (0, 0, *gaps))
    if not kernel:
        return padded
    return window(padded, (1, 1, *kernel), (1, 1, *stride), (1, 1, *dilation))


RULES: dict[str, Rule] = {"stablehlo.convolution": convolution}
