"""What a call of LAPACK asks for: its routine, and its options.

routine(lapack_spotrf_ffi of f32[512,512])  ->  "potrf"
letter(the same, "uplo")                    ->  "L"
"""

from __future__ import annotations

from tinyhlo.ir.dtypes import F32, F64
from tinyhlo.ir.graph import LibraryCall

PREFIXES = {F32: "lapack_s", F64: "lapack_d"}


def routine(call: LibraryCall) -> str | None:
    """Its name without those of the type and the interface; None unless it is for real numbers."""
    prefix = PREFIXES.get(call.inputs[0].dtype) if call.inputs else None
    if prefix is None or not (call.target.startswith(prefix) and call.target.endswith("_ffi")):
        return None
    return call.target.removeprefix(prefix).removesuffix("_ffi")


def letter(call: LibraryCall, name: str) -> str:
    """An option, as LAPACK has it: "L" is lower or left."""
    return chr(int(dict(call.attributes)[name]))
