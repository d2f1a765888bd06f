"""Constants and ops that only move or repeat elements.

concatenate(a, b)  ->  WHERE(iota < len(a), PAD(a), PAD(b))
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyhlo.import_stablehlo.attributes import Dense
from tinyhlo.import_stablehlo.records import CONSTANTS, Operation
from tinyhlo.import_stablehlo.walker import DTYPE, SHAPE, Rule, Scope, UnsupportedError, on_values
from tinyhlo.ir.build import broadcast, constant, flip, full, iota, pad, permute, reshape, slice_
from tinyhlo.ir.graph import Node, Shape
from tinyhlo.ir.joining import join


def dense_constant(dense: Any, shape: Shape) -> Node:
    return repeated(elements_of(dense), shape)


def elements_of(dense: Any) -> np.ndarray:
    """Of a constant's `value`: all elements, or the one that all are equal to."""
    if not isinstance(dense, Dense):
        raise UnsupportedError("this constant cannot be read: pass the array as an argument")
    return dense.value


def repeated(elements: np.ndarray, shape: Shape) -> Node:
    """Splats stay expanded scalars."""
    value = constant(elements)
    return value if value.shape else broadcast(value, shape)


def new_axes_in_front(x: Node, shape: Shape) -> Node:
    """The deprecated `broadcast`."""
    return broadcast(x, shape, range(len(shape) - len(x.shape), len(shape)))


def concatenate(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    axis = operation.attributes["dimension"]
    pieces = [piece for piece in inputs if piece.shape[axis]]
    if not pieces:
        return full(0, operation.type.shape, operation.type.dtype)
    return join(pieces, axis)


CONSTANT = on_values(dense_constant, "value", SHAPE)
RULES: dict[str, Rule] = {
    **dict.fromkeys(CONSTANTS, CONSTANT),
    "stablehlo.iota": on_values(iota, SHAPE, DTYPE, "iota_dimension"),
    "stablehlo.broadcast_in_dim": on_values(broadcast, SHAPE, "broadcast_dimensions"),
    "stablehlo.broadcast": on_values(new_axes_in_front, SHAPE),
    "stablehlo.reshape": on_values(reshape, SHAPE),
    # what the operand says of the shape stands in the result's type
    "stablehlo.dynamic_iota": on_values(
        lambda _, *rest: iota(*rest), SHAPE, DTYPE, "iota_dimension"
    ),
    "stablehlo.dynamic_broadcast_in_dim": on_values(
        lambda x, _, *rest: broadcast(x, *rest), SHAPE, "broadcast_dimensions"
    ),
    "stablehlo.dynamic_reshape": on_values(lambda x, _, shape: reshape(x, shape), SHAPE),
    "stablehlo.transpose": on_values(permute, "permutation"),
    "stablehlo.reverse": on_values(flip, "dimensions"),
    "stablehlo.slice": on_values(slice_, "start_indices", "limit_indices", "strides"),
    "stablehlo.pad": on_values(pad, "edge_padding_low", "edge_padding_high", "interior_padding"),
    "stablehlo.concatenate": concatenate,
}
