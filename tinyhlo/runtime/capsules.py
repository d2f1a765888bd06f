"""PyCapsules: addresses that extensions of Python hand each other.

    address_in(capsule)                # 0 for None
    name_of(capsule)                   # b"dltensor"
    capsule_of(address, b"pjrt_c_api")

By prototypes of our own: those of `ctypes.pythonapi` belong to whoever has set them last, in any
thread.
"""

from __future__ import annotations

from ctypes import PYFUNCTYPE, c_char_p, c_void_p, py_object, pythonapi
from typing import Any

_get_name = PYFUNCTYPE(c_char_p, py_object)(("PyCapsule_GetName", pythonapi))
_get_pointer = PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", pythonapi))
_new = PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", pythonapi))


def name_of(capsule: Any) -> bytes | None:
    return _get_name(capsule)


def address_in(capsule: Any) -> int:
    """What a PyCapsule holds; 0 for None."""
    return 0 if capsule is None else _get_pointer(capsule, name_of(capsule))


def capsule_of(address: int, name: bytes | None) -> object:
    """Whoever makes one keeps its name."""
    return _new(address, name, None)
