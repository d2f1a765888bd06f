"""What is made once in a process, however many threads ask for it at the same time.

    @once
    def trace_to(path: str) -> Trace: ...

`functools.cache` alone calls the function for each of them: a file that is written when the process
ends would have several writers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from threading import Lock
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Made = TypeVar("Made")


def once(make: Callable[Given, Made]) -> Callable[Given, Made]:
    """`make`, called once for the same arguments; it does not call itself."""
    lock, kept = Lock(), cache(make)

    @wraps(make)
    def asked(*given: Given.args, **named: Given.kwargs) -> Made:
        with lock:
            return kept(*given, **named)  # type: ignore[reportArgumentType]

    return asked
