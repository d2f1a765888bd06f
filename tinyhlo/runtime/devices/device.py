"""The device of this process, which runs kernels over memory of its own, the host's too or not.

    device = open_device("CL")          # "CL:1": the second OpenCL device
    device.target                       # what the code generator asks
    functions = device.build(code, config)
    device.kernel(device_kernel, functions, 2)     # its descriptor: a Library

What a device does for generated code is in native/device.h. All buffers of a process lie in one
memory, so a process has one device; which one, the first program says.
"""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tinyhlo.codegen.grid.code import DeviceCode, DeviceKernel
from tinyhlo.config import Config
from tinyhlo.devices import DEVICES, kind_of
from tinyhlo.errors import TinyhloError
from tinyhlo.once import once
from tinyhlo.records import dataclass
from tinyhlo.runtime import core
from tinyhlo.runtime.arrays import Words
from tinyhlo.runtime.library import Library
from tinyhlo.target import Target

Functions = Mapping[str, int]  # handles of the driver by symbol
Build = Callable[[DeviceCode, Config], tuple[Functions, Any]]

HEAD_WORDS = 13  # of a TinyDevice, which native code fills in
LOG_LINES = 12  # of a failed build
# What is recorded of a program's calls together, as far as more than the fewest are kept. Where
# nobody waits, a loss has one of 4 places and a state one of 5: 20 ways in which both lie.
MOST_TOGETHER, FEWEST_CALLS, MOST_CALLS = 4096, 4, 40


@dataclass(frozen=True, eq=False, slots=True)
class Device:
    """`label`: as users ask for it, `name`: as its driver calls it, `words`: its TinyDevice.
    `build` makes functions of a program's code; what it returns beside them keeps them alive.
    `replays`: its calls can be recorded as graphs."""

    label: str
    name: str
    target: Target
    build: Build = field(repr=False)
    words: np.ndarray = field(repr=False)
    keepalive: Any = field(default=None, repr=False)
    replays: bool = False

    def kernel(self, kernel: DeviceKernel, functions: Functions, input_count: int) -> Library:
        """The descriptor of a kernel that reads so many buffers (TinyDeviceKernel)."""
        words = Words()
        dispatches = [
            word
            for each in kernel.dispatches
            for word in (
                *(functions[each.symbol], each.groups, each.items, len(each.arguments)),
                *(words.address(each.arguments), each.last_start),
            )
        ]
        descriptor = words.array(
            [
                *(core.address("tiny_device_launch"), self.words.ctypes.data, input_count),
                *(len(kernel.dispatches), words.address(dispatches)),
            ]
        )
        return Library(descriptor, words)

    def graphs(self, input_count: int, output_count: int, queued: int, code: Any) -> Library:
        """The descriptor of what is recorded of a program's calls (TinyGraphs), each of which puts
        so much into the queue. It is forgotten with the program, before `code` may be unloaded."""
        kept = min(max(MOST_TOGETHER // queued, FEWEST_CALLS), MOST_CALLS)
        words = np.array([self.words.ctypes.data, input_count, output_count, kept, 0], np.int64)
        return Library(words, Graphs(words, (self, code)))


class Graphs:
    """Forgets what is recorded at `words` with this; what it needs lives until then."""

    def __init__(self, words: np.ndarray, alive: Any) -> None:
        # not at exit: other threads may be in the program
        weakref.finalize(self, forget, words, alive).atexit = False


def forget(words: np.ndarray, _: Any) -> None:
    """What is recorded of a program, before others of its parts are taken off the device."""
    core.library().tiny_graphs_free(words.ctypes.data)


def label_of(kind: str, number: int) -> str:
    """How users ask for a device."""
    return f"{kind}:{number}" if number else kind


def name_of(api: str, names: Sequence[str], number: int) -> str:
    """Raises TinyhloError when there is no such device."""
    if number >= len(names):
        raise TinyhloError(f"there is no {api} device {number}; there are: {', '.join(names)}")
    return names[number]


def refused(what: str, log: str) -> TinyhloError:
    """What a compiler says of source text."""
    return TinyhloError("\n".join([f"{what}:", *log.strip("\0\n ").splitlines()[:LOG_LINES]]))


def available() -> list[tuple[str, str]]:
    """(label, name) of every device beside the host; what is missing instead of a name."""
    found: list[tuple[str, str]] = []
    for label, kind in DEVICES.items():
        if not kind.home:
            continue
        try:
            names = importlib.import_module(kind.home).names()
        except TinyhloError as error:
            found.append((label, str(error)))
        else:
            found += [(label_of(label, number), name) for number, name in enumerate(names)]
    return found


@once
def open_named(name: str) -> Any:
    """A Device, or a WebDevice; its `target` is what the code generator asks."""
    number = name.partition(":")[2]
    return importlib.import_module(kind_of(name).home).open_device(int(number or 0))


def open_device(name: str) -> Device:
    """The device, whose memory is that of all buffers from now on.

    Raises TinyhloError when there is none, or this process has another one or arrays elsewhere.
    """
    device = open_named(name)
    if not core.library().tiny_install_device(device.words.ctypes.data):
        raise TinyhloError(
            f"device {name} cannot be opened any more: the arrays of this process lie in other "
            f"memory. A process has one device, which TINYHLO_DEVICE={name} names at its start"
        )
    return device
