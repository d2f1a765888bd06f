"""Arrays whose bytes come in parts, from another thread or process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.pjrt_plugin.mirror import structure
from tests.pjrt_plugin.test_struct_size import CALL, arguments_of, call, first_place, table
from tinyhlo.pjrt_plugin import abi

MANAGER = "AsyncHostToDeviceTransferManager"
SHAPE = 2, 3
VALUES = np.arange(6, dtype=np.float32)


def refused(slot: str, arguments: ctypes.Structure) -> str:
    """What a function says that fails."""
    error = CALL(getattr(table(), f"PJRT_{slot}"))(ctypes.addressof(arguments))
    assert error
    message = arguments_of("Error_Message", error=error)
    call("Error_Message", message)
    text = ctypes.string_at(message.message, message.message_size).decode()
    call("Error_Destroy", arguments_of("Error_Destroy", error=error))
    return text


def part(manager: int, array: int, first: int, end: int, last: bool) -> ctypes.Structure:
    """Some of VALUES for an array."""
    return arguments_of(
        f"{MANAGER}_TransferData",
        transfer_manager=manager,
        buffer_index=array,
        data=VALUES.ctypes.data + 4 * first,
        offset=4 * first,
        transfer_size=4 * (end - first),
        is_last_transfer=last,
    )


def handed_out(manager: int, array: int) -> tuple[int, int]:
    """A buffer and its event."""
    given = arguments_of(f"{MANAGER}_RetrieveBuffer", transfer_manager=manager, buffer_index=array)
    call(f"{MANAGER}_RetrieveBuffer", given)
    ready = arguments_of("Buffer_ReadyEvent", buffer=given.buffer_out)
    call("Buffer_ReadyEvent", ready)
    return given.buffer_out, ready.event


def is_ready(event: int) -> bool:
    asked = arguments_of("Event_IsReady", event=event)
    call("Event_IsReady", asked)
    return asked.is_ready


@pytest.fixture
def manager() -> Iterator[int]:
    """Of three arrays."""
    client, _, memory = first_place()
    dims, spec = (ctypes.c_int64 * 2)(*SHAPE), structure("ShapeSpec")
    fields = {"dims": ctypes.addressof(dims), "num_dims": 2}
    one = spec(ctypes.sizeof(spec), element_type=abi.ELEMENT_TYPES["f32"][0], **fields)
    specs = (spec * 3)(one, one, one)
    made = arguments_of(
        "Client_CreateBuffersForAsyncHostToDevice",
        client=client,
        shape_specs=ctypes.addressof(specs),
        num_shape_specs=3,
        memory=memory,
    )
    call("Client_CreateBuffersForAsyncHostToDevice", made)
    yield made.transfer_manager
    call("Client_Destroy", arguments_of("Client_Destroy", client=client))


def destroy(manager: int) -> None:
    call(f"{MANAGER}_Destroy", arguments_of(f"{MANAGER}_Destroy", transfer_manager=manager))


def test_an_array_is_ready_when_its_last_part_has_come(manager: int) -> None:
    buffer, event = handed_out(manager, 0)
    call(f"{MANAGER}_TransferData", part(manager, 0, 4, 6, last=False))
    assert not is_ready(event)
    call(f"{MANAGER}_TransferData", part(manager, 0, 0, 4, last=True))
    assert is_ready(event)
    found = np.zeros(6, np.float32)
    read = arguments_of("Buffer_ToHostBuffer", src=buffer, dst=found.ctypes.data, dst_size=24)
    call("Buffer_ToHostBuffer", read)
    np.testing.assert_array_equal(found, VALUES)
    destroy(manager)


def test_what_cannot_be_is_refused(manager: int) -> None:
    handed_out(manager, 0)
    call(f"{MANAGER}_TransferData", part(manager, 0, 0, 6, last=True))
    assert "before" in refused(f"{MANAGER}_TransferData", part(manager, 0, 0, 1, last=True))
    assert "of 24" in refused(f"{MANAGER}_TransferData", part(manager, 1, 3, 7, last=False))
    assert "no array 3" in refused(f"{MANAGER}_TransferData", part(manager, 3, 0, 1, last=False))
    again = arguments_of(f"{MANAGER}_RetrieveBuffer", transfer_manager=manager, buffer_index=0)
    assert "before" in refused(f"{MANAGER}_RetrieveBuffer", again)
    destroy(manager)


def test_who_waits_hears_of_errors(manager: int) -> None:
    (_, failed), (_, given_up) = handed_out(manager, 1), handed_out(manager, 2)
    text = ctypes.c_char_p(b"the peer is gone")
    error = arguments_of(
        f"{MANAGER}_SetBufferError",
        transfer_manager=manager,
        buffer_index=1,
        error_code=14,
        error_message=ctypes.cast(text, ctypes.c_void_p).value,
        error_message_size=16,
    )
    call(f"{MANAGER}_SetBufferError", error)
    destroy(manager)
    for event, said in (failed, "the peer is gone"), (given_up, "given up"):
        assert said in refused("Event_Await", arguments_of("Event_Await", event=event))


PULLED = """
    import time, jax, numpy as np
    from jax.experimental import transfer
    device = jax.devices()[0]
    place = jax.sharding.SingleDeviceSharding(device)
    local = "127.0.0.1:0", ["127.0.0.1:0"]
    giver, taker = (transfer.start_transfer_server(device.client, *local) for _ in range(2))
    shape = jax.ShapeDtypeStruct((300, 300), "f4", sharding=place)
    (x,) = taker.connect(giver.address()).pull(1, [shape])
    y = jax.jit(lambda x: x * 2 + 1)(x)
"""


def test_programs_wait_for_arrays_that_are_to_come(python: Callable[..., str]) -> None:
    program = """
    time.sleep(0.2)
    print(y.is_ready())
    giver.await_pull(1, [jax.numpy.full((300, 300), 3.0)])
    print(np.asarray(y).min(), np.asarray(y).max())
    """
    assert python(PULLED + program) == "False\n7.0 7.0\n"


def test_a_process_ends_though_an_array_has_not_come(python: Callable[..., str]) -> None:
    assert python(PULLED) == ""
