"""Library calls of XLA FFI handlers, the C functions that `jax.ffi` registers.

In: the handlers of a target (PyCapsules by stage) and a `Call`. Out: the `Library` that calls them.

    library = ffi_call({"execute": capsule}, call)

What does not change from call to call (shapes, attributes) is laid out here once; native/ffi.c puts
the call frame around it. The structures mirror native/ffi_abi.h and native/ffi.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tinyhlo.errors import TinyhloError
from tinyhlo.ir.elements import BY_NAME
from tinyhlo.ir.graph import TensorType
from tinyhlo.runtime import core
from tinyhlo.runtime.library import Call, Library, memory_of

STAGES = ("instantiate", "prepare", "initialize", "execute")
ARRAY, DICTIONARY, SCALAR, STRING = 1, 2, 3, 4  # kinds of attributes

# XLA_FFI_DataType
CODES = {
    "i1": 1,
    "i2": 26,
    "i4": 21,
    "i8": 2,
    "i16": 3,
    "i32": 4,
    "i64": 5,
    "ui2": 27,
    "ui4": 22,
    "ui8": 6,
    "ui16": 7,
    "ui32": 8,
    "ui64": 9,
    "f16": 10,
    "f32": 11,
    "f64": 12,
    "bf16": 16,
    "complex<f32>": 15,
    "complex<f64>": 18,
    "f8E5M2": 19,
    "f8E4M3FN": 20,
    "f8E4M3B11FNUZ": 23,
    "f8E5M2FNUZ": 24,
    "f8E4M3FNUZ": 25,
    "f8E4M3": 28,
    "f8E3M4": 29,
    "f4E2M1FN": 32,
    "f8E8M0FNU": 33,
}
NUMPY_CODES = {BY_NAME[name].numpy: code for name, code in CODES.items()}


class Buffer(ctypes.Structure):
    """FfiBuffer."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int64),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
    ]


class Span(ctypes.Structure):
    """FfiSpan: text with its length."""

    _fields_ = [("text", ctypes.c_char_p), ("length", ctypes.c_size_t)]


class Scalar(ctypes.Structure):
    """One number as an attribute."""

    _fields_ = [("dtype", ctypes.c_int32), ("value", ctypes.c_void_p)]


class Array(ctypes.Structure):
    """Numbers as an attribute."""

    _fields_ = [("dtype", ctypes.c_int32), ("size", ctypes.c_size_t), ("data", ctypes.c_void_p)]


class Attributes(ctypes.Structure):
    """FfiAttributes: a dictionary, sorted by name."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extension_start", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("types", ctypes.POINTER(ctypes.c_int32)),
        ("names", ctypes.POINTER(ctypes.POINTER(Span))),
        ("values", ctypes.POINTER(ctypes.c_void_p)),
    ]


class Descriptor(ctypes.Structure):
    """FfiLibrary."""

    _fields_ = [
        ("run", ctypes.c_void_p),
        ("handlers", ctypes.c_void_p * len(STAGES)),
        ("input_count", ctypes.c_int64),
        ("output_count", ctypes.c_int64),
        ("buffers", ctypes.POINTER(Buffer)),
        ("aliases", ctypes.POINTER(ctypes.c_int64)),
        ("output_bytes", ctypes.POINTER(ctypes.c_int64)),
        ("batch", ctypes.c_int64),
        ("batch_bytes", ctypes.POINTER(ctypes.c_int64)),
        ("attributes", Attributes),
        ("states", ctypes.c_void_p * len(STAGES)),
        ("state_types", ctypes.c_int64 * len(STAGES)),
    ]


def ffi_call(
    handlers: Mapping[str, Any], call: Call, seconds: float = 0.0, batch: int = 1
) -> Library:
    """A call of the handlers of one target. With `batch` > 1 the first axis of every operand and
    result has that length, ranks are 3 at most, and the call may be made in parts.

    Raises TinyhloError with the handler's words when it refuses to be instantiated.
    """
    alive: list[Any] = [call, dict(handlers)]
    types = (*call.operands, *call.results)
    buffers = (Buffer * max(1, len(types)))(*map(buffer_of, types))
    shared = dict(call.aliases)
    aliases = integers([shared.get(k, -1) for k in range(len(call.results))])
    sizes = integers([type_.nbytes for type_ in call.results])
    batch_bytes = integers([type_.nbytes // max(1, batch) for type_ in types])
    descriptor = Descriptor(
        core.address("tiny_ffi_run"),
        (ctypes.c_void_p * len(STAGES))(*(pointer_of(handlers.get(stage)) for stage in STAGES)),
        len(call.operands),
        len(call.results),
        buffers,
        aliases,
        sizes,
        batch,
        batch_bytes,
        attributes_of(call.attributes, alive),
    )
    if core.library().tiny_ffi_instantiate(ctypes.byref(descriptor)):
        raise TinyhloError(f"{call.target} cannot be instantiated: {core.last_error()}")
    alive += [buffers, aliases, sizes, batch_bytes, descriptor]
    return Library(memory_of(descriptor), alive, seconds)


def pointer_of(capsule: Any) -> int | None:
    """The handler that a PyCapsule holds."""
    if capsule is None:
        return None
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_void_p, (ctypes.py_object,)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_void_p)
    return pointer(capsule, name(capsule))


def integers(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * max(1, len(values)))(*values)


def buffer_of(type_: TensorType) -> Buffer:
    size = ctypes.sizeof(Buffer)
    return Buffer(
        size, None, CODES[str(type_.dtype)], None, len(type_.shape), integers(type_.shape)
    )


def attributes_of(values: Mapping[str, Any], alive: list[Any]) -> Attributes:
    """A dictionary of attributes. What it points to goes into `alive`."""
    names = [span_of(name) for name in sorted(values)]
    found = [attribute_of(name, values[name], alive) for name in sorted(values)]
    count = max(1, len(names))
    kinds = (ctypes.c_int32 * count)(*(kind for kind, _ in found))
    pointers = (ctypes.POINTER(Span) * count)(*map(ctypes.pointer, names))
    structures = (ctypes.c_void_p * count)(*(ctypes.addressof(value) for _, value in found))
    alive += [names, found, kinds, pointers, structures]
    size = ctypes.sizeof(Attributes)
    return Attributes(size, None, len(names), kinds, pointers, structures)


def attribute_of(name: str, value: Any, alive: list[Any]) -> tuple[int, ctypes.Structure]:
    """(kind, structure) of one attribute.

    Raises TinyhloError for what the ABI has no kind for.
    """
    match value:
        case str():
            return STRING, span_of(value)
        case np.generic() if value.dtype in NUMPY_CODES:
            memory = np.array(value)
            alive.append(memory)
            return SCALAR, Scalar(NUMPY_CODES[value.dtype], memory.ctypes.data)
        case np.ndarray() if value.dtype in NUMPY_CODES and value.ndim == 1:
            return ARRAY, Array(NUMPY_CODES[value.dtype], value.size, value.ctypes.data)
        case Mapping():
            return DICTIONARY, attributes_of(value, alive)
        case _:
            raise TinyhloError(f"attribute {name}={value!r} has no form in the XLA FFI")


def span_of(text: str) -> Span:
    raw = text.encode()
    return Span(raw, len(raw))
