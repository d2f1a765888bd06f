"""Metal devices, the GPUs of Macs, by the runtime of Objective-C: no package is needed.

In: the number of a GPU. Out: its `Device`.

Buffers are shared storage, which the device reads and writes where it lies; it has its own pointers
to it, so native/metal.c translates those of the host. Metal keeps what it has compiled in a cache
of its own.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from ctypes.util import find_library
from typing import Any

from tinyhlo.codegen.grid.code import DeviceCode
from tinyhlo.config import Config
from tinyhlo.errors import TinyhloError
from tinyhlo.runtime import core
from tinyhlo.runtime.arrays import Words
from tinyhlo.runtime.devices.device import HEAD_WORDS, Device, Functions, label_of, name_of, refused
from tinyhlo.target import DATA_LOOPS, Target

WORD, TEXT, FLAG = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_bool
NUMBER, SIGNED = ctypes.c_uint64, ctypes.c_int64  # NSUInteger, NSInteger

METAL_3 = 5001  # MTLGPUFamilyMetal3: macOS 13, devices whose buffers say where they lie
SAFE = 0  # MTLMathModeSafe
GROUP_ITEMS = 1024  # of all devices with Metal 3
ARGUMENTS = 512  # words of a struct, as native/metal.c has it too
CORES = 10  # Metal does not say; of an M1 to M4, 8 to 10

# what follows the state, the device, the queue and the pipelines in native/metal.c's struct
FUNCTIONS = (
    "objc_msgSend",
    "sel_registerName",
    "objc_autoreleasePoolPush",
    "objc_autoreleasePoolPop",
)
STATE_WORDS = 1

COPIES = """
#include <metal_stdlib>
using namespace metal;
struct Bytes { device const uchar* from; device uchar* to; ulong count; };
struct Wide { device const uint4* from; device uint4* to; ulong count; };
kernel void copy_bytes(
    constant Bytes& given [[buffer(0)]], uint group [[threadgroup_position_in_grid]],
    uint item [[thread_position_in_threadgroup]]) {
  ulong k = (ulong)group * 256 + item;
  if (k < given.count) given.to[k] = given.from[k];
}
kernel void copy_wide(
    constant Wide& given [[buffer(0)]], uint group [[threadgroup_position_in_grid]],
    uint item [[thread_position_in_threadgroup]]) {
  ulong k = (ulong)group * 256 + item;
  if (k < given.count) given.to[k] = given.from[k];
}
"""


class Objc:
    """Messages to objects of Objective-C, which are addresses."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        for name, given, answer in (
            ("sel_registerName", (TEXT,), WORD),
            ("objc_getClass", (TEXT,), WORD),
            ("objc_autoreleasePoolPush", (), WORD),
            ("objc_autoreleasePoolPop", (WORD,), None),
            ("MTLCopyAllDevices", (), WORD),
        ):
            function = getattr(library, name)
            function.argtypes, function.restype = given, answer

    def send(self, to: int | None, selector: str, *given: Any, answer: Any = WORD) -> Any:
        """What the object answers. The function that answers is called by its own types, so
        arguments are of ctypes."""
        types = (WORD, WORD, *map(type, given))
        call = ctypes.CFUNCTYPE(answer, *types)(self.address("objc_msgSend"))
        return call(to, self.library.sel_registerName(selector.encode()), *given)

    def new(self, name: str, selector: str = "new", *given: Any) -> int:
        """What a class makes."""
        return self.send(self.library.objc_getClass(name.encode()), selector, *given)

    def text(self, string: int | None) -> str:
        """Of an NSString."""
        return (self.send(string, "UTF8String", answer=TEXT) or b"").decode(errors="replace")

    def understands(self, to: int, selector: str) -> bool:
        name = WORD(self.library.sel_registerName(selector.encode()))
        return self.send(to, "respondsToSelector:", name, answer=FLAG)

    def address(self, function: str) -> int:
        return core.address_of(getattr(self.library, function))

    @contextmanager
    def pool(self) -> Generator[None, None, None]:
        """What messages answer lives until its end, unless it is retained."""
        pool = self.library.objc_autoreleasePoolPush()
        try:
            yield
        finally:
            self.library.objc_autoreleasePoolPop(pool)


class Owned:
    """An object that is released with this."""

    def __init__(self, objc: Objc, address: int) -> None:
        self.address = address
        weakref.finalize(self, objc.send, address, "release", answer=None).atexit = False


