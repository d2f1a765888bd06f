"""The StableHLO module inside a file that `jax.export` wrote.

    module_bytes = read_artifact(exported.serialize())

The file is a flatbuffer (schema: `jax/_src/export/serialization.fbs`). Only its field
`mlir_module_serialized` is needed, so a few bounds-checked reads replace the `flatbuffers` package.
"""

from __future__ import annotations

import struct

from tinyhlo.errors import InvalidProgram

MODULE_SLOT = 30  # byte position of the field's entry in the table's vtable
MODULE_MAGIC = b"ML\xefR"


def is_artifact(source: bytes) -> bool:
    """Whether `source` is a `jax.export` file."""
    return _embedded_module(source) is not None


def read_artifact(source: bytes) -> bytes:
    """The portable artifact inside a `jax.export` file.

    Raises InvalidProgram when there is none.
    """
    module = _embedded_module(source)
    if module is None:
        raise InvalidProgram("not a jax.export file: it holds no StableHLO module")
    return module


def _embedded_module(source: bytes) -> bytes | None:
    """root offset -> table -> vtable -> offset of the byte vector -> (length, bytes)."""
    source = bytes(source)
    if source.startswith(MODULE_MAGIC):
        return None
    try:
        (table,) = struct.unpack_from("<I", source, 0)
        (vtable_distance,) = struct.unpack_from("<i", source, table)
        vtable = table - vtable_distance
        (vtable_bytes,) = struct.unpack_from("<H", source, vtable)
        if vtable < 0 or vtable_bytes <= MODULE_SLOT:
            return None
        (field,) = struct.unpack_from("<H", source, vtable + MODULE_SLOT)
        vector = table + field
        (vector_distance,) = struct.unpack_from("<I", source, vector)
        (length,) = struct.unpack_from("<I", source, vector + vector_distance)
    except struct.error:
        return None
    start = vector + vector_distance + 4
    module = source[start : start + length]
    if not field or len(module) != length or not module.startswith(MODULE_MAGIC):
        return None
    return module
