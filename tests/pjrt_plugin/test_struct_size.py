"""Callers may be older than we are: nothing is read or written past their struct_size.

The argument structs lie on the caller's stack, so a field too many would smash it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest

from tests.pjrt_plugin.mirror import structure
from tinyhlo.pjrt_plugin import abi, bridge

CALL = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
GUARD = 0xAA

ACTIONS = (
    *("Create", "Destroy", "Compile", "Lookup", "FromHost", "CopyTo", "CopyRaw", "ToHost"),
    *(
        "Delete",
        "ReferenceCount",
        "ReadyEvent",
        "DefaultDeviceAssignment",
        "ClearMemoryStats",
        "Update",
    ),
)
# Functions that only fill in what they know of the handle in their first field.
GETTERS = [
    name
    for name in abi.FUNCTIONS
    if name.split("_")[0] in ("Client", "Device", "DeviceDescription", "Memory", "Buffer")
    and name not in abi.UNIMPLEMENTED
    and not any(action in name for action in ACTIONS)
]


def table() -> ctypes.Structure:
    return structure("Api").from_address(bridge.api())


def call(slot: str, arguments: ctypes.Structure) -> None:
    error = CALL(getattr(table(), f"PJRT_{slot}"))(ctypes.addressof(arguments))
    assert error is None


def arguments_of(slot: str, **fields: object) -> ctypes.Structure:
    type_ = structure(f"{slot}_Args")
    return type_(struct_size=ctypes.sizeof(type_), **fields)


def first_place() -> tuple[int, int, int]:
    """A client, its first device, and the memory of that."""
    create = arguments_of("Client_Create")
    call("Client_Create", create)
    devices = arguments_of("Client_Devices", client=create.client)
    call("Client_Devices", devices)
    device = ctypes.c_void_p.from_address(devices.devices).value
    memory = arguments_of("Device_DefaultMemory", device=device)
    call("Device_DefaultMemory", memory)
    assert device is not None
    return create.client, device, memory.memory


@pytest.fixture
def handles() -> Iterator[dict[str, int]]:
    """A client, its device and memory, and a buffer, by the name of the handle's field."""
    client, device, memory = first_place()
    data, dims = (ctypes.c_float * 6)(), (ctypes.c_int64 * 2)(2, 3)
    made = arguments_of(
        "Client_BufferFromHostBuffer",
        client=client,
        device=device,
        data=ctypes.addressof(data),
        type=abi.ELEMENT_TYPES["f32"][0],
        dims=ctypes.addressof(dims),
        num_dims=2,
    )
    call("Client_BufferFromHostBuffer", made)
    yield {
        "client": client,
        "device": device,
        "device_description": device,
        "memory": memory,
        "buffer": made.buffer,
    }
    call("Buffer_Destroy", arguments_of("Buffer_Destroy", buffer=made.buffer))
    call("Client_Destroy", arguments_of("Client_Destroy", client=client))


@pytest.mark.parametrize("slot", GETTERS)
def test_short_structs_are_not_overrun(slot: str, handles: dict[str, int]) -> None:
    type_ = structure(f"{slot}_Args")
    fields = [name for name, _ in type_._fields_]
    handle, first_out = fields[2], fields[3]
    known = getattr(type_, first_out).offset  # the caller knows of no out field
    raw = (ctypes.c_uint8 * ctypes.sizeof(type_))(*[GUARD] * ctypes.sizeof(type_))
    arguments = type_.from_buffer(raw)
    arguments.struct_size, arguments.extension_start = known, None
    setattr(arguments, handle, handles[handle])
    call(slot, arguments)
    assert bytes(raw)[known:] == bytes([GUARD]) * (len(raw) - known)


@pytest.mark.parametrize("slot", GETTERS)
def test_every_out_field_is_written(slot: str, handles: dict[str, int]) -> None:
    """JAX does not clear the structs: what is left unwritten would be read as garbage."""
    type_ = structure(f"{slot}_Args")
    results = []
    for guard in (0xAA, 0x55):
        raw = (ctypes.c_uint8 * ctypes.sizeof(type_))(*[guard] * ctypes.sizeof(type_))
        arguments = type_.from_buffer(raw)
        arguments.struct_size, arguments.extension_start = ctypes.sizeof(type_), None
        name = type_._fields_[2][0]
        setattr(arguments, name, handles[name])
        call(slot, arguments)
        fields = (getattr(arguments, field) for field, _ in type_._fields_)
        results.append([bytes(f) if isinstance(f, ctypes.Structure) else f for f in fields])
    if slot == "Device_MemoryStats":  # counts allocations, and Python's own use of memory varies
        assert [f for f in results[0] if isinstance(f, bool)] == [
            f for f in results[1] if isinstance(f, bool)
        ]
    elif slot != "Buffer_GetMemoryLayout":  # has padding inside
        assert results[0] == results[1]


def test_no_slot_is_empty() -> None:
    for name in abi.FUNCTIONS:
        assert getattr(table(), f"PJRT_{name}"), name


@pytest.mark.parametrize("slot", abi.UNIMPLEMENTED)
def test_what_is_missing_says_so(slot: str) -> None:
    type_ = structure(f"{slot}_Args")
    error = CALL(getattr(table(), f"PJRT_{slot}"))(ctypes.addressof(type_()))
    assert error
    code = arguments_of("Error_GetCode", error=error)
    call("Error_GetCode", code)
    assert code.code == 12
    text = arguments_of("Error_Message", error=error)
    call("Error_Message", text)
    assert slot in ctypes.string_at(text.message, text.message_size).decode()
    call("Error_Destroy", arguments_of("Error_Destroy", error=error))
