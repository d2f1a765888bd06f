"""Python's limit of recursion, raised while programs are compiled: chains of nodes are long.

    with deep_recursion():
        stages = run_stages(source, config)

It is raised for the thread that compiles: a function of the user's that calls itself for ever must
end in a RecursionError, not the process for want of stack. From Python 3.12 on the stack of C has a
limit of its own, so there it is raised for all threads meanwhile, which may.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Generator
from contextlib import contextmanager

from tinyhlo.settings import RECURSION

DEEPEST = 100_000


class Thread(ctypes.Structure):
    """How PyThreadState begins in Python 3.11."""

    _fields_ = [
        ("links", ctypes.c_void_p * 3),
        ("flags", ctypes.c_int * 2),
        ("remaining", ctypes.c_int),
        ("limit", ctypes.c_int),
    ]

    def set_limit(self, limit: int) -> None:
        self.remaining, self.limit = self.remaining + limit - self.limit, limit


state = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyThreadState_Get", ctypes.pythonapi))
KNOWN = (
    sys.version_info[:2] == (3, 11)
    and Thread.from_address(state()).limit == sys.getrecursionlimit()
)


def this_thread() -> Thread | None:
    """Where a limit of its own can be had."""
    return Thread.from_address(state()) if KNOWN else None


@contextmanager
def deep_recursion() -> Generator[None]:
    """Also inside itself."""
    thread = this_thread()
    if thread is None:
        with RECURSION.changed(lambda limit: max(limit, DEEPEST)):
            yield
        return
    before, deep = thread.limit, max(thread.limit, DEEPEST)
    thread.set_limit(deep)
    try:
        yield
    finally:
        if thread.limit == deep:  # else somebody has set that of all threads
            thread.set_limit(before)
