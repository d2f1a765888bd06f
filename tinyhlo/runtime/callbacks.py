"""Host callbacks: Python functions that programs of this process call.

In: a function. Out: a `Callback`, whose number goes into a program as

    custom_call @tiny.callback(%x) {id = number}

The number is random, so that a program which was traced in another process calls no function of
this one. A program that is called without its function says so then; compiling it is no error,
because it may stand in a branch that is never taken.
"""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any, NoReturn

import numpy as np

from tinyhlo.errors import ExecutionError
from tinyhlo.records import dataclass
from tinyhlo.runtime.library import Call, Library, python_call

TARGET = "tiny.callback"
ID = "id"  # the attribute that holds the number
# callbacks in programs that were lowered for XLA: their functions live in its executables
FOREIGN = (
    "xla_buffer_python_cpu_callback",
    "xla_buffer_python_gpu_callback",
    "xla_ffi_partitioned_python_cpu_callback",
    "xla_ffi_partitioned_python_gpu_callback",
    "xla_ffi_python_cpu_callback",
    "xla_ffi_python_gpu_callback",
    "xla_python_cpu_callback",
    "xla_python_gpu_callback",
)
GONE = (
    "this program calls back into Python, but its function lived in the process that traced it, "
    "for the device that it was lowered for: jit the function again here"
)


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Callback:
    """A function of arrays that returns a sequence of arrays; whoever lowers a program keeps this
    alive until it is compiled, the compiled program from then on."""

    function: Callable[..., Sequence[Any]] = field(repr=False)
    number: int = field(default_factory=lambda: secrets.randbits(63))

    def __post_init__(self) -> None:
        _alive[self.number] = self

    def __call__(self, *arrays: np.ndarray) -> Sequence[Any]:
        """jaxlib takes only what can be called among the callbacks of a program."""
        return self.function(*arrays)

    def __reduce__(self) -> NoReturn:
        """JAX pickles what a program needs when it serialises the compiled program."""
        raise TypeError(
            "a program that calls back into Python cannot be serialised: its function lives in "
            "this process"
        )


_alive: weakref.WeakValueDictionary[int, Callback] = weakref.WeakValueDictionary()


def bind_callback(call: Call) -> Library:
    """The descriptor of a call of a callback."""
    callback = _alive.get(call.attributes.get(ID, -1))
    if callback is None:
        return bind_missing(call)
    library = python_call(lambda arrays: callback(*arrays), call.operands, call.results)
    return replace(library, synchronous=True, call=call)


def bind_missing(call: Call) -> Library:
    """The descriptor of a call that can only fail."""

    def run(arrays: list[np.ndarray]) -> Sequence[Any]:
        raise ExecutionError(f"{call.target}: {GONE}")

    return replace(python_call(run, call.operands, call.results), call=call)


MAKERS = {TARGET: bind_callback, **dict.fromkeys(FOREIGN, bind_missing)}
