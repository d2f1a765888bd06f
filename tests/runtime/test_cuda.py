"""CUDA without a GPU: NVRTC compiles the code for one, and the C core calls a driver's functions
as it must. `test_devices.py` runs it, on a GPU or an emulated one."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runtime.device_checks import AFFINE, RELEASES, source
from tinyhlo.codegen.grid.code import DeviceKernel, Dispatch
from tinyhlo.codegen.grid.render import device_code
from tinyhlo.codegen.render import kernels_of
from tinyhlo.config import Config
from tinyhlo.errors import TinyhloError
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.simplify import simplify
from tinyhlo.runtime import core
from tinyhlo.runtime.arrays import pointers
from tinyhlo.runtime.devices import cuda
from tinyhlo.runtime.devices.stream import Recording, called, stream_device
from tinyhlo.schedule import schedule

H200 = {
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "COMPUTE_CAPABILITY_MINOR": 0,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 233472,
    "MAX_SHARED_MEMORY_PER_BLOCK": 49152,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
    "MAX_THREADS_PER_BLOCK": 1024,
    "MULTIPROCESSOR_COUNT": 132,
    "L2_CACHE_SIZE": 60 << 20,
}
TARGET = cuda.target_of(H200.__getitem__)
ELF = b"\x7fELF"

SUMS = """
func.func @main(%x: tensor<64x1000xf32>, %w: tensor<1000x32xf32>) -> (tensor<64xf32>, tensor<64x32xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %e = stablehlo.tanh %x : tensor<64x1000xf32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<64x1000xf32>, tensor<f32>) -> tensor<64xf32>
  %d = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<64x1000xf32>, tensor<1000x32xf32>) -> tensor<64x32xf32>
  return %s, %d : tensor<64xf32>, tensor<64x32xf32>
}"""  # noqa: E501


@pytest.fixture(scope="module")
def nvrtc() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    try:
        cuda.cubin("", "sm_90", Config(cache=0))
    except Exception as error:
        pytest.skip(f"no NVRTC: {error}")


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize("text", [AFFINE, SUMS])
def test_generated_code_compiles(text: str) -> None:
    module = import_module(text)
    program = schedule(simplify(module.graph), "main", (), TARGET)
    source = device_code(kernels_of(program.body), TARGET).source
    assert cuda.cubin(source, TARGET.cpu, Config(cache=0)).startswith(ELF)


@pytest.mark.usefixtures("nvrtc")
def test_code_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import nvrtc

    config = Config(cache_dir=str(tmp_path))
    first = cuda.cubin(source("NV"), "sm_80", config)
    monkeypatch.delattr(nvrtc, "nvrtcCompileProgram")
    assert cuda.cubin(source("NV"), "sm_80", config) == first


@pytest.mark.usefixtures("nvrtc")
def test_errors_of_build() -> None:
    with pytest.raises(TinyhloError, match='identifier "nonsense" is undefined'):
        cuda.cubin('extern "C" __global__ void f() { nonsense; }', "sm_90", Config(cache=0))


def test_no_driver() -> None:
    """One sentence, with what to install."""
    try:
        cuda.names()
    except TinyhloError as error:
        assert "pip install 'tinyhlo[nv]'" in str(error)


# --- the C core over a driver that writes down how it is called ----------------------------------

INT, WORD, TEXT = ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p
NO_SUCH_FUNCTION = 98


class Driver:
    """Functions of the types that native/stream.c calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        types: dict[str, Sequence[Any]] = {
            "name": (INT, ctypes.POINTER(TEXT)),
            "current": (WORD,),
            "launch": (WORD, *[ctypes.c_uint32] * 7, WORD, ctypes.POINTER(WORD), WORD),
            "copy": (WORD, WORD, ctypes.c_size_t, WORD),
            "put": (WORD, WORD, ctypes.c_size_t, WORD),
            "get": (WORD, WORD, ctypes.c_size_t, WORD),
            "wait": (WORD,),
            "allocate": (ctypes.POINTER(WORD), ctypes.c_size_t),
            "free": (WORD,),
        }
        for_graphs: dict[str, Sequence[Any]] = {
            "begin": (WORD, INT),
            "end": (WORD, ctypes.POINTER(WORD)),
            "instantiate": (ctypes.POINTER(WORD), WORD, ctypes.c_ulonglong),
            "replay": (WORD, WORD),
            "destroy": (WORD,),
            "destroy_graph": (WORD,),
        }
        self.functions, recording = (
            [ctypes.CFUNCTYPE(INT, *given)(getattr(self, name)) for name, given in each.items()]
            for each in (types, for_graphs)
        )
        self.device = stream_device(
            "CUDA",
            "NV",
            "written down",
            TARGET,
            lambda *_: ({}, None),
            1 << 30,
            (11, 22),
            self.functions,
            None,
            Recording(33, recording),
        )

    def name(self, _: int, text: Any) -> int:
        text[0] = b"CUDA_ERROR_MADE_UP"
        return 0

    def current(self, context: int) -> int:
        self.calls.append(("current", context))
        return 0

    def launch(self, function: int, *rest: Any) -> int:
        groups, items, (shared, stream, parameters) = rest[:3], rest[3:6], rest[6:9]
        given = [ctypes.cast(parameters[k], ctypes.POINTER(WORD))[0] for k in range(2)]
        self.calls.append(("launch", function, groups, items, shared, stream, given))
        return 500 if function == NO_SUCH_FUNCTION else 0

    def copy(self, to: int, from_: int, count: int, stream: int) -> int:
        self.calls.append(("copy", to, from_, count, stream))
        return 0

    def put(self, to: int, from_: int, count: int, stream: int) -> int:
        self.calls.append(("put", to, from_, count, stream))
        return 0

    def get(self, to: int, from_: int, count: int, stream: int) -> int:
        self.calls.append(("get", to, from_, count, stream))
        return 0

    def wait(self, stream: int) -> int:
        self.calls.append(("wait", stream))
        return 0

    def allocate(self, *_: Any) -> int:
        return 2

    def free(self, _: int) -> int:
        return 0

    def begin(self, stream: int, mode: int) -> int:
        self.calls.append(("begin", stream, mode))
        return 0

    def end(self, stream: int, graph: Any) -> int:
        self.calls.append(("end", stream))
        graph[0] = 44
        return 0

    def instantiate(self, executable: Any, graph: int, flags: int) -> int:
        self.calls.append(("instantiate", graph, flags))
        executable[0] = 55
        return 0

    def replay(self, executable: int, stream: int) -> int:
        self.calls.append(("replay", executable, stream))
        return 0

    def destroy(self, executable: int) -> int:
        self.calls.append(("destroy", executable))
        return 0

    def destroy_graph(self, graph: int) -> int:
        self.calls.append(("destroy graph", graph))
        return 0


