"""MLIR types as value types.

tensor<8x4xf32>  ->  TensorType((8, 4), F32)
tensor<?xf32>    ->  OtherType, with a hint for the user

A future is the tuple of what it will hold: what was started is done at once.
"""

from __future__ import annotations

import re

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from tinyhlo.import_stablehlo.records import OtherType, TokenType, TupleType, ValueType
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.elements import BY_NAME
from tinyhlo.ir.graph import TensorType

TENSOR = re.compile(r"tensor<((?:(?:\d+|\?)x)*)([^,]*)(?:, .*)?>")

ADDRESSABLE_BYTES = 1 << 62  # positions and sizes are signed 64-bit numbers everywhere
TOO_LARGE = "it has more elements than 64-bit numbers count: no machine holds it"

# what is in the type's text -> what to do about it
HINTS = {
    "?": "dynamic shapes are not compiled: export or jit the function with static shapes",
    "!quant": "this quantized type is not compiled: dequantize before this op",
    "": "this type is not compiled",
}


def tensor_of(text: str) -> tuple[tuple[int | None, ...], DType] | None:
    """Shape, with None for unknown sizes, and element type of a tensor type that is known here."""
    tensor = TENSOR.fullmatch(text)
    dtype = BY_NAME.get(tensor[2]) if tensor else None
    if tensor is None or dtype is None:
        return None
    sizes = tensor[1].split("x")[:-1]
    return tuple(None if size == "?" else int(size) for size in sizes), dtype


def decode_type(type_: ir.Type) -> ValueType:
    """The value type of an MLIR type; never fails."""
    text = str(type_)
    tensor = tensor_of(text)
    if tensor is not None and None not in tensor[0]:
        known = TensorType(*tensor)  # type: ignore[arg-type]
        return known if known.nbytes < ADDRESSABLE_BYTES else OtherType(text, TOO_LARGE)
    if text == "!stablehlo.token":
        return TokenType()
    if text.startswith("tuple<"):
        members = ir.TupleType(type_)
        return TupleType(tuple(decode_type(members.get_type(k)) for k in range(members.num_types)))
    if text.startswith("!stablehlo.future<"):
        return TupleType(tuple(map(decode_type, stablehlo.FutureType(type_).types)))
    return OtherType(text, next(hint for sign, hint in HINTS.items() if sign in text))
