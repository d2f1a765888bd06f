"""Constants and ops that only move or repeat elements.

concatenate(a, b)  ->  WHERE(iota < len(a), PAD(a), PAD(b))
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyhlo.import_stablehlo.attributes import Dense
from tinyhlo.import_stablehlo.operands import index_dtype, known_array
from tinyhlo.import_stablehlo.records import Operation
from tinyhlo.import_stablehlo.walker import Rule, Scope, UnsupportedError, on_values
from tinyhlo.ir.build import (
    broadcast,
    constant,
    flip,
    full,
    iota,
    pad,
    permute,
    reshape,
    scalar,
    slice_,
    update_slice,
    where,
)
from tinyhlo.ir.graph import Node

SELECTED_PIECES = 16  # a select per piece and element; beyond it pieces are stored one by one


def constant_op(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    """Splats stay expanded scalars."""
    dense = operation.attributes["value"]
    if not isinstance(dense, Dense):
        raise UnsupportedError("constants of this element type are not compiled yet")
    value = constant(dense.value)
    return value if value.shape else broadcast(value, dense.shape)


def broadcast_op(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    """The deprecated `broadcast`: new axes in front."""
    (x,) = inputs
    rank = len(operation.type.shape)
    return broadcast(x, operation.type.shape, range(rank - len(x.shape), rank))


def concatenate(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    axis = operation.attributes["dimension"]
    pieces = [piece for piece in inputs if piece.shape[axis]]
    if not pieces:
        return full(0, operation.type.shape, operation.type.dtype)
    return join(pieces, axis)


def join(pieces: list[Node], axis: int) -> Node:
    """Non-empty pieces one after another along `axis`."""
    if len(pieces) == 1:
        return pieces[0]
    ends = [int(end) for end in np.cumsum([piece.shape[axis] for piece in pieces])]
    shape = tuple(ends[-1] if k == axis else n for k, n in enumerate(pieces[0].shape))
    if len(pieces) > SELECTED_PIECES:
        return join_by_stores(pieces, axis, ends, shape)
    fill = scalar(0, pieces[0].dtype)
    position = iota(shape, index_dtype(shape), axis)
    result: Node | None = None
    for piece, end in zip(reversed(pieces), reversed(ends), strict=True):
        low, high = [0] * len(shape), [0] * len(shape)
        low[axis], high[axis] = end - piece.shape[axis], shape[axis] - end
        padded = pad(piece, fill, low, high)
        result = padded if result is None else where(position < end, padded, result)
    assert result is not None
    return result


def join_by_stores(pieces: list[Node], axis: int, ends: list[int], shape: tuple[int, ...]) -> Node:
    """Each piece stored into place, so that many pieces cost no more than their elements."""
    dtype = index_dtype(shape)
    result = full(0, shape, pieces[0].dtype)
    for piece, end in zip(pieces, ends, strict=True):
        begin = [end - piece.shape[axis] if k == axis else 0 for k in range(len(shape))]
        result = update_slice(result, piece, [scalar(start, dtype) for start in begin])
    return result


def known(value: Node, what: str) -> tuple[int, ...]:
    """The elements of a shape operand. Raises UnsupportedError when it is not a constant."""
    array = known_array(value)
    if array is None:
        raise UnsupportedError(f"{what} must be known when compiling: use static shapes")
    return tuple(int(element) for element in array)


def dynamic_pad(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    x, fill, *amounts = inputs
    low, high, interior = (known(amount, "padding") for amount in amounts)
    return pad(x, fill, low, high, interior)


def get_dimension_size(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    extent = inputs[0].shape[operation.attributes["dimension"]]
    return scalar(extent, operation.type.dtype)


def iota_op(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    return iota(operation.type.shape, operation.type.dtype, operation.attributes["iota_dimension"])


def reshape_op(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    """A shape operand says nothing new: the result's shape is static here."""
    return reshape(inputs[0], operation.type.shape)


def broadcast_in_dim(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    axes = operation.attributes["broadcast_dimensions"]
    return broadcast(inputs[0], operation.type.shape, axes)


RULES: dict[str, Rule] = {
    "stablehlo.constant": constant_op,
    "chlo.constant": constant_op,
    "stablehlo.iota": iota_op,
    "stablehlo.dynamic_iota": iota_op,
    "stablehlo.broadcast_in_dim": broadcast_in_dim,
    "stablehlo.dynamic_broadcast_in_dim": broadcast_in_dim,
    "stablehlo.broadcast": broadcast_op,
    "stablehlo.reshape": reshape_op,
    "stablehlo.dynamic_reshape": reshape_op,
    "stablehlo.transpose": on_values(permute, "permutation"),
    "stablehlo.reverse": on_values(flip, "dimensions"),
    "stablehlo.slice": on_values(slice_, "start_indices", "limit_indices", "strides"),
    "stablehlo.pad": on_values(pad, "edge_padding_low", "edge_padding_high", "interior_padding"),
    "stablehlo.dynamic_pad": dynamic_pad,
    "stablehlo.concatenate": concatenate,
    "stablehlo.get_dimension_size": get_dimension_size,
}
