"""MLIR attributes as Python values.

`array<i64: 0, 1>` -> (0, 1); `#stablehlo<comparison_direction GT>` -> "GT"; `@callee` -> "callee";
`dense<...>` -> a NumPy array, or a scalar array when it is a splat (see `Dense`).
"""

from __future__ import annotations

import re
from binascii import a2b_hex
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import chlo, stablehlo

from tinyhlo.errors import InvalidProgram
from tinyhlo.import_stablehlo.records import (
    ConvolutionDimensions,
    DotDimensions,
    RaggedDotDimensions,
    WindowDimensions,
)
from tinyhlo.ir.elements import BY_NAME, SMALL
from tinyhlo.records import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Dense:
    """Elements of a constant: the whole array, or one scalar when all `shape` are equal."""

    value: np.ndarray
    shape: tuple[int, ...]

    @property
    def array(self) -> np.ndarray:
        return np.broadcast_to(self.value, self.shape)


def decode_attribute(attribute: ir.Attribute) -> Any:
    """The Python value of an attribute; its text when it is of no known kind."""
    return DECODERS.get(type(attribute), decode_dialect_attribute)(attribute)


def decode_dialect_attribute(attribute: ir.Attribute) -> Any:
    """StableHLO's own attributes: dimension numbers, or an enumeration's word."""
    text = str(attribute)
    for prefix, binding, record, names in DIMENSION_NUMBERS:
        if text.startswith(prefix):
            numbers = binding(attribute)
            own = names.split() or [field.name for field in fields(record)]
            values = (getattr(numbers, name) for name in own)
            return record(*(v if isinstance(v, int) else tuple(v) for v in values))
    word = re.fullmatch(r"#\w+<\w+ (\w+)>", text)
    return word.group(1) if word else text


GATHER = """
    offset_dims collapsed_slice_dims operand_batching_dims start_indices_batching_dims
    start_index_map index_vector_dim
"""
SCATTER = """
    update_window_dims inserted_window_dims input_batching_dims scatter_indices_batching_dims
    scattered_dims_to_operand_dims index_vector_dim
"""
# how the text begins, jaxlib's class, our record, and what jaxlib calls the record's fields, in
# their order ("": the same)
DIMENSION_NUMBERS: tuple[tuple[str, Any, Any, str], ...] = (
    ("#stablehlo.gather<", stablehlo.GatherDimensionNumbers, WindowDimensions, GATHER),
    ("#stablehlo.scatter<", stablehlo.ScatterDimensionNumbers, WindowDimensions, SCATTER),
    ("#stablehlo.dot<", stablehlo.DotDimensionNumbers, DotDimensions, ""),
    ("#stablehlo.conv<", stablehlo.ConvDimensionNumbers, ConvolutionDimensions, ""),
    ("#chlo.ragged_dot<", chlo.RaggedDotDimensionNumbers, RaggedDotDimensions, ""),
)


LARGE_BYTES = 1 << 20  # of elements that are not copied


def decode_dense(attribute: Any) -> Any:
    """Elements as an array; None for element types that NumPy and ml_dtypes do not have here."""
    type_ = ir.ShapedType(attribute.type)  # a tensor's or a vector's
    shape = tuple(type_.shape)
    element = str(type_.element_type)
    if element.startswith("complex") or element not in NUMPY:
        return None
    dtype = NUMPY[element]
    if element in SMALL_NAMES:
        return Dense(decode_text(str(attribute), dtype, shape), shape)
    if attribute.is_splat:
        value = attribute.get_splat_value().value
        if value == value:  # the payload of a NaN is only in the elements themselves
            return Dense(np.asarray(value).astype(dtype), shape)
    if element == "bf16":
        return Dense(decode_text(str(attribute), dtype, shape), shape)
    array = np.asarray(attribute)  # MLIR's own memory, and with it all of the module's
    if array.nbytes < LARGE_BYTES:
        array = array.copy()
    if attribute.is_splat and array.size:
        array = array.reshape(-1)[0].reshape(())
    return Dense(array, shape)


NUMPY = {**{name: dtype.numpy for name, dtype in BY_NAME.items()}, "index": np.dtype(np.int64)}
SMALL_NAMES = frozenset(dtype.name for dtype in SMALL)


