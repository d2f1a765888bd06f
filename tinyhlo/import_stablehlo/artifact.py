"""The StableHLO module inside a file that `jax.export` wrote.

    embedded_module(exported.serialize())    # bytes
    read_platforms(exported.serialize())     # ("cpu", "tiny")

The file is a flatbuffer (schema: `jax/_src/export/serialization.fbs`). Only two of its fields are
needed, so a few bounds-checked reads replace the `flatbuffers` package.
"""

from __future__ import annotations

import struct

# byte positions of the fields' entries in the table's vtable
PLATFORMS_SLOT = 22
MODULE_SLOT = 30
BYTECODE_MAGIC = b"ML\xefR"  # how MLIR bytecode begins
MOST_PLATFORMS = 64  # JAX knows fewer than ten


def embedded_module(source: bytes) -> bytes | None:
    """The portable artifact inside a `jax.export` file; None when it is no such file."""
    if source.startswith(BYTECODE_MAGIC):
        return None
    try:
        vector = _vector(source, MODULE_SLOT)
    except struct.error:
        return None
    if vector is None:
        return None
    start, length = vector
    module = source[start : start + length]
    return module if len(module) == length and module.startswith(BYTECODE_MAGIC) else None


def read_platforms(source: bytes) -> tuple[str, ...]:
    """The platforms that a `jax.export` file was made for, in the order of its platform index."""
    try:
        table = _vector(source, PLATFORMS_SLOT)
        if table is None:
            return ()
        start, count = table
        return tuple(_string(source, start + 4 * k) for k in range(min(count, MOST_PLATFORMS)))
    except (struct.error, UnicodeDecodeError):
        return ()


def _vector(source: bytes, slot: int) -> tuple[int, int] | None:
    """(start, length) of a table's vector: root offset -> table -> vtable -> field -> vector."""
    (table,) = struct.unpack_from("<I", source, 0)
    (vtable_distance,) = struct.unpack_from("<i", source, table)
    vtable = table - vtable_distance
    if vtable < 0:
        return None
    (vtable_bytes,) = struct.unpack_from("<H", source, vtable)
    if vtable_bytes <= slot:
        return None
    (field,) = struct.unpack_from("<H", source, vtable + slot)
    if not field:
        return None
    vector = _followed(source, table + field)
    (length,) = struct.unpack_from("<I", source, vector)
    return vector + 4, length


def _string(source: bytes, position: int) -> str:
    string = _followed(source, position)
    (length,) = struct.unpack_from("<I", source, string)
    return source[string + 4 : string + 4 + length].decode()


def _followed(source: bytes, position: int) -> int:
    """Where the offset at `position` leads."""
    (distance,) = struct.unpack_from("<I", source, position)
    return position + distance