@functools.cache
def loaded() -> Objc:
    """Raises TinyhloError where there is no Metal."""
    path = find_library("Metal")
    if path is None:
        raise TinyhloError("device METAL: there is no Metal here, which is Apple's: it needs a Mac")
    return Objc(ctypes.CDLL(path))


def devices(objc: Objc) -> list[int]:
    """All devices, for good."""
    array = objc.library.MTLCopyAllDevices()
    count = objc.send(array, "count", answer=NUMBER)
    return [objc.send(array, "objectAtIndex:", NUMBER(k)) for k in range(count)]


def names() -> list[str]:
    """What Metal calls the devices. Raises TinyhloError without Metal, or any device."""
    objc = loaded()
    with objc.pool():
        found = [objc.text(objc.send(device, "name")) for device in devices(objc)]
    if not found:
        raise TinyhloError("device METAL: Metal finds no GPU")
    return found


def open_device(number: int) -> Device:
    """Raises TinyhloError when there is no such device, or it is too old."""
    objc, name = loaded(), name_of("Metal", names(), number)
    with objc.pool():
        device = devices(objc)[number]
        if not objc.send(device, "supportsFamily:", SIGNED(METAL_3), answer=FLAG):
            raise TinyhloError(
                f"the Metal device {name} is too old: tinyhlo needs Metal 3 (macOS 13 and "
                "an Apple M1, or newer)"
            )
        queue = objc.send(device, "newCommandQueue")
        target = target_of(objc, device, name)
        copies = built(objc, device, COPIES, ["copy_wide", "copy_bytes"], name)
    words = Words()
    struct = words.array(
        [
            *[0] * (HEAD_WORDS + STATE_WORDS),
            *(device, queue, *(pipeline.address for pipeline in copies)),
            *(objc.address(each) for each in FUNCTIONS),
        ]
    )
    if not core.library().tiny_metal_open(struct.ctypes.data):
        raise TinyhloError("device METAL: there is no memory left")

    def build(code: DeviceCode, config: Config) -> tuple[Functions, Any]:
        symbols = code.dispatches
        with objc.pool():
            pipelines = built(objc, device, code.source, symbols, name)
        return {s: p.address for s, p in zip(symbols, pipelines, strict=True)}, pipelines

    label = label_of("METAL", number)
    return Device(label, name, target, build, struct, (objc, copies, words))


def target_of(objc: Objc, device: int, name: str) -> Target:
    """What Metal says of the device, and what all of them have."""
    return Target(
        device="METAL",
        cpu=name,
        features=DATA_LOOPS,
        vector_registers=128,
        l1_bytes=16 << 10,
        l2_bytes=4 << 20,
        l3_bytes=8 << 20,
        threads=CORES,
        group_items=GROUP_ITEMS,
        group_bytes=objc.send(device, "maxThreadgroupMemoryLength", answer=NUMBER),
        arguments=ARGUMENTS,
    )


def built(
    objc: Objc, device: int, source: str, symbols: Iterable[str], name: str
) -> tuple[Owned, ...]:
    """The pipelines of functions in source text, in their order.

    Raises TinyhloError with what Metal's compiler says.
    """
    error = WORD()
    given = source.encode()
    text = objc.new("NSString", "stringWithUTF8String:", TEXT(given))
    options = Owned(objc, objc.new("MTLCompileOptions"))
    # Not a number is one that is asked for, and sums keep their order.
    if objc.understands(options.address, "setMathMode:"):  # macOS 15
        objc.send(options.address, "setMathMode:", SIGNED(SAFE), answer=None)
    else:
        objc.send(options.address, "setFastMathEnabled:", FLAG(False), answer=None)
    library = objc.send(
        device, "newLibraryWithSource:options:error:", WORD(text), WORD(options.address),
        ctypes.pointer(error),
    )  # fmt: skip
    if not library:
        raise refusal(objc, name, error)
    owned = Owned(objc, library)
    pipelines: list[Owned] = []
    for symbol in symbols:
        text = objc.new("NSString", "stringWithUTF8String:", TEXT(symbol.encode()))
        function = Owned(objc, objc.send(owned.address, "newFunctionWithName:", WORD(text)))
        pipeline = objc.send(
            device, "newComputePipelineStateWithFunction:error:", WORD(function.address),
            ctypes.pointer(error),
        )  # fmt: skip
        if not pipeline:
            raise refusal(objc, name, error)
        pipelines.append(Owned(objc, pipeline))
    return tuple(pipelines)


def refusal(objc: Objc, name: str, error: ctypes.c_void_p) -> TinyhloError:
    log = objc.text(objc.send(error.value, "localizedDescription"))
    return refused(f"the Metal device {name} refuses its code", log)
