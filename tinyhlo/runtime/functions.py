"""Python functions that C calls, and what becomes of their exceptions.

    def add_one(inputs: int, outputs: int) -> int: ...       # pointers; returns 0, or a code

    words = [core.address("tiny_python_run"), pointer_of(add_one)]      # the descriptor of a call

    with causes() as raised: ...           # what they raise, for whoever catches it in Python

In: a function. Out: its pointer, for `tiny_python_call` (native/functions.c), which hands what the
function raises to `report`: whatever it is, and wherever, as a signal's handler may raise before
the first statement. Whoever passes a pointer on keeps the function alive.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from tinyhlo.errors import ExecutionError, TinyhloError
from tinyhlo.runtime import core

PACKAGE = str(Path(__file__).parents[1])
# Python's own functions, in the order in which native/functions.c has them
NEEDED = (
    "PyGILState_Ensure",
    "PyGILState_Release",
    "Py_VaBuildValue",
    "PyObject_CallObject",
    "PyLong_AsLong",
    "PyErr_Fetch",
    "PyErr_NormalizeException",
    "PyException_SetTraceback",
    "PyErr_Clear",
    "Py_DecRef",
)
INNERMOST = 20  # frames that are told of a traceback which is too long

_raised = threading.local()


def pointer_of(function: Callable[..., int]) -> int:
    """Of a function of numbers that returns 0, or a code after it has left an error."""
    opened()
    return id(function)


@functools.cache
def opened() -> None:
    """From here on C can call Python functions."""
    needed = [core.address_of(getattr(ctypes.pythonapi, name)) for name in NEEDED]
    words = (ctypes.c_void_p * (len(needed) + 1))(*needed, id(report))
    core.library().tiny_python_open(words)


def together(function: Callable[[int], None], count: int) -> None:
    """Call it with 0, 1, ..., each in a thread of its own. They are C's: Python gives none, nor any
    of a pool, to what still runs when the interpreter is about to end.

    Raises ExecutionError when one of them fails.
    """

    def call(number: int) -> int:
        function(number)
        return 0

    code = core.library().tiny_python_together(pointer_of(call), count)
    if code == core.RESOURCE_EXHAUSTED:
        raise ExecutionError(f"the system has no {count} threads left")
    if code:
        raise ExecutionError(f"one of {count} threads has failed")


def report(error: BaseException) -> int:
    """Leave an exception as this thread's error; its code."""
    if (raised := getattr(_raised, "list", None)) is not None:
        raised.append(error)
    code = core.INVALID_ARGUMENT if isinstance(error, ExecutionError) else core.INTERNAL
    core.set_error(code, told(error))
    return code


@contextmanager
def causes() -> Generator[list[BaseException]]:
    """What Python functions raise in calls that this thread makes meanwhile. What JAX calls is not
    asked for: an exception that is kept keeps alive whatever stands on its frames."""
    before, raised = getattr(_raised, "list", None), list[BaseException]()
    _raised.list = raised
    try:
        yield raised
    finally:
        _raised.list = before
        raised.clear()


def told(error: BaseException) -> str:
    """An exception with its traceback, from the first frame that is not the compiler's own; when
    that is too long for C, the innermost frames of it and of each exception that led to it. Of a
    sentence of the compiler's to users, not where it was raised."""
    frames = error.__traceback__
    while frames and frames.tb_frame.f_code.co_filename.startswith(PACKAGE):
        frames = frames.tb_next
    if type(error) is TinyhloError or (isinstance(error, TinyhloError) and frames is None):
        return str(error)
    frames = frames or error.__traceback__
    text = written(error, frames, None)
    return text if len(text) < core.MOST_TEXT else written(error, frames, -INNERMOST)


def written(error: BaseException, frames: TracebackType | None, limit: int | None) -> str:
    return "".join(traceback.format_exception(type(error), error, frames, limit)).strip()
