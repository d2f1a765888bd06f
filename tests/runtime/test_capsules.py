"""What PyCapsules hold; whoever else reads some has other prototypes of the same functions."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest

from tinyhlo.pjrt_plugin import dlpack
from tinyhlo.runtime.capsules import address_in, capsule_of, name_of
from tinyhlo.runtime.ffi import type_of

FUNCTIONS = (ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer)
NAME = b"a name"


@pytest.fixture(autouse=True)
def others() -> Iterator[None]:
    before = [(each.restype, each.argtypes) for each in FUNCTIONS]
    for each in FUNCTIONS:
        each.restype, each.argtypes = ctypes.c_int, None
    yield
    assert all(each.restype is ctypes.c_int and each.argtypes is None for each in FUNCTIONS)
    for each, (result, arguments) in zip(FUNCTIONS, before, strict=True):
        each.restype, each.argtypes = result, arguments


def test_what_they_hold() -> None:
    capsule = capsule_of(1 << 40 | 8, NAME)
    assert name_of(capsule) == NAME
    assert address_in(capsule) == 1 << 40 | 8
    assert address_in(None) == 0
    assert name_of(capsule_of(64, None)) is None


def test_types_of_handlers() -> None:
    number = ctypes.c_int64(7)
    capsule = capsule_of(ctypes.addressof(number), NAME)
    assert type_of({"type_id": capsule}) == (ctypes.addressof(number), 0)


def test_types_of_arrays() -> None:
    assert dlpack.code_of(np.zeros(3, np.float32).__dlpack__()).value == 2