def decode_text(text: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Elements that the bindings cannot read, from the printed text: one hex string (little-endian,
    at least a byte an element), or a list of decimal and 0x numbers."""
    body = text[text.index("<") + 1 : text.index("> :")]
    if body.startswith('"0x'):
        array = np.frombuffer(a2b_hex(body[3:-1]), dtype)
    else:
        word = np.dtype(f"u{dtype.itemsize}")
        numbers: list[str] = re.findall(r"[-+.\w]+", body)
        bits = [
            int(number, 16)
            if number.startswith("0x")
            else int(np.asarray(float(WORDS.get(number) or number)).astype(dtype).view(word))
            for number in numbers
        ]
        array = np.array(bits, word).view(dtype)
    if array.size == 1:
        return array.reshape(())
    return array.reshape(shape)


WORDS = {"true": "1", "false": "0"}


def decode_complex_constant(operation: ir.Operation) -> Dense:
    """The elements of a complex constant, from the text of the op with its `value` only: `(re, im)`
    pairs or a hex string."""
    type_ = ir.RankedTensorType(operation.results[0].type)
    plane = NUMPY[str(ir.ComplexType(type_.element_type).element_type)]
    shape = tuple(type_.shape)
    alone = operation.clone(ip=False)  # else all values of its function are numbered
    for name in [name for name in alone.attributes if name != "value"]:
        del alone.attributes[name]
    text = str(alone)
    text = text[text.index("dense<") :]
    pairs = decode_text(text, plane, (-1, 2)) if int(np.prod(shape)) else np.empty((0, 2), plane)
    array = np.ascontiguousarray(pairs).view(f"c{2 * plane.itemsize}").reshape(-1)
    return Dense(array.reshape(()) if array.size == 1 else array.reshape(shape), shape)


def _text(attribute: Any) -> str:
    """A string; custom calls also put bytes into one."""
    return attribute.value_bytes.decode(errors="backslashreplace")


def _members(attribute: Any) -> tuple[Any, ...]:
    """By index: the bindings' iterators end the process at a member that they cannot give."""
    return tuple(decode_attribute(attribute[k]) for k in range(len(attribute)))


def _dictionary(attribute: Any) -> dict[str, Any]:
    return {name: decode_attribute(value) for name, value in _named(attribute)}


def _named(attribute: Any) -> Iterator[tuple[str, Any]]:
    """By name, for the same reason.

    Raises InvalidProgram for a name that the bindings cut short at a NUL.
    """
    for name in [named.name for named in attribute]:
        if name not in attribute:
            raise InvalidProgram(f"an attribute's name cannot be read: {name!r} is a part of it")
        yield name, attribute[name]


def decode_configuration(attribute: ir.DictAttr) -> dict[str, Any]:
    """The attributes of a custom call. Their types matter to native functions: numbers are NumPy
    scalars and arrays here, dictionaries inside are sorted pairs."""
    return {name: typed(value) for name, value in _named(attribute)}


def typed(attribute: Any) -> Any:
    """One attribute of a custom call."""
    match attribute:
        case ir.DictAttr():
            return tuple(sorted(decode_configuration(attribute).items()))
        case ir.IntegerAttr() | ir.FloatAttr() | ir.BoolAttr():
            return np.array(attribute.value, number_type(attribute.type))
        case ir.DenseElementsAttr() | ir.DenseIntElementsAttr() | ir.DenseFPElementsAttr():
            dense = decode_dense(attribute)
            return dense.array.reshape(-1) if isinstance(dense, Dense) else dense
        case _ if type(attribute) in DENSE_ARRAYS:
            return np.array(attribute, DENSE_ARRAYS[type(attribute)])
        case _:
            return decode_attribute(attribute)


def number_type(type_: ir.Type) -> np.dtype:
    """`si8` and `i8` are the same type."""
    name = str(type_).removeprefix("s")
    if name not in NUMPY:
        raise InvalidProgram(f"a custom call has a number of type {type_}")
    return NUMPY[name]


DENSE_ARRAYS = {
    ir.DenseBoolArrayAttr: np.bool_,
    ir.DenseI8ArrayAttr: np.int8,
    ir.DenseI16ArrayAttr: np.int16,
    ir.DenseI32ArrayAttr: np.int32,
    ir.DenseI64ArrayAttr: np.int64,
    ir.DenseF32ArrayAttr: np.float32,
    ir.DenseF64ArrayAttr: np.float64,
}

DECODERS: dict[type, Callable[[Any], Any]] = {
    ir.DenseI64ArrayAttr: tuple,
    ir.DenseI32ArrayAttr: tuple,
    ir.DenseBoolArrayAttr: tuple,
    ir.BoolAttr: lambda attribute: attribute.value,
    ir.IntegerAttr: lambda attribute: attribute.value,
    ir.FloatAttr: lambda attribute: attribute.value,
    ir.StringAttr: _text,
    ir.FlatSymbolRefAttr: lambda attribute: attribute.value,
    ir.UnitAttr: lambda attribute: True,
    ir.ArrayAttr: _members,
    ir.DictAttr: _dictionary,
    ir.DenseIntElementsAttr: decode_dense,
    ir.DenseFPElementsAttr: decode_dense,
    ir.DenseElementsAttr: decode_dense,
    ir.TypeAttr: str,
}
