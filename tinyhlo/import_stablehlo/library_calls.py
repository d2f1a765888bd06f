"""LibraryCalls over buffers: types that are stored as others, and axes in another order.

    f32[3,5] in column-major order   ->  a buffer f32[5,3], permuted
    complex<f32>[3]                  ->  a buffer f32[3,2]

The function sees the types as users write them; what the buffers are stands in the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tinyhlo.import_stablehlo.records import Operation, ValueType
from tinyhlo.ir.build import library_call, permute
from tinyhlo.ir.graph import Node, TensorType
from tinyhlo.runtime.library import OPERANDS, RESULTS

Order = tuple[int, ...]  # axes of a value as they lie in memory, outermost first


def call_buffers(
    target: str,
    buffers: Sequence[Node],
    operands: tuple[TensorType, ...],
    result_buffers: Sequence[TensorType],
    results: tuple[TensorType, ...],
    attributes: Mapping[str, Any],
    effect: bool = False,
) -> tuple[Node, ...]:
    """The outputs of a LibraryCall whose function sees `operands` and `results` where the buffers
    may have other types: complex numbers as pairs, axes in another order."""
    own = dict(attributes)
    if operands != tuple(buffer.type for buffer in buffers):
        own[OPERANDS] = operands
    if results != tuple(result_buffers):
        own[RESULTS] = results
    return library_call(target, buffers, result_buffers, own, effect)


def orders(operation: Operation, key: str, types: Sequence[ValueType]) -> list[Order]:
    """How the tensors among `types` lie in memory; layouts list the innermost axis first."""
    layouts = operation.attributes.get(key)
    found: list[Order] = []
    for position, type_ in enumerate(types):
        if isinstance(type_, TensorType):
            axes = range(len(type_.shape) - 1, -1, -1)
            layout = axes if layouts is None else layouts[position].array.reshape(-1).tolist()
            found.append(tuple(reversed(layout)))
    return found


def in_order(buffer: Node, order: Order) -> Node:
    """A buffer with its axes as in memory; the axis of pairs stays the last."""
    return permute(buffer, (*order, *range(len(order), len(buffer.shape))))


def in_order_type(type_: TensorType, order: Order) -> TensorType:
    axes = (*order, *range(len(order), len(type_.shape)))
    return TensorType(tuple(type_.shape[axis] for axis in axes), type_.dtype)


def out_of_order(buffer: Node, order: Order) -> Node:
    """The inverse of `in_order`."""
    axes = (*order, *range(len(order), len(buffer.shape)))
    return permute(buffer, sorted(range(len(axes)), key=axes.__getitem__))
