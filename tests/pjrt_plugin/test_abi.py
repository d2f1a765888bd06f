"""The ABI table, of which the C header is made: pypjrt's independent mirror agrees."""

from __future__ import annotations

import ctypes

import pytest

from tests.pjrt_plugin.mirror import structure
from tinyhlo.pjrt_plugin import abi

mirror = pytest.importorskip("pypjrt._abi.pjrt_0_114")

READ = [name for name in abi.STRUCTS if name.removesuffix("_Args") not in abi.UNIMPLEMENTED]
IN_A_UNION = {"value"}  # of NamedValue; pypjrt names the members, the table the widest of them


def test_slots_are_in_the_order_of_the_api() -> None:
    assert tuple(f"PJRT_{name}" for name in abi.FUNCTIONS) == tuple(mirror.SLOT)
    assert (abi.MAJOR, abi.MINOR) == (mirror.PJRT_API_MAJOR, mirror.PJRT_API_MINOR)


@pytest.mark.parametrize("name", READ)
def test_layout(name: str) -> None:
    ours, theirs = structure(name), getattr(mirror, f"PJRT_{name}")
    assert ctypes.sizeof(ours) == ctypes.sizeof(theirs)
    for field, _ in ours._fields_:
        if field in IN_A_UNION:
            continue
        assert getattr(ours, field).offset == getattr(theirs, field).offset, field
        assert getattr(ours, field).size == getattr(theirs, field).size, field


def test_element_types() -> None:
    enum = {
        name.removeprefix("PJRT_Buffer_Type_"): value
        for name, value in vars(mirror).items()
        if name.startswith("PJRT_Buffer_Type_")
    }
    spelled = {"i1": "PRED", "i32": "S32", "ui8": "U8", "bf16": "BF16", "complex<f64>": "C128"}
    for ours, theirs in spelled.items():
        assert abi.ELEMENT_TYPES[ours][0] == enum[theirs]
    assert abi.ELEMENT_TYPES["f8E4M3FN"][0] == enum["F8E4M3FN"]
    assert abi.ELEMENT_TYPES["token"] == (enum["TOKEN"], 0)
