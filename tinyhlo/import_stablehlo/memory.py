"""Values as they lie in memory: what arguments, results and library calls pass.

    Complex(re, im) of shape (4,)  ->  f32[4,2], pairs
    a token                        ->  token[0], nothing

`visible` is the type that users see, `ir/elements.stored` the type of its buffer.
"""

from __future__ import annotations

from tinyhlo.import_stablehlo.complex_numbers import Complex
from tinyhlo.import_stablehlo.planes import from_pairs, joined, pairs
from tinyhlo.import_stablehlo.records import TokenType, ValueType
from tinyhlo.import_stablehlo.walker import Value
from tinyhlo.ir.build import full, permute
from tinyhlo.ir.dtypes import BOOL, U8
from tinyhlo.ir.elements import PLANES, SMALL, TOKEN
from tinyhlo.ir.graph import Node, TensorType

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
        found = joined(*value.planes)
        if found is not None:  # a Fourier transform's last pass writes pairs
            x, axis = found
            return permute(x, (*(k for k in range(len(x.shape)) if k != axis), axis))
        return pairs(*value.planes)
    if value is None:
        return full(False, EMPTY.shape, BOOL)
    assert isinstance(value, Node)
    return value
