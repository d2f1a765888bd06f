"""What CUDA and HIP have in common: streams of work, memory apart, modules of machine code.

In: what a driver says, and its functions. Out: a `Device` over native/stream.c.

Buffers lie in the device's own memory, which the host reads and writes by copies.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tinyhlo.codegen.grid.code import Dispatch
from tinyhlo.records import dataclass
from tinyhlo.runtime import core
from tinyhlo.runtime.arrays import Words
from tinyhlo.runtime.devices.device import HEAD_WORDS, Build, Device, Functions
from tinyhlo.target import APART, DATA_LOOPS, FP64, WARPS, WIDE_LOADS, Target

FEATURES = " ".join((FP64, WARPS, WIDE_LOADS, DATA_LOOPS, APART))
Attribute = Callable[[str], int]  # what a driver says of a device, by CUDA's names
RECORDING_WORDS = 7


@dataclass(frozen=True, slots=True)
class Recording:
    """A stream that records, and the driver's functions for graphs as native/stream.c has them."""

    stream: int
    functions: Sequence[Any]

    @property
    def words(self) -> list[int]:
        return [self.stream, *map(core.address_of, self.functions)]


def target_of(
    device: str, architecture: str, matrices: str, registers: int, attribute: Attribute
) -> Target:
    """What the driver says of the device; `matrices` is its instruction for them, if any."""
    return Target(
        device=device,
        cpu=architecture,
        features=f"{FEATURES} {matrices}".strip(),
        vector_registers=registers,
        l1_bytes=attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        l2_bytes=attribute("L2_CACHE_SIZE"),
        l3_bytes=attribute("L2_CACHE_SIZE"),
        threads=attribute("MULTIPROCESSOR_COUNT"),
        group_items=attribute("MAX_THREADS_PER_BLOCK"),
        group_bytes=attribute("MAX_SHARED_MEMORY_PER_BLOCK"),
    )


def called(handles: Mapping[str, int], calls: Mapping[str, Dispatch]) -> tuple[Functions, Words]:
    """Functions as native/stream.c takes them, and what keeps them alive."""
    words = Words()
    found = {
        symbol: words.address([handle, calls[symbol].asked_bytes])
        for symbol, handle in handles.items()
    }
    return found, words


class Module:
    """Machine code that a driver has loaded onto a device: `unload` takes it off with this."""

    def __init__(self, handle: Any, unload: Callable[[Any], Any], device: Device) -> None:
        self.handle = handle
        # not at exit: other threads may be in the code, and the driver unloads everything itself
        weakref.finalize(self, unload_idle, handle, unload, device).atexit = False


def unload_idle(handle: Any, unload: Callable[[Any], Any], device: Device) -> None:
    """Unload a module after what is in the queue, which may need it. A forked child leaves it to
    its parent, and after an error of the device there is nothing left to unload."""
    if not core.library().tiny_device_wait(device.words.ctypes.data):
        unload(handle)


def stream_device(
    api: str,
    label: str,
    name: str,
    target: Target,
    build: Build,
    memory_bytes: int,
    handles: tuple[int, int],
    functions: Sequence[Any],
    keepalive: Any,
    recording: Recording | None = None,
) -> Device:
    """`memory_bytes`: what the device has; `handles`: the context and a stream; `functions` of the
    driver, as native/stream.c lists them, and those for `recording`, if it has them."""
    words = Words()
    text = ctypes.c_char_p(api.encode())
    addresses = map(core.address_of, (text, *functions))
    head = [*[0] * HEAD_WORDS, next(addresses), memory_bytes]
    graphs = recording.words if recording else [0] * RECORDING_WORDS
    struct = words.array([*head, *handles, *addresses, *graphs])
    core.library().tiny_stream_open(struct.ctypes.data)
    alive = (words, text, functions, recording, keepalive)
    return Device(label, name, target, build, struct, alive, recording is not None)
