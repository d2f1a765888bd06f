"""Which axes of an op's operands and results go together, so that it can be computed by pieces.

    dot_general(x, w)    x: (row, inner), w: (inner, column)   ->   (row, column), summed over inner
    sort(x, axis 0)      x: (None, 1)                          ->   (None, 1)

An axis with a name may be divided: each part of the results along it needs the same part of the
operands, and no more. One without (None) may not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tinyhlo.import_stablehlo.families import conversions, elementwise, linalg, special_functions
from tinyhlo.import_stablehlo.families.reductions import is_identity, monoids_of
from tinyhlo.import_stablehlo.families.sliding import windows_of
from tinyhlo.import_stablehlo.lifted import complex_functions
from tinyhlo.import_stablehlo.records import (
    ConvolutionDimensions,
    DotDimensions,
    Operation,
    WindowDimensions,
)
from tinyhlo.import_stablehlo.walker import Scope
from tinyhlo.ir.dtypes import BOOL
from tinyhlo.ir.graph import Node, Shape, TensorType
from tinyhlo.ir.ops import Op
from tinyhlo.records import dataclass
from tinyhlo.runtime.targets import batch_shape

Name = tuple[Any, int]  # what an axis is, and how many of its elements are one of that
Names = tuple[Name | None, ...]  # of the axes of an array; None: not to be divided


@dataclass(frozen=True, slots=True)
class Axes:
    """`operands`, `results`: the names of their axes. `total`: what makes one of the results of all
    places along axes that operands alone have; None: nothing does."""

    operands: Sequence[Names]
    results: Sequence[Names]
    total: Op | None = None


AxesRule = Callable[[Operation, tuple[Any, ...], Scope], Axes | None]


def tensors(types: Sequence[Any]) -> list[TensorType]:
    """The types, if all are of tensors."""
    return list(types) if all(isinstance(type_, TensorType) for type_ in types) else []


def plain(count: int) -> Names:
    return tuple((axis, 1) for axis in range(count))


def where_alike(shape: Shape, other: Shape) -> Names:
    """Names of axes that are as long in two arrays."""
    pairs = enumerate(zip(shape, other, strict=True))
    return tuple((axis, 1) if n == m else None for axis, (n, m) in pairs)


def pointwise(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Axes | None:
    shape = operation.type.shape
    given = [type_.shape for type_ in tensors(operation.operand_types)]
    if any(each not in (shape, ()) for each in given):
        return None
    return Axes([plain(len(each)) for each in given], [plain(len(shape))])


def broadcast_in_dim(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Axes:
    (operand,), shape = tensors(operation.operand_types), operation.type.shape
    axes = operation.attributes["broadcast_dimensions"]
    given = tuple(
        (axis, 1) if n == shape[axis] else None for n, axis in zip(operand.shape, axes, strict=True)
    )
    kept = {name[0] for name in given if name}
    made = tuple((axis, 1) if axis in kept else None for axis in range(len(shape)))
    return Axes([given], [made])


def transpose(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Axes:
    order = operation.attributes["permutation"]
    return Axes([plain(len(order))], [tuple((axis, 1) for axis in order)])


def reshape(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Axes:
    """An axis goes with one that begins at the same place and is a multiple of it, or a part."""
    (operand,), shape = tensors(operation.operand_types), operation.type.shape
    before, after = leading(operand.shape), leading(shape)
    given: list[Name | None] = [None] * len(operand.shape)
    made: list[Name | None] = [None] * len(shape)
    for start, axis in before.items():
        other = after.get(start)
        if other is None or not operand.shape[axis] or not shape[other]:
            continue
        n, m = operand.shape[axis], shape[other]
        common = min(n, m)
        if max(n, m) % common == 0:
            given[axis], made[other] = (axis, n // common), (axis, m // common)
    return Axes([tuple(given)], [tuple(made)])


def leading(shape: Shape) -> dict[int, int]:
    """Elements before an axis (the product of the extents before it) -> the axis; no axes of 1."""
    found: dict[int, int] = {}
    for axis, extent in enumerate(shape):
        if extent != 1:
            found[prod(shape[:axis])] = axis
    return found


def dot_general(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Axes:
    numbers: DotDimensions = operation.attributes["dot_dimension_numbers"]
    pairs = (
        (numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions, "batch"),
        (numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions, "inner"),
    )
    sides: list[dict[int, Name]] = [{}, {}]
    for left, right, what in pairs:
        for k, both in enumerate(zip(left, right, strict=True)):
            for side, axis in zip(sides, both, strict=True):
                side[axis] = (what, k), 1
    made: list[Name] = [
        ((what, k), 1) for what, k in (("batch", k) for k in range(len(pairs[0][0])))
    ]
    given: list[Names] = []
    for number, (side, type_) in enumerate(
        zip(sides, tensors(operation.operand_types), strict=True)
    ):
        free = [axis for axis in range(len(type_.shape)) if axis not in side]
        side.update({axis: ((number, axis), 1) for axis in free})
        made += [side[axis] for axis in free]
        given.append(tuple(side[axis] for axis in range(len(type_.shape))))
    return Axes(given, [tuple(made)], Op.OR if operation.type.dtype is BOOL else Op.ADD)


def convolution(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Axes | None:
    given = operation.attributes
    numbers: ConvolutionDimensions = given["dimension_numbers"]
    if given.get("batch_group_count", 1) != 1:
        return None
    lhs = {numbers.input_batch_dimension: ("batch", 1)}
    rhs: dict[int, Name] = {}
    out = {numbers.output_batch_dimension: ("batch", 1)}
    if given.get("feature_group_count", 1) == 1:
        lhs[numbers.input_feature_dimension] = ("inner", 1)
        rhs[numbers.kernel_input_feature_dimension] = ("inner", 1)
        rhs[numbers.kernel_output_feature_dimension] = ("outer", 1)
        out[numbers.output_feature_dimension] = ("outer", 1)
    rank = len(operation.type.shape)
    left, right, made = (tuple(map(side.get, range(rank))) for side in (lhs, rhs, out))
    return Axes([left, right], [made], Op.ADD)


def reduce_op(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Axes:
    """Sums, products and extremes from those of the places; other reductions along axes that are
    whole."""
    count, reduced = len(inputs) // 2, operation.attributes["dimensions"]
    source, *_ = tensors(operation.operand_types)
    kept = tuple((axis, 1) for axis in range(len(source.shape)) if axis not in reduced)
    monoids = monoids_of(scope.graph(operation.regions[0])) or [None]
    total, onto = monoids[0] if count == 1 else None, inputs[count]
    if total is not None and not (isinstance(onto, Node) and is_identity(total, onto)):
        total = None
    return Axes([plain(len(source.shape))] * count + [()] * count, [kept] * count, total)


def windowed(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Axes:
    """reduce_window and select_and_scatter: along axes that no window reaches along."""
    size = operation.attributes["window_dimensions"]
    windows = windows_of(operation.attributes, size)
    ones = zip(
        *(windows.size, windows.stride, windows.base_dilation, windows.window_dilation), strict=True
    )
    padding = zip(windows.low, windows.high, strict=True)
    free = [set(each) == {1} and set(pads) == {0} for each, pads in zip(ones, padding, strict=True)]
    names: Names = tuple((axis, 1) if is_free else None for axis, is_free in enumerate(free))
    given = [names if type_.shape else () for type_ in tensors(operation.operand_types)]
    return Axes(given, [names] * len(operation.types))


def along_others(attribute: str) -> AxesRule:
    """Of ops that work along some axes: all others go together."""

    def rule(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Axes:
        given = operation.attributes.get(attribute, -1)
        rank = len(operation.type.shape)
        along = {axis % rank for axis in (given if isinstance(given, tuple) else (given,))}
        names: Names = tuple(None if axis in along else (axis, 1) for axis in range(rank))
        return Axes([names] * len(inputs), [names] * len(operation.types))

    return rule


def all_but_last(count: int) -> AxesRule:
    """Of ops that work along the last axes."""

    def rule(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Axes:
        rank = len(operation.type.shape)
        names = (*plain(rank - count), *[None] * count)
        return Axes([names] * len(inputs), [names] * len(operation.types))

    return rule


def fft(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Axes | None:
    return all_but_last(len(operation.attributes["fft_length"]))(operation, inputs, scope)


def slice_names(operation: Operation) -> Names:
    """Axes of which all is taken."""
    given, (operand,) = operation.attributes, tensors(operation.operand_types)
    edges = zip(given["start_indices"], given["limit_indices"], given["strides"], strict=True)
    return tuple(
        (axis, 1) if edge == (0, extent, 1) else None
        for axis, (edge, extent) in enumerate(zip(edges, operand.shape, strict=True))
    )


def slice_op(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Axes:
    names = slice_names(operation)
    return Axes([names], [names])


def pad(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Axes:
    given = operation.attributes
    keys = ("edge_padding_low", "edge_padding_high", "interior_padding")
    pads = zip(*(given[key] for key in keys), strict=True)
    names: Names = tuple(None if any(each) else (axis, 1) for axis, each in enumerate(pads))
    return Axes([names, ()], [names])


def dynamic_slice(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Axes:
    operand, *_ = tensors(operation.operand_types)
    names = where_alike(operand.shape, operation.type.shape)
    return Axes([names, *[()] * (len(inputs) - 1)], [names])


def dynamic_update_slice(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Axes:
    operand, update, *_ = tensors(operation.operand_types)
    names = where_alike(operand.shape, update.shape)
    return Axes([names, names, *[()] * (len(inputs) - 2)], [names])


def gather(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Axes:
    """Along the places looked up, and along axes of the array that are taken whole."""
    numbers: WindowDimensions = operation.attributes["dimension_numbers"]
    operand, starts = tensors(operation.operand_types)
    array, places, windows = window_names(
        numbers, operand.shape, starts.shape, operation.type.shape
    )
    return Axes([array, places], [windows])


def scatter(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Axes | None:
    """Along axes of the array that windows take whole; along updates where they are added to zeros,
    as gradients of what is looked up are."""
    if len(inputs) != 3:
        return None
    numbers: WindowDimensions = operation.attributes["scatter_dimension_numbers"]
    operand, starts, updates = tensors(operation.operand_types)
    names = window_names(numbers, operand.shape, starts.shape, updates.shape)
    monoids = monoids_of(scope.graph(operation.regions[0])) or [None]
    total, onto = monoids[0], inputs[0]
    if total is not None and not (isinstance(onto, Node) and is_identity(total, onto)):
        total = None
    return Axes(names, [names[0]], total)


def linear_algebra(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Axes | None:
    """Custom calls that factor or solve matrices, along the axes before those of a matrix."""
    target = operation.attributes["call_target_name"]
    given, made = tensors(operation.operand_types), tensors(operation.types)
    if target not in linalg.TARGETS and not target.startswith("lapack_"):
        return None
    batch = batch_shape(given, made)
    if batch is None:
        return None
    operands, results = (
        [plain(len(batch)) + (None,) * (len(type_.shape) - len(batch)) for type_ in types]
        for types in (given, made)
    )
    return Axes(operands, results)


def window_names(
    numbers: WindowDimensions, array: Shape, places: Shape, windows: Shape
) -> tuple[Names, Names, Names]:
    """The names of the axes of an array, of the places of windows in it, and of the windows."""
    lookups = [axis for axis in range(len(places)) if axis != numbers.vector_axis]
    outer = [axis for axis in range(len(windows)) if axis not in numbers.window_axes]
    at: dict[int, Name] = {axis: (("at", axis), 1) for axis in lookups}
    own: dict[int, Name] = {there: at[axis] for there, axis in zip(outer, lookups, strict=True)}
    batched = zip(numbers.batching_axes, numbers.starts_batching_axes, strict=True)
    taken = {axis: at[there] for axis, there in batched}
    inner = [k for k in range(len(array)) if k not in (*numbers.removed_axes, *taken)]
    for axis, there in zip(inner, numbers.window_axes, strict=True):
        if array[axis] == windows[there]:
            taken[axis] = own[there] = (("in", axis), 1)
    first, second, third = (
        tuple(map(names.get, range(len(shape))))
        for names, shape in ((taken, array), (at, places), (own, windows))
    )
    return first, second, third


def sizes(operation: Operation, types: Sequence[TensorType]) -> dict[str, Any]:
    """Attributes that repeat extents, for a piece of these types."""
    match operation.name:
        case "stablehlo.dynamic_slice":
            return {"slice_sizes": types[0].shape}
        case "stablehlo.slice":
            given = operation.attributes
            kept = zip(slice_names(operation), given["limit_indices"], types[0].shape, strict=True)
            return {"limit_indices": tuple(n if name else limit for name, limit, n in kept)}
        case _:
            return {}


POINTWISE = {
    *elementwise.RULES,
    *conversions.RULES,
    *special_functions.RULES,
    *complex_functions.RULES,
    "stablehlo.complex",
} - {"stablehlo.map"}
RULES: dict[str, AxesRule] = {
    **dict.fromkeys(POINTWISE, pointwise),
    "stablehlo.broadcast_in_dim": broadcast_in_dim,
    "stablehlo.cholesky": all_but_last(2),
    "stablehlo.concatenate": along_others("dimension"),
    "stablehlo.convolution": convolution,
    "stablehlo.custom_call": linear_algebra,
    "stablehlo.dot_general": dot_general,
    "stablehlo.dynamic_slice": dynamic_slice,
    "stablehlo.dynamic_update_slice": dynamic_update_slice,
    "stablehlo.fft": fft,
    "stablehlo.gather": gather,
    "stablehlo.pad": pad,
    "stablehlo.reduce": reduce_op,
    "stablehlo.reduce_window": windowed,
    "stablehlo.reshape": reshape,
    "stablehlo.reverse": along_others("dimensions"),
    "stablehlo.scatter": scatter,
    "stablehlo.select_and_scatter": windowed,
    "stablehlo.slice": slice_op,
    "stablehlo.sort": along_others("dimension"),
    "stablehlo.transpose": transpose,
    "stablehlo.triangular_solve": all_but_last(2),
    "chlo.top_k": all_but_last(1),
}