def launched(driver: Driver, function: int, last_start: int = 0) -> tuple[int, list[int]]:
    """The status of a launch, and the addresses given to it."""
    call = Dispatch("k", 3, 64, (0, 1), asked_bytes=70000, last_start=last_start)
    functions, words = called({"k": function}, {"k": call})
    library = driver.device.kernel(DeviceKernel((call,)), functions, 1)
    assert words.alive
    x, y = np.zeros(4), np.zeros(4)
    run = core.library().tiny_library_call
    status = run(library.descriptor.ctypes.data, pointers([x]), pointers([y]))
    return status, [x.ctypes.data, y.ctypes.data]


def test_a_launch() -> None:
    driver = Driver()
    status, given = launched(driver, 77)
    assert status == 0
    expected = ("launch", 77, (3, 1, 1), (64, 1, 1), 70000, 22, given)
    assert driver.calls == [("current", 11), expected]


def test_an_argument_that_begins_further_on() -> None:
    driver = Driver()
    status, (x, y) = launched(driver, 77, last_start=24)
    assert status == 0 and driver.calls[-1][-1] == [x, y + 24]


def test_a_launch_that_fails() -> None:
    """It waits for what is in the queue, and the driver's name for it is in the error."""
    driver = Driver()
    status, _ = launched(driver, NO_SUCH_FUNCTION)
    assert status and driver.calls[-1] == ("wait", 22)
    assert core.last_error() == "a launch of the CUDA device failed: CUDA_ERROR_MADE_UP (500)"


