"""The C library `libtinyhlo` as Python sees it: the runtime core and the PJRT plugin are one file.

In: nothing. Out: `library()` with typed functions, and `address(name)` for generated code.

    >>> address("tiny_parallel") > 0
    True
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tinyhlo.errors import TinyhloError

NATIVE = Path(__file__).parent / "native"
SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"
LIBRARY = NATIVE / f"libtinyhlo{SUFFIX}"

# absl::Status codes, as native/core.h has them
INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL = 3, 8, 12, 13

MOST_TEXT = 16_000  # bytes of an error's text, a few less than native/error.c keeps
MOST_BYTES = 1 << 50  # that the allocator looks for at once: more than machines have

# void body(void* context, int64_t begin, int64_t end)
BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


# name -> (result type, argument types); the C side is documented in native/core.h and plugin.h
FUNCTIONS: dict[str, tuple[type | None, Sequence[type]]] = {
    "tiny_set_error": (None, (ctypes.c_int32, ctypes.c_char_p)),
    "tiny_last_error": (ctypes.c_char_p, ()),
    "tiny_last_error_code": (ctypes.c_int32, ()),
    "tiny_clear_error": (None, ()),
    "tiny_allocate": (ctypes.c_void_p, (ctypes.c_int64,)),
    "tiny_free": (None, (ctypes.c_void_p, ctypes.c_int64)),
    "tiny_allocate_buffer": (ctypes.c_void_p, (ctypes.c_int64,)),
    "tiny_free_buffer": (None, (ctypes.c_void_p, ctypes.c_int64)),
    "tiny_memory_is_devices": (ctypes.c_bool, ()),
    "tiny_memory_is_apart": (ctypes.c_bool, ()),
    "tiny_put": (ctypes.c_int32, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)),
    "tiny_get": (ctypes.c_int32, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)),
    "tiny_copy": (ctypes.c_int32, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)),
    "tiny_install_device": (ctypes.c_bool, (ctypes.c_void_p,)),
    "tiny_device_launch": (ctypes.c_int32, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)),
    "tiny_device_copy": (ctypes.c_int32, (*[ctypes.c_void_p] * 3, ctypes.c_int64)),
    "tiny_device_wait": (ctypes.c_int32, (ctypes.c_void_p,)),
    "tiny_device_read": (ctypes.c_int32, (*[ctypes.c_void_p] * 3, ctypes.c_int64)),
    "tiny_graph_call": (ctypes.c_int32, (ctypes.c_void_p,) * 6),
    "tiny_graphs_free": (None, (ctypes.c_void_p,)),
    "tiny_graph_counts": (None, (ctypes.c_void_p,) * 2),
    "tiny_host_call": (ctypes.c_int32, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)),
    "tiny_opencl_open": (None, (ctypes.c_void_p,)),
    "tiny_stream_open": (None, (ctypes.c_void_p,)),
    "tiny_metal_open": (ctypes.c_bool, (ctypes.c_void_p,)),
    "tiny_has_mappings": (ctypes.c_bool, (ctypes.c_int64, ctypes.c_int64)),
    "tiny_with_scratch": (ctypes.c_int32, (*[ctypes.c_void_p] * 5, *[ctypes.c_int64] * 2)),
    "tiny_scratch": (ctypes.c_void_p, (ctypes.c_int64,)),
    "tiny_scratch_free": (None, (ctypes.c_void_p,)),
    "tiny_trim": (None, ()),
    "tiny_memory_stats": (None, (ctypes.c_void_p,)),
    "tiny_parallel": (None, (BODY, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)),
    "tiny_flush_denormals": (ctypes.c_uint32, (ctypes.c_uint32,)),
    "tiny_met_denormals": (ctypes.c_bool, ()),
    "tiny_library_call": (ctypes.c_int32, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)),
    "tiny_library_entry": (ctypes.c_int32, (ctypes.c_void_p,) * 4),
    "tiny_python_together": (ctypes.c_int32, (ctypes.c_void_p, ctypes.c_int64)),
    "tiny_python_run": (ctypes.c_int32, (ctypes.c_void_p,) * 3),
    "tiny_python_entry": (ctypes.c_int32, (ctypes.c_void_p,) * 4),
    "tiny_plain_run": (ctypes.c_int32, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)),
    "tiny_ffi_run": (ctypes.c_int32, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)),
    "tiny_ffi_instantiate": (ctypes.c_int32, (ctypes.c_void_p,)),
    "tiny_substitute": (ctypes.c_int32, (ctypes.c_void_p,) * 3),
    "tiny_blas_threads": (None, (ctypes.c_void_p, ctypes.c_void_p)),
    "tiny_set_threads": (None, (ctypes.c_int32,)),
    "tiny_thread_count": (ctypes.c_int32, ()),
    "tiny_core_count": (ctypes.c_int32, ()),
    "tiny_ask_matrices": (ctypes.c_bool, ()),
    "tiny_group_limit": (ctypes.c_int64, (ctypes.c_char_p,) * 3),
    "tiny_stream_close": (None, ()),
    "tiny_python_open": (None, (ctypes.c_void_p,)),
    "tiny_plugin_install": (None, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)),
    "tiny_plugin_api": (ctypes.c_void_p, ()),
    "GetPjrtApi": (ctypes.c_void_p, ()),
    "tiny_executable_new": (ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_void_p)),
    "tiny_executable_next_retired": (ctypes.c_void_p, ()),
    "tiny_executable_free": (None, (ctypes.c_void_p,)),
}


@functools.cache
def library() -> ctypes.CDLL:
    """The loaded library.

    Raises TinyhloError when it has not been built or does not load.
    """
    if not LIBRARY.exists():
        raise TinyhloError(
            f"{LIBRARY} is missing: tinyhlo was not installed. "
            "Run `pip install -e .` in its source folder."
        )
    try:
        loaded = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        raise TinyhloError(f"cannot load {LIBRARY}: {error}") from None
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


@functools.cache
def address(name: str) -> int:
    """Address of an exported function, for generated code to call."""
    return address_of(getattr(library(), name))


def address_of(pointer: Any) -> int:
    """Of what ctypes takes for a pointer: a function, a text."""
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


def last_error() -> str:
    """The text that a kernel left in this thread, "" when there is none."""
    return library().tiny_last_error().decode(errors="replace")


def set_error(code: int, text: str) -> None:
    """Leave an error in this thread. Its text may hold what UTF-8 has not: bytes of a path. Of one
    that is too long the end is kept too, where Python says what has happened."""
    kept = text.encode(errors="backslashreplace")
    if len(kept) > MOST_TEXT:
        head, tail = kept[: MOST_TEXT // 4], kept[-(MOST_TEXT // 2) :]
        kept = b"\n[...]\n".join(part.decode(errors="ignore").encode() for part in (head, tail))
    library().tiny_set_error(code, kept)


def set_threads(count: int) -> None:
    """Workers of the pool, the caller included; 0: one per core that this process may use."""
    library().tiny_set_threads(count)
