"""Whole compiled programs on disk: a second process neither reads the program nor compiles it.

In: what a program is compiled from. Out: its Executable, if some process has stored it.

    place = place_of(source, target, config)     # None where nothing is to be kept
    executable = load(place)
    executable = store(place, executable, compiled)       # its object code

    with offering(file):                         # of another machine's cache
        executable = offered(source, target, config, placement)

An entry of the cache is a head in JSON, then the program's constants and its object code. Its name
is made of what the program says (`import_stablehlo/content.py`), the target, and this package as it
lies on the disk. To learn that a program is read, without the stages after; a second name, made of
its bytes as they are, leads to the entry where not even the lines of the user's files have moved.

A serialized executable brings such a file along. An installation of this package has other times on
its files, and another place for its cache; what code depends on besides is in the head.

What calls LAPACK names the functions, for another process has them elsewhere; host callbacks are
known by their order. What calls other functions of users is not stored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tinyhlo.config import Config, schedules_file
from tinyhlo.ir.dtypes import U8
from tinyhlo.ir.elements import BY_NAME, TOKEN
from tinyhlo.ir.graph import TensorType
from tinyhlo.placement import HERE, Placement
from tinyhlo.records import dataclass
from tinyhlo.report import KernelReport
from tinyhlo.runtime import core
from tinyhlo.runtime.arrays import aligned_copy
from tinyhlo.runtime.cache import Cache, cache_of, kept, key_of, payload_of
from tinyhlo.runtime.callbacks import ID, TARGET
from tinyhlo.runtime.executable import Executable
from tinyhlo.runtime.jit import link, llvm_version
from tinyhlo.runtime.library import REGISTRY, Call, Library
from tinyhlo.signature import Signature
from tinyhlo.target import Target
from tinyhlo.version import VERSION

if TYPE_CHECKING:
    from tinyhlo.runtime.compile import Compiled

ROOT = Path(__file__).parents[1]
DTYPES = {**BY_NAME, TOKEN.name: TOKEN}
MOST_BYTES = 64 << 20  # a larger program is mostly constants, and as quick to compile as to read
LENGTH_BYTES = 8  # of the head
LINK = "link"  # the first part of the names that lead to entries

PLAIN = ("name", "arena_bytes", "scratch_bytes", "code_bytes", "estimated_seconds", "effects")
NUMBERS = ("donors", "orders", "memories", "shardings", "devices", "partitions")
KERNEL = ("name", "location", "flops", "bytes_read", "bytes_written", "transcendentals")


OFFERED: ContextVar[bytes] = ContextVar("OFFERED", default=b"")


@dataclass(frozen=True, slots=True)
class Origin:
    """What a program is compiled from."""

    source: bytes | str = field(repr=False)
    target: Target
    config: Config
    placement: Placement


@dataclass(frozen=True, slots=True)
class SavedPlace:
    """Where a program is kept. `link`: under what name `key` is to be stored, if it is not yet;
    `callbacks`: numbers of the host callbacks."""

    cache: Cache
    key: str
    link: str
    callbacks: tuple[int, ...]
    origin: Origin


@dataclass(frozen=True, slots=True)
class KernelLoops:
    """The generated loops of a kernel of a stored program: compiled again when they are read."""

    origin: Origin
    number: int

    def __str__(self) -> str:
        from tinyhlo.compiler import compile_module

        origin, config = self.origin, replace(self.origin.config, cache=0)
        executable = compile_module(origin.source, config, origin.placement)
        return executable.kernels[self.number].source


def place_of(
    source: bytes | str, target: Target, config: Config, placement: Placement = HERE
) -> SavedPlace | None:
    """Where the program is kept; None without a cache, for what is mostly constants, and when its
    stages are to be seen or checked.

    Raises InvalidProgram for what cannot be read.
    """
    cache = cache_of("programs", config)
    if cache is None or is_seen(config) or len(source) > MOST_BYTES:
        return None
    origin = Origin(source, target, config, placement)
    state = package_state(), schedules_state(config), replaced_calls()
    parts = VERSION, llvm_version(), *state, repr(target), repr(placement)
    link = key_of((LINK, *parts, source))
    known = cache.load(link)
    if known is not None:
        return SavedPlace(cache, known.decode(), "", (), origin)
    from tinyhlo.import_stablehlo.content import content_of  # reads programs

    content = content_of(source)
    if content.callbacks:  # their numbers are other ones in every process
        link = ""
    key = key_of((*parts, content.code))
    return SavedPlace(cache, key, link, content.callbacks, origin)


def is_seen(config: Config) -> bool:
    """Whether somebody wants to see a program's stages, or have them checked."""
    return bool(config.debug or config.verify or config.profile or config.viz)


