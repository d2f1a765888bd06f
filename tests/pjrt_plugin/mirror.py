"""The structs of the PJRT C API as ctypes, from the table that the C header is made of."""

from __future__ import annotations

import ctypes
from functools import cache

from tinyhlo.pjrt_plugin.abi import STRUCTS

TYPES = {
    "p": ctypes.c_void_p,
    "z": ctypes.c_size_t,
    "l": ctypes.c_int64,
    "i": ctypes.c_int32,
    "u": ctypes.c_uint32,
    "b": ctypes.c_bool,
}


@cache
def structure(name: str) -> type[ctypes.Structure]:
    """The ctypes mirror of the struct PJRT_`name`."""
    fields = [(f.name, TYPES.get(f.type) or structure(f.type)) for f in STRUCTS[name].fields]
    return type(f"PJRT_{name}", (ctypes.Structure,), {"_fields_": fields})
