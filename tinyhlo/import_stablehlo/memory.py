"""Values as they lie in memory: what arguments, results and library calls pass.

    Complex(re, im) of shape (4,)    ->  f32[4,2], pairs
    a token                          ->  token[0], nothing
    f32[3,5] in column-major order   ->  a buffer f32[5,3], permuted

`visible` is the type that users see, `ir/elements.stored` the type of its buffer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tinyhlo.import_stablehlo.lifted.complex_numbers import Complex
from tinyhlo.import_stablehlo.lifted.planes import as_pairs, from_pairs
from tinyhlo.import_stablehlo.records import Operation, TokenType, ValueType
from tinyhlo.import_stablehlo.walker import Value
from tinyhlo.ir.build import full, inverse, library_call, permute
from tinyhlo.ir.dtypes import BOOL, U8
from tinyhlo.ir.elements import PLANES, SMALL, TOKEN
from tinyhlo.ir.graph import Node, TensorType
from tinyhlo.runtime.library import OPERANDS, RESULTS

Order = tuple[int, ...]  # axes of a value as they lie in memory, outermost first

EMPTY = TensorType((0,), TOKEN)


def visible(type_: ValueType) -> TensorType:
    """The type that users pass; a token is the empty array that JAX passes for it."""
    assert isinstance(type_, (TensorType, TokenType))
    return EMPTY if isinstance(type_, TokenType) else type_


def loaded(buffer: Node, type_: ValueType) -> Value:
    """The value of `type_` in a buffer; a complex one is two views of pairs. What lies in a byte
    above the bits of a smaller type means nothing: NumPy leaves signs and rests of casts there."""
    if isinstance(type_, TokenType):
        return None
    assert isinstance(type_, TensorType)
    if type_.dtype in SMALL and type_.dtype.bits < 8:
        return buffer & full((1 << type_.dtype.bits) - 1, buffer.shape, U8)
    if type_.dtype not in PLANES:
        return buffer
    return Complex(*from_pairs(buffer))


def buffer_of(value: Value) -> Node:
    """What is stored for a value; a complex one as pairs."""
    if isinstance(value, Complex):
        return as_pairs(value)
    if value is None:
        return full(False, EMPTY.shape, BOOL)
    assert isinstance(value, Node)
    return value


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
    return permute(buffer, inverse(axes))