def test_a_copy_and_a_wait() -> None:
    driver = Driver()
    address = driver.device.words.ctypes.data
    assert core.library().tiny_device_copy(address, 1000, 2000, 8) == 0
    assert core.library().tiny_device_copy(address, 1000, 1000, 8) == 0  # nothing to do
    assert core.library().tiny_device_wait(address) == 0
    assert core.library().tiny_device_read(address, 3000, 1000, 1) == 0  # waits once it is queued
    assert [call for call in driver.calls if call[0] != "current"] == [
        ("copy", 1000, 2000, 8, 22),
        ("wait", 22),
        ("get", 3000, 1000, 1, 22),
        ("wait", 22),
    ]


RECORDED = [
    *(("begin", 33, 1), ("copy", 1000, 2000, 8, 33), ("end", 33)),
    *(("instantiate", 44, 0), ("destroy graph", 44)),
]
REPLAYED = [("replay", 55, 22), ("wait", 22)]
FORGOTTEN = [("wait", 22), ("destroy", 55)]
PROGRAM = ctypes.CFUNCTYPE(INT, *[ctypes.POINTER(WORD)] * 2, WORD, ctypes.POINTER(WORD))


def called_three_times(
    driver: Driver, program: Any, releases: int = 0
) -> list[list[tuple[Any, ...]]]:
    """What the driver is asked in three calls of a program with the same pointers, and when what is
    recorded is forgotten; so much memory goes back to it before each call."""
    library, pointer = core.library(), pointers([np.zeros(1)])
    graphs = driver.device.graphs(1, 1, 3, None).descriptor.ctypes.data
    asked: list[list[tuple[Any, ...]]] = []
    run = PROGRAM(program)
    for _ in range(3):
        driver.device.words[RELEASES] += releases
        given = (core.address_of(run), pointer, pointer, 1000, pointer)
        assert library.tiny_graph_call(graphs, *given) == 0
        asked.append([call for call in driver.calls if call[0] != "current"])
        driver.calls.clear()
    library.tiny_graphs_free(graphs)
    return [*asked, [call for call in driver.calls if call[0] != "current"]]


def test_a_graph() -> None:
    """What comes again is recorded by a second stream, and replayed in the first."""
    driver = Driver()
    device = driver.device.words.ctypes.data
    asked = called_three_times(
        driver, lambda *_: core.library().tiny_device_copy(device, 1000, 2000, 8)
    )
    assert asked == [
        [("copy", 1000, 2000, 8, 22), ("wait", 22)],
        [*RECORDED, *REPLAYED],
        REPLAYED,
        FORGOTTEN,
    ]


def test_a_graph_of_other_memory() -> None:
    """The driver had memory back, and may give the same address to other memory."""
    driver = Driver()
    device = driver.device.words.ctypes.data
    asked = called_three_times(
        driver, lambda *_: core.library().tiny_device_copy(device, 1000, 2000, 8), releases=1
    )
    assert asked[1:] == [
        [*RECORDED, *REPLAYED],
        [*FORGOTTEN, *RECORDED, *REPLAYED],
        FORGOTTEN,
    ]


def test_no_graph_where_the_host_looks() -> None:
    """A program that was taken for another is not recorded: it runs as before."""
    driver = Driver()
    device = driver.device.words.ctypes.data
    asked = called_three_times(
        driver, lambda *_: core.library().tiny_device_read(device, 3000, 1000, 1)
    )
    alone = [("get", 3000, 1000, 1, 22), ("wait", 22), ("wait", 22)]
    ended = [("begin", 33, 1), ("end", 33), ("destroy graph", 44)]
    assert asked == [alone, [*ended, *alone], alone, []]