@cache
def package_state() -> str:
    """Changes with every file of this package: whoever works on it is not given old code."""
    digest = hashlib.sha256()
    for path in package_files():
        status = path.stat()
        digest.update(f"{path.relative_to(ROOT)} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


@cache
def package_contents(config: Config) -> bytes:
    """The same wherever, and whenever, this package is installed: made of what its files say, which
    is read once an installation."""

    def made() -> bytes:
        files = ((str(path.relative_to(ROOT)), path.read_bytes()) for path in package_files())
        return key_of(part for file in files for part in file).encode()

    return kept(cache_of("package", config), key_of((package_state(),)), made)


def package_files() -> list[Path]:
    """Those in C are what programs call."""
    return sorted([*ROOT.rglob("*.py"), *core.NATIVE.glob("*.[ch]")])


def made_of(origin: Origin) -> str:
    """What code depends on, wherever this package is installed."""
    source = origin.source.encode() if isinstance(origin.source, str) else origin.source
    config = origin.config
    state = package_contents(config), schedules_state(config), replaced_calls()
    return key_of(
        (VERSION, llvm_version(), *state, repr(origin.target), repr(origin.placement), source)
    )


def replaced_calls() -> bytes:
    """LAPACK's names that a user has registered: without that, small matrices need no call."""
    return " ".join(sorted(name for name in REGISTRY if name.startswith("lapack_"))).encode()


def schedules_state(config: Config) -> bytes:
    """Changes with the schedules that a program is compiled with, if any."""
    if not config.beam and not config.schedules:
        return b""
    try:
        return str(config.beam).encode() + schedules_file(config).read_bytes()
    except OSError:  # there is none, or `search` will say what is wrong with it
        return b""


def store(place: SavedPlace, executable: Executable, compiled: Compiled) -> Executable:
    """Keep a program, unless it calls what another process may know as something else."""
    own = len(executable.constants) - len(compiled.libraries)  # descriptors follow the constants
    bound = [each.call for each in compiled.libraries if each.call]
    calls = [call for call in bound if is_plain(call) and is_known(call, place.callbacks)]
    constants, pieces = [array.tobytes() for array in executable.constants[:own]], compiled.pieces
    if len(calls) < len(compiled.libraries) or sum(map(len, (*constants, *pieces))) > MOST_BYTES:
        return executable
    head: dict[str, Any] = {name: getattr(executable, name) for name in PLAIN}
    head["made"] = made_of(place.origin)
    seen = executable.signature
    head["types"] = [named(seen.inputs), named(seen.outputs)]
    head["calls"] = [call_record(call, place.callbacks) for call in calls]
    head["numbers"] = [getattr(seen, name) for name in NUMBERS]
    head["aliases"] = executable.aliases
    head["kernels"] = [[getattr(kernel, name) for name in KERNEL] for kernel in executable.kernels]
    head["sizes"] = [[len(raw) for raw in group] for group in (constants, pieces)]
    text = json.dumps(head, default=lambda number: number.item()).encode()
    length = len(text).to_bytes(LENGTH_BYTES, "little")
    done = place.cache.store(place.key, b"".join([length, text, *constants, *pieces]))
    store_link(place)
    return replace(executable, stored=str(place.cache.path(place.key))) if done else executable


def store_link(place: SavedPlace) -> None:
    """Let these very bytes lead to the entry."""
    if place.link:
        place.cache.store(place.link, place.key.encode())


def named(types: Sequence[TensorType]) -> list[tuple[str, tuple[int, ...]]]:
    return [(type_.dtype.name, type_.shape) for type_ in types]


def typed(names: Sequence[Any]) -> tuple[TensorType, ...]:
    return tuple(TensorType(tuple(shape), DTYPES[name]) for name, shape in names)


def is_plain(call: Call) -> bool:
    """Whether the call's attributes are numbers, as those of LAPACK's functions are."""
    return all(isinstance(value, np.generic) for value in call.attributes.values())


def is_known(call: Call, callbacks: Sequence[int]) -> bool:
    """Whether a call of a callback can be told by its place among those of the program."""
    return call.target != TARGET or call.attributes.get(ID) in callbacks


def call_record(call: Call, callbacks: Sequence[int]) -> list[Any]:
    attributes = {name: (str(value.dtype), value) for name, value in call.attributes.items()}
    if call.target == TARGET:
        attributes = {ID: ("int64", callbacks.index(call.attributes[ID]))}
    types = named(call.operands), named(call.results)
    return [call.target, attributes, *types, call.aliases, call.version]


def library_of(record: Sequence[Any], callbacks: Sequence[int]) -> Library | None:
    """The function of a record, where it lies in this process; None where jaxlib has it no more."""
    from tinyhlo.runtime.targets import find  # imports what few programs need

    target, attributes, operands, results, aliases, version = record
    numbers = {name: np.dtype(kind).type(value) for name, (kind, value) in attributes.items()}
    if target == TARGET:
        numbers = {ID: np.uint64(callbacks[numbers[ID]])}
    call = Call(target, numbers, typed(operands), typed(results), frozen(aliases), version)
    make = find(target)
    return make(call) if make else None


def frozen(value: Any) -> Any:
    """JSON's lists as the tuples that they were."""
    return tuple(map(frozen, value)) if isinstance(value, list) else value


def load(place: SavedPlace) -> Executable | None:
    """The stored program, linked; None when there is none, or not all that it calls."""
    payload = place.cache.load(place.key)
    executable = linked(*parted(payload), place.callbacks, place.origin) if payload else None
    if executable is None:
        return None
    store_link(place)
    return replace(executable, stored=str(place.cache.path(place.key)))


@contextmanager
def offering(file: bytes) -> Generator[None]:
    """Let `offered` take what is in the file of a cache, of another machine or another time."""
    token = OFFERED.set(file)
    try:
        yield
    finally:
        OFFERED.reset(token)


def offered(
    source: bytes | str, target: Target, config: Config, placement: Placement
) -> Executable | None:
    """The program that is offered, where this process would make the same of its source; None where
    it would not, or knows other callbacks."""
    file = OFFERED.get()
    payload = payload_of(file) if file and not is_seen(config) else None
    if payload is None:
        return None
    head, body = parted(payload)
    origin = Origin(source, target, config, placement)
    if head.get("made") != made_of(origin) or any(call[0] == TARGET for call in head["calls"]):
        return None
    return linked(head, body, (), origin)


def parted(payload: bytes) -> tuple[dict[str, Any], bytes]:
    """The head of an entry, and what follows it."""
    start = LENGTH_BYTES + int.from_bytes(payload[:LENGTH_BYTES], "little")
    return json.loads(payload[LENGTH_BYTES:start]), payload[start:]


def linked(
    head: dict[str, Any], body: bytes, callbacks: Sequence[int], origin: Origin
) -> Executable | None:
    groups: list[list[bytes]] = []
    start = 0
    for sizes in head["sizes"]:
        groups.append([])
        for size in sizes:
            groups[-1].append(body[start : start + size])
            start += size
    code = link(groups[1], head["name"])
    inputs, outputs = map(typed, head["types"])
    bound = (library_of(record, callbacks) for record in head["calls"])
    libraries = [library for library in bound if library]
    if len(libraries) < len(head["calls"]):
        return None
    constants = (aligned_copy(np.frombuffer(raw, U8.numpy)) for raw in groups[0])
    return Executable(
        **{name: head[name] for name in PLAIN},
        signature=Signature(inputs, outputs, *map(frozen, head["numbers"])),
        aliases=frozen(head["aliases"]),
        kernels=tuple(
            KernelReport(*values, loops=KernelLoops(origin, number))
            for number, values in enumerate(head["kernels"])
        ),
        constants=(*constants, *(library.descriptor for library in libraries)),
        entry=code.entry,
        keepalive=(code, libraries),
        synchronous=any(library.synchronous for library in libraries),
    )
