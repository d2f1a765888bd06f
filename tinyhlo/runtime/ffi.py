"""Library calls of XLA FFI handlers, the C functions that `jax.ffi` registers.

In: the handlers of a target (PyCapsules by stage) and a `Call`. Out: the `Library` that calls them.

    library = ffi_call({"execute": capsule}, call)

What does not change from call to call (shapes, attributes) is laid out here once, as native/ffi.h
and native/ffi_abi.h say; native/ffi.c puts the call frame around it.
"""

from __future__ import annotations

import ctypes
import itertools
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from tinyhlo.errors import TinyhloError
from tinyhlo.ir.elements import BY_NAME
from tinyhlo.ir.graph import TensorType
from tinyhlo.runtime import core
from tinyhlo.runtime.arrays import Words
from tinyhlo.runtime.capsules import address_in
from tinyhlo.runtime.jax_ffi import TYPES
from tinyhlo.runtime.library import Call, Library

STAGES = ("instantiate", "prepare", "initialize", "execute")
ARRAY, DICTIONARY, SCALAR, STRING = 1, 2, 3, 4  # kinds of attributes

BUFFER_WORDS, ATTRIBUTES_WORDS, KEPT_WORDS = 6, 6, 4
NUMBERS = itertools.count(1 << 40)  # of types; XLA counts from 1
DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

# XLA_FFI_DataType of each element type
ELEMENTS = """
i1:1 i2:26 i4:21 i8:2 i16:3 i32:4 i64:5 ui2:27 ui4:22 ui8:6 ui16:7 ui32:8 ui64:9 f16:10 f32:11
f64:12 bf16:16 complex<f32>:15 complex<f64>:18 f8E5M2:19 f8E4M3FN:20 f8E4M3B11FNUZ:23 f8E5M2FNUZ:24
f8E4M3FNUZ:25 f8E4M3:28 f8E3M4:29 f4E2M1FN:32 f8E8M0FNU:33
"""
CODES = {name: int(code) for name, code in (word.split(":") for word in ELEMENTS.split())}
NUMPY_CODES = {BY_NAME[name].numpy: code for name, code in CODES.items()}


def ffi_call(
    handlers: Mapping[str, Any], call: Call, seconds: float = 0.0, batch: int = 1,
    blas_threads: int = 0,
) -> Library:  # fmt: skip
    """A call of the handlers of one target. With `batch` > 1 the first axis of every operand and
    result has that length, ranks are 3 at most, and the call may be made in parts.
    `blas_threads`: how many the BLAS that it calls has meanwhile, at most; 0: as many as it likes.

    Raises TinyhloError with the handler's words when it refuses to be instantiated.
    """
    words = Words()
    types = (*call.operands, *call.results)
    shared = dict(call.aliases)
    known = [type_of(registration) for registration in tuple(TYPES.values())]
    descriptor = words.array(
        [
            core.address("tiny_ffi_run"),
            *(address_in(handlers.get(stage)) for stage in STAGES),
            *(len(call.operands), len(call.results)),
            words.address([word for type_ in types for word in buffer_of(type_, words)]),
            words.address([shared.get(k, -1) for k in range(len(call.results))]),
            words.address([type_.nbytes for type_ in call.results]),
            batch,
            words.address([type_.nbytes // max(1, batch) for type_ in types]),
            blas_threads,
            *attributes_of(call.attributes, words),
            *(len(known), words.address(known)),
            *(0 for _ in range(KEPT_WORDS)),
        ]
    )
    if core.library().tiny_ffi_instantiate(descriptor.ctypes.data):
        raise TinyhloError(f"{call.target} cannot be instantiated: {core.last_error()}")
    state, deleter = map(int, descriptor[-2:])
    if state and deleter:
        weakref.finalize(descriptor, DELETER(deleter), state).atexit = False
    return Library(descriptor, (call, dict(handlers), words), seconds)


def type_of(registration: Mapping[str, Any]) -> tuple[int, int]:
    """An FfiType. It gets a number if XLA has given it none: jaxlib's header wants one."""
    address = address_in(registration["type_id"])
    number = ctypes.c_int64.from_address(address)
    number.value = number.value or next(NUMBERS)
    return address, address_in(registration.get("type_info"))


def buffer_of(type_: TensorType, words: Words) -> tuple[int, ...]:
    """An FfiBuffer."""
    rank = len(type_.shape)
    return 8 * BUFFER_WORDS, 0, CODES[str(type_.dtype)], 0, rank, words.address(type_.shape)


def attributes_of(values: Mapping[str, Any], words: Words) -> tuple[int, ...]:
    """FfiAttributes: a dictionary, sorted by name."""
    names = [words.address(span_of(name, words)) for name in sorted(values)]
    found = [attribute_of(name, values[name], words) for name in sorted(values)]
    kinds = words.address([kind for kind, _ in found], np.int32)
    structures = words.address([words.address(structure) for _, structure in found])
    return 8 * ATTRIBUTES_WORDS, 0, len(names), kinds, words.address(names), structures


def attribute_of(name: str, value: Any, words: Words) -> tuple[int, tuple[int, ...]]:
    """(kind, structure) of one attribute.

    Raises TinyhloError for what the ABI has no kind for.
    """
    match value:
        case str():
            return STRING, span_of(value, words)
        case np.generic() if value.dtype in NUMPY_CODES:
            return SCALAR, (NUMPY_CODES[value.dtype], words.address(value, value.dtype))
        case np.ndarray() if value.dtype in NUMPY_CODES and value.ndim == 1:
            elements = words.address(value, value.dtype)
            return ARRAY, (NUMPY_CODES[value.dtype], value.size, elements)
        case Mapping():
            return DICTIONARY, attributes_of(value, words)
        case _:
            raise TinyhloError(f"attribute {name}={value!r} has no form in the XLA FFI")


def span_of(text: str, words: Words) -> tuple[int, ...]:
    """An FfiSpan: text with its length."""
    raw = text.encode()
    return words.address(list(raw), np.uint8), len(raw)
