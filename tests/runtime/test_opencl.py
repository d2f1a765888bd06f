"""OpenCL devices whose memory is coarse-grained: it is the host's or the device's, in turns."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.runtime.test_devices import missing, python
from tinyhlo.codegen.grid.code import DeviceKernel, Dispatch
from tinyhlo.errors import TinyhloError
from tinyhlo.runtime import core
from tinyhlo.runtime.arrays import Words
from tinyhlo.runtime.devices import opencl
from tinyhlo.runtime.devices.device import Device
from tinyhlo.runtime.processors import host_target

INT, WORD, SIZE = ctypes.c_int32, ctypes.c_void_p, ctypes.c_size_t
COARSE = """
from tinyhlo.runtime.devices import opencl
from tests.runtime import device_checks

shares = opencl.shares
opencl.shares = lambda cl, device, how: how != "FINE_GRAIN_BUFFER" and shares(cl, device, how)
device_checks.main("CL")
"""


def test_checks_of_all_devices() -> None:
    if missing("CL"):
        pytest.skip(missing("CL"))
    done = python("-c", COARSE)
    wrong = json.loads(done.stdout.splitlines()[-1])
    assert not any(wrong.values()), wrong


class Driver:
    """Functions of the types that native/opencl.c calls, which write down what they are told."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.alive: list[Any] = []
        event = (ctypes.c_uint32, WORD, WORD)
        types: dict[str, tuple[Any, Sequence[Any]]] = {
            "argument": (INT, (WORD, ctypes.c_uint32, WORD)),
            "launch": (INT, (WORD, WORD, ctypes.c_uint32, WORD, WORD, WORD, *event)),
            "copy": (INT, (WORD, ctypes.c_uint32, WORD, WORD, SIZE, *event)),
            "finish": (INT, (WORD,)),
            "allocate": (WORD, (WORD, ctypes.c_uint64, SIZE, ctypes.c_uint32)),
            "free": (None, (WORD, WORD)),
            "map": (INT, (WORD, ctypes.c_uint32, ctypes.c_uint64, WORD, SIZE, *event)),
            "unmap": (INT, (WORD, WORD, *event)),
        }
        functions = [
            ctypes.CFUNCTYPE(answer, *given)(getattr(self, f"do_{name}"))
            for name, (answer, given) in types.items()
        ]
        words = Words()
        addresses = [ctypes.cast(function, WORD).value for function in functions]
        head = (*[0] * opencl.HEAD_WORDS, 11, 22, 0, 0, True)
        self.struct = words.array([*head, *addresses])
        self.alive += [functions, words]
        core.library().tiny_opencl_open(self.struct.ctypes.data)

    def do_argument(self, *_: Any) -> int:
        return 0

    def do_launch(self, *_: Any) -> int:
        self.calls.append(("launch",))
        return 0

    def do_copy(self, queue: int, blocking: int, to: int, from_: int, *_: Any) -> int:
        self.calls.append(("copy", to, from_))
        return 0

    def do_finish(self, _: int) -> int:
        self.calls.append(("finish",))
        return 0

    def do_allocate(self, context: int, flags: int, size: int, alignment: int) -> int:
        assert not flags & 1 << 10, "fine-grained"
        self.alive.append(ctypes.create_string_buffer(size))
        return ctypes.addressof(self.alive[-1])

    def do_free(self, context: int, block: int) -> None:
        self.calls.append(("free", block))

    def do_map(self, queue: int, blocking: int, flags: int, block: int, *_: Any) -> int:
        assert blocking
        self.calls.append(("map", block))
        return 0

    def do_unmap(self, queue: int, block: int, *_: Any) -> int:
        self.calls.append(("unmap", block))
        return 0

    def call(self, place: int, answer: Any, *given: Any) -> Any:
        """A function of the device's head."""
        types = [ctypes.c_int64 if type(each) is int else type(each) for each in given]
        function = ctypes.CFUNCTYPE(answer, WORD, *types)(int(self.struct[place]))
        return function(self.struct.ctypes.data, *given)


@pytest.mark.parametrize(("is_processor", "most"), [(False, 128), (True, 0)])
def test_how_many_arrays_a_kernel_takes(is_processor: bool, most: int) -> None:
    """The pointers that the driver has room for, where it needs any."""
    said = SimpleNamespace(
        extensions="", global_mem_cache_size=0, max_compute_units=1, max_work_group_size=256,
        local_mem_size=1 << 15, max_parameter_size=1024,
    )  # fmt: skip
    assert opencl.target_of(said, "said", is_processor).arguments == most


def test_who_has_a_block() -> None:
    """The device, from when a kernel takes it until somebody waits; others stay the host's."""
    driver = Driver()
    x, y, z = (driver.call(3, WORD, 4096) for _ in range(3))
    target = host_target(1)
    device = Device("CL", "written down", target, lambda *_: ({}, None), driver.struct)
    library = device.kernel(DeviceKernel((Dispatch("k", 1, 1, (0, 1)),)), {"k": 77}, 1)
    given, taken = ((ctypes.c_void_p * 1)(place) for place in (x + 64, y))

    def launch() -> int:
        return core.library().tiny_library_call(library.descriptor.ctypes.data, given, taken)

    assert launch() == launch() == 0
    assert core.library().tiny_device_copy(driver.struct.ctypes.data, y + 128, x, 64) == 0
    assert core.library().tiny_device_wait(driver.struct.ctypes.data) == 0
    assert launch() == 0
    driver.call(4, None, WORD(z))
    first, last = sorted((x, y))
    assert driver.calls == [
        *(("map", block) for block in (x, y, z)),
        *(("unmap", x), ("unmap", y), ("launch",), ("launch",), ("copy", y + 128, x)),
        *(("finish",), ("map", first), ("map", last)),
        *(("unmap", x), ("unmap", y), ("launch",)),
        *(("unmap", z), ("finish",), ("free", z)),
    ]
    for block in (x, y):
        driver.call(4, None, WORD(block))


def test_a_driver_that_cannot_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of the extra cl-cpu, where the cache's folder is none."""
    driver = SimpleNamespace(name=opencl.INTEL, locate=lambda: tmp_path / opencl.INTEL)
    monkeypatch.setenv(opencl.VENDORS, "")  # what is set here ends with the test
    monkeypatch.delenv(opencl.VENDORS)
    monkeypatch.setattr(opencl, "SYSTEM_VENDORS", tmp_path)
    monkeypatch.setattr(opencl.metadata, "files", lambda _: [driver])
    (tmp_path / "file").touch()
    monkeypatch.setenv("TINYHLO_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(TinyhloError, match="set TINYHLO_CACHE_DIR"):
        opencl.name_intel_runtime()
    monkeypatch.setenv("TINYHLO_CACHE_DIR", str(tmp_path / "cache"))
    opencl.name_intel_runtime()
    (names,) = Path(os.environ[opencl.VENDORS]).iterdir()
    assert names.read_text() == f"{tmp_path / opencl.INTEL}\n"
