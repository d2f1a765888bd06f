"""Library calls: descriptors of functions that generated code does not contain.

In: what a LibraryCall of a Graph asks for. Out: a `Library`, whose descriptor generated code passes
to `tiny_library_call` (native/library.h). `targets.py` finds what a name means.

    REGISTRY["double"] = lambda call: python_call(double, call.operands, call.results)
    library = targets.bind(node)
    run(library, [x], [x_type])            # the same call, made from Python

A Python function takes a list of arrays and returns a list of arrays. They are copies: it may keep
them. What it raises ends the program with its traceback as the text of the error.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from tinyhlo.errors import ExecutionError, UnsupportedItem, UnsupportedOp
from tinyhlo.ir.build import ALIASES
from tinyhlo.ir.graph import LibraryCall, TensorType
from tinyhlo.records import dataclass
from tinyhlo.runtime import core
from tinyhlo.runtime.arrays import aligned_empty, arrays_at, checked, pointers
from tinyhlo.runtime.functions import causes, pointer_of

Function = Callable[[list[np.ndarray]], Sequence[Any]]
PYTHON_SECONDS = 100e-6  # what a Python function is taken to need: it runs on the stream


# Attributes of a LibraryCall that import adds to those the call has, as `ir.build.ALIASES`; no
# user's begins with "#".
OPERANDS, RESULTS = "#operands", "#results"  # types, where they differ from those of the nodes
VERSION = "#api_version"  # of the custom call, when it says how a plain C function is called


@dataclass(frozen=True, slots=True)
class Call:
    """A LibraryCall as its implementation sees it: types as the user wrote them (complex and
    small element types included), attributes by name: NumPy scalars and arrays, texts, mappings.
    `aliases` are (result, operand) pairs whose memory the function wants to be the same."""

    target: str
    attributes: Mapping[str, Any]
    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    aliases: tuple[tuple[int, int], ...] = ()
    version: int = 1


@dataclass(frozen=True, eq=False, slots=True)
class Library:
    """A function that generated code can call: `descriptor` is its TinyLibrary, word by word,
    `keepalive` what that points to, `seconds` a rough time of one call. A program that calls a
    `synchronous` one is over when its own call is. `call` is what it was made for, if other
    processes can bind it from that."""

    descriptor: np.ndarray
    keepalive: Any = field(default=None, repr=False)
    seconds: float = 0.0
    synchronous: bool = False
    call: Call | None = None


Maker = Callable[[Call], Library]

# name of a target -> what makes its descriptor
REGISTRY: dict[str, Maker] = {}


def call_of(node: LibraryCall) -> Call:
    """What a node asks for."""
    given = dict(node.attributes)
    operands = given.get(OPERANDS) or tuple(child.type for child in node.inputs)
    own = tuple((name, value) for name, value in given.items() if not name.startswith("#"))
    results = given.get(RESULTS) or node.results
    aliases, version = given.get(ALIASES, ()), given.get(VERSION, 1)
    return Call(node.target, plain(own), operands, results, aliases, version)


def plain(attributes: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Attributes as functions take them; in nodes scalars are arrays and dictionaries pairs."""

    def value_of(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value[()]
        is_pairs = isinstance(value, tuple) and all(isinstance(v, tuple) for v in value)
        return plain(value) if is_pairs else value

    return {name: value_of(value) for name, value in attributes}


def run(
    library: Library, operands: Sequence[np.ndarray], results: Sequence[TensorType]
) -> tuple[np.ndarray, ...]:
    """Call from Python, on arrays as they are stored.

    Raises ExecutionError with what the function said.
    """
    given = [np.ascontiguousarray(array).reshape(array.shape) for array in operands]
    made = tuple(aligned_empty(type_) for type_ in results)
    call = core.library().tiny_library_call
    with causes() as raised:
        if call(library.descriptor.ctypes.data, pointers(given), pointers(made)):
            reason = core.last_error() or "a library call failed"
            raise ExecutionError(reason) from next(reversed(raised), None)
    return made


def host_call(
    function: Library, inputs: Sequence[TensorType], outputs: Sequence[TensorType]
) -> Library:
    """The same function for buffers, which may lie in a device's memory (TinyHostCall)."""
    sizes = [np.array([type_.nbytes for type_ in each], np.int64) for each in (inputs, outputs)]
    words = [core.address("tiny_host_call"), function.descriptor.ctypes.data, *map(len, sizes)]
    descriptor = np.array([*words, *(size.ctypes.data for size in sizes)], np.int64)
    return replace(function, descriptor=descriptor, keepalive=(function, sizes))


# --- Python functions --------------------------------------------------------------------------


def python_call(
    function: Function, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> Library:
    """A call of a Python function. It ends with an ExecutionError when what the function returns is
    not of the stated shapes and dtypes."""
    expected = tuple(results)

    def copying(given: list[np.ndarray], places: list[np.ndarray]) -> None:
        returned = checked(function([array.copy() for array in given]), expected, "result")
        for place, value in zip(places, returned, strict=True):
            place[...] = value

    return call_in_place(copying, operands, expected)


def call_in_place(
    function: Callable[[list[np.ndarray], list[np.ndarray]], None],
    operands: Sequence[TensorType],
    results: Sequence[TensorType],
) -> Library:
    """A call of a Python function that reads the operands where they lie, and writes the results
    where they are to lie; it keeps none of them."""
    given_types, made_types = tuple(operands), tuple(results)

    def run(inputs: int, outputs: int) -> int:
        function(arrays_at(inputs, given_types), arrays_at(outputs, made_types))
        return 0

    head = np.array([core.address("tiny_python_run"), pointer_of(run)], np.int64)
    return Library(head, run, PYTHON_SECONDS)


def random_state(call: Call) -> Library:
    """A key and a counter for random numbers, others in every call; the same in every process."""
    return python_call(lambda _: [np.array([0, next(_draws) << 32], np.uint64)], (), call.results)


RANDOM_STATE = "tiny.random_state"
REGISTRY[RANDOM_STATE] = random_state
_draws = itertools.count(1)

# --- plain C functions -------------------------------------------------------------------------


def plain_call(address: int, call: Call) -> Library:
    """A call of `void function(void* output, const void** inputs)`, the custom calls of old; with
    several results `output` is an array of pointers.

    Raises UnsupportedOp for later versions of that interface, which pass objects of XLA.
    """
    if call.version != 1:
        hint = (
            f"custom calls of API version {call.version} are not made; register an XLA FFI handler"
        )
        types = ", ".join(map(str, call.operands))
        raise UnsupportedOp((UnsupportedItem(call.target, f"({types})", "", hint),))
    plain = [core.address("tiny_plain_run"), address, len(call.results)]  # a PlainLibrary
    return Library(np.array(plain, np.int64))
