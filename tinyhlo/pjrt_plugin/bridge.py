"""Compiling for the C plugin, which enters Python here alone.

In: a program and its options as bytes, from C. Out: the address of a C executable that runs without
Python, or an error left with `tiny_set_error`.

`install()` hands the function over, once; `api()` gives the address of the PJRT_Api table.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import hashlib
import os
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tinyhlo import config
from tinyhlo.collector import lasting
from tinyhlo.devices import kind_of
from tinyhlo.errors import (
    OutOfMemory,
    TinyhloError,
    UnsupportedItem,
    UnsupportedOp,
    VerificationError,
)
from tinyhlo.pjrt_plugin import abi, options
from tinyhlo.placement import HERE, Placement, placement_of
from tinyhlo.runtime import core
from tinyhlo.runtime.executable import Executable
from tinyhlo.runtime.functions import pointer_of
from tinyhlo.signature import Signature
from tinyhlo.version import VERSION

if TYPE_CHECKING:
    from tinyhlo.runtime.devices.device import Device

Number = TypeVar("Number", ctypes.c_uint32, ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p)

COUNTS = ("device", "partition", "input", "output", "alias", "donor", "constant")
ARRAYS = (
    *("devices", "partitions", "types", "ranks", "memories", "dims", "orders"),
    *("aliases", "donors", "constants"),
)
BYTES = ("program", "shown", "assignment", "options", "stored")  # with their lengths


class Spec(ctypes.Structure):
    """Mirror of ExecutableSpec in native/plugin.h."""

    _fields_ = [
        *((f"{name}_count", ctypes.c_int64) for name in COUNTS),
        *((name, ctypes.c_void_p) for name in ARRAYS),
        ("entry", ctypes.c_void_p),
        ("arena_bytes", ctypes.c_int64),
        ("scratch_bytes", ctypes.c_int64),
        ("code_bytes", ctypes.c_int64),
        ("estimated_seconds", ctypes.c_double),
        ("flops", ctypes.c_double),
        ("transcendentals", ctypes.c_double),
        ("bytes_accessed", ctypes.c_double),
        ("name", ctypes.c_char_p),
        ("fingerprint", ctypes.c_char_p),
        *(
            field
            for name in BYTES
            for field in ((name, ctypes.c_char_p), (f"{name}_bytes", ctypes.c_int64))
        ),
        ("effects", ctypes.c_int64),
        ("synchronous", ctypes.c_int64),
        ("waits", ctypes.c_int64),
    ]


_alive: dict[int, Executable] = {}  # address of the C executable -> what its code needs
_alive_lock = threading.Lock()


@functools.cache
def install() -> None:
    """Give `compile_to` to the C library; from then on the plugin can compile."""
    from jaxlib.mlir.dialects import stablehlo

    versions = [
        (ctypes.c_int64 * 3)(*map(int, text.split(".")))
        for text in (stablehlo.get_current_version(), stablehlo.get_minimum_version())
    ]
    core.library().tiny_plugin_install(pointer_of(compile_to), *map(ctypes.addressof, versions))
    # Programs still on the stream use code that the interpreter is about to free.
    atexit.register(core.library().tiny_stream_close)


def api() -> int:
    """Address of the PJRT_Api table."""
    install()
    return core.library().tiny_plugin_api()


def compile_program(program: bytes, option_bytes: bytes) -> Executable:
    """Compile with the options of one jitted function.

    Raises TinyhloError and its kin.
    """
    given = options.parse(option_bytes)
    if given.replicas != 1:
        hint = "programs for several devices are partitioned, not replicated, here"
        raise UnsupportedOp((UnsupportedItem("replicas", str(given.replicas), "", hint),))
    asked = options.configure(environment(), given)
    check_memory(asked)
    executable = compiled(program, asked, given.devices)
    devices = executable.signature.partitions
    if devices != len(given.devices):
        raise TinyhloError(
            f"the program is for {devices} devices, and to be run on {len(given.devices)}"
        )
    if executable.on_host and core.library().tiny_memory_is_apart():
        from tinyhlo.runtime.host import for_buffers

        return for_buffers(executable)
    return executable


def compiled(program: bytes, asked: config.Config, devices: Sequence[int]) -> Executable:
    """As one program for all devices of this process. As one for each where they may wait for each
    other's callbacks, unless that is unsupported, and where they part ways for which one program
    will not do."""
    compile_module, where = compiler(), placement(devices)
    if len(devices) == 1 or where is not HERE:
        return compile_module(program, asked, where)
    from tinyhlo.import_stablehlo.waiting import waits

    if waits(program):
        with contextlib.suppress(UnsupportedOp):
            return one_for_each(program, asked, devices)
    try:
        return compile_module(program, asked, where)
    except UnsupportedOp as error:
        from tinyhlo.import_stablehlo.control import part_ways

        if not part_ways(error):
            raise
    return one_for_each(program, asked, devices)


def one_for_each(program: bytes, asked: config.Config, devices: Sequence[int]) -> Executable:
    from tinyhlo.pjrt_plugin.side_by_side import side_by_side

    return side_by_side(program, asked, len(devices))


def placement(devices: Sequence[int]) -> Placement:
    """Which processes of this one's job have these devices. JAX has programs compiled by those that
    have none as well, to learn how results are divided: as the first one does."""
    from tinyhlo.runtime.exchange import current  # no part of what importing JAX waits for

    job = current()
    if job is None:
        return HERE
    processes = [job.process_of(device) for device in devices]
    return placement_of(processes, job.here if job.here in processes else processes[0])


def check_memory(asked: config.Config) -> None:
    """Raises TinyhloError for a device that arrays of this process are not made for."""
    ours = environment().device
    if asked.device != ours and not kind_of(asked.device).on_host:
        raise TinyhloError(
            f"device {asked.device} for one function alone: arrays lie in the memory of the device "
            f"that TINYHLO_DEVICE names when the process starts, which is {ours}"
        )


def opened_device(asked: config.Config) -> Device | None:
    """The device beside the host that the environment asks for, if any."""
    if kind_of(asked.device).on_host:
        return None
    from tinyhlo.runtime.devices.device import open_device

    return open_device(asked.device)


@functools.cache
def compiler() -> Callable[[bytes, config.Config, Placement], Executable]:
    """The compiler, imported only now: importing JAX must stay cheap."""
    with lasting():
        from tinyhlo.compiler import compile_module
    return compile_module


@functools.cache
def environment() -> config.Config:
    """The options of the environment, read once; the thread pool gets its size from them."""
    given = config.from_environment()
    core.set_threads(given.threads)
    return given


def hand_over(
    executable: Executable, client: int | None, program: bytes, option_bytes: bytes
) -> int | None:
    """The address of a C executable for a compiled program; None when C has left an error.

    Raises OutOfMemory for one that no machine has room for, in numbers that C might not hold.
    """
    _collect()
    needed = executable.arena_bytes + executable.scratch_bytes
    if needed > core.MOST_BYTES:
        raise OutOfMemory(f"out of memory: {needed} bytes of scratch for {executable.name}")
    given = options.parse(option_bytes)
    texts = {
        "program": program,
        "shown": shown_to_jax(executable.signature, program),
        "assignment": given.assignment,
        "options": option_bytes,
        "stored": os.fsencode(executable.stored),
    }
    own = placement(given.devices).own(len(given.devices))
    arrays = arrays_of(executable, [given.devices[k] for k in own], own)
    digest = hashlib.sha256(program)
    digest.update(option_bytes + VERSION.encode())
    spec = Spec(
        device_count=len(own),
        fingerprint=digest.hexdigest().encode(),
        **texts,
        **{f"{name}_bytes": len(text) for name, text in texts.items()},
        **{name: ctypes.addressof(array) for name, array in arrays.items()},
        **numbers_of(executable),
    )
    address = core.library().tiny_executable_new(client, ctypes.byref(spec))
    if address:
        with _alive_lock:
            _alive[address] = executable
    return address


def arrays_of(
    executable: Executable, devices: Sequence[int], partitions: Sequence[int]
) -> dict[str, ctypes.Array[Any]]:
    """The fields of a Spec that point to arrays: of types, first arguments, then results."""
    signature = executable.signature
    tensors = signature.inputs + signature.outputs
    orders = signature.orders or tuple(tuple(range(len(t.shape))) for t in tensors)
    sizes = [
        t.shape[order.index(k)]
        for t, order in zip(tensors, orders, strict=True)
        for k in range(len(order))
    ]
    return {
        "devices": _array(ctypes.c_int32, devices),
        "partitions": _array(ctypes.c_int32, partitions),
        "types": _array(ctypes.c_uint32, [abi.ELEMENT_TYPES[str(t.dtype)][0] for t in tensors]),
        "ranks": _array(ctypes.c_int32, [len(t.shape) for t in tensors]),
        "memories": _array(ctypes.c_int32, signature.memories or [0] * len(tensors)),
        "dims": _array(ctypes.c_int64, sizes),
        "orders": _array(ctypes.c_int64, [axis for order in orders for axis in reversed(order)]),
        "aliases": _array(ctypes.c_int64, [k for pair in executable.aliases for k in pair]),
        "donors": _array(ctypes.c_int64, signature.donors),
        "constants": _array(ctypes.c_void_p, [a.ctypes.data for a in executable.constants]),
    }


def numbers_of(executable: Executable) -> dict[str, Any]:
    """The fields of a Spec that an Executable has as they are, or counts."""
    signature = executable.signature
    return {
        "partition_count": signature.partitions,
        "input_count": len(signature.inputs),
        "output_count": len(signature.outputs),
        "alias_count": len(executable.aliases),
        "donor_count": len(signature.donors),
        "constant_count": len(executable.constants),
        "entry": executable.entry,
        "arena_bytes": executable.arena_bytes,
        "scratch_bytes": executable.scratch_bytes,
        "code_bytes": executable.code_bytes,
        "estimated_seconds": executable.estimated_seconds,
        "flops": sum(k.flops - k.transcendentals for k in executable.kernels),
        "transcendentals": sum(k.transcendentals for k in executable.kernels),
        "bytes_accessed": sum(k.bytes_read + k.bytes_written for k in executable.kernels),
        "name": executable.name.encode(),
        "effects": executable.effects,
        "synchronous": executable.synchronous,
        "waits": signature.partitions > signature.devices,
    }


def shown_to_jax(signature: Signature, program: bytes) -> bytes:
    """A program for several devices with what JAX wants to know of it; empty for one device."""
    if signature.partitions == 1:
        return b""
    from tinyhlo.pjrt_plugin.described import described

    count = len(signature.inputs) // signature.devices
    return described(program, signature.shardings[:count], signature.shardings[count:])


def _array(type_: type[Number], values: Sequence[int]) -> ctypes.Array[Number]:
    return (type_ * max(1, len(values)))(*values)


def _collect() -> None:
    """Let go of executables that nobody uses any more."""
    library = core.library()
    while address := library.tiny_executable_next_retired():
        with _alive_lock:
            _alive.pop(address, None)
        library.tiny_executable_free(address)


def status_of(error: BaseException) -> tuple[int, str]:
    """The status code and text that the JAX user sees."""
    match error:
        case UnsupportedOp():
            return core.UNIMPLEMENTED, str(error)
        case VerificationError():
            return core.INTERNAL, _defect(error)
        case OutOfMemory():
            return core.RESOURCE_EXHAUSTED, str(error)
        case TinyhloError():
            return core.INVALID_ARGUMENT, str(error)
        case MemoryError():
            return core.RESOURCE_EXHAUSTED, "out of memory while compiling"
        case _:
            return core.INTERNAL, _defect(error)


def _defect(error: BaseException) -> str:
    """The text for an error that nobody foresaw."""
    package = str(Path(__file__).parents[1])
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(package)]
    where = "".join(f" ({f.filename}:{f.lineno})" for f in (ours or frames)[-1:])
    summary = traceback.format_exception_only(error)[-1].strip()
    return f"{summary}{where}\nThis is a defect of tinyhlo; please report it."


def brought(code: bytes) -> contextlib.AbstractContextManager[None]:
    """Let what is compiled meanwhile be taken from code that a serialized executable brings."""
    if not code:
        return contextlib.nullcontext()
    compiler()
    from tinyhlo.runtime.saved import offering

    return offering(code)


def compile_to(
    client: int, program: int, program_bytes: int, given: int, given_bytes: int, code: int,
    code_bytes: int, place: int,
) -> int:  # fmt: skip
    """What C calls (python_compile in native/python.c): the program, its options and what code it
    has brought along are bytes at addresses, and the address of the C executable is put at
    `place`."""
    try:
        source = ctypes.string_at(program, program_bytes)
        option_bytes = ctypes.string_at(given, given_bytes) if given_bytes else b""
        with brought(ctypes.string_at(code, code_bytes) if code_bytes else b""):
            executable = compile_program(source, option_bytes)
        made = hand_over(executable, client, source, option_bytes)
    except BaseException as error:
        status, text = status_of(error)
        core.set_error(status, text)
        return status
    ctypes.c_void_p.from_address(place).value = made
    return 0
