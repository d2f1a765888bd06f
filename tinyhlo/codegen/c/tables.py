"""Small constant arrays as C."""

from __future__ import annotations

from tinyhlo.codegen.c.arithmetic import literal_text, stored_name
from tinyhlo.codegen.expressions import Memory


def table_text(name: str, memory: Memory, raw: bytes) -> str:
    """The declaration of an array with these bytes."""
    size, dtype = memory.dtype.itemsize, memory.dtype
    bits = (int.from_bytes(raw[k : k + size], "little") for k in range(0, len(raw), size))
    values = [str(b) if dtype.kind == "bool" else literal_text(b, dtype) for b in bits]
    return f"TABLE {stored_name(dtype)} {name}[{len(values)}] = {{{', '.join(values)}}};"
