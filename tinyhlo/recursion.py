"""Python's limit of recursion, raised while programs are compiled: chains of nodes are long.

    with deep_recursion():
        stages = run_stages(source, config)

It is the user's again afterwards: a function of theirs that calls itself for ever must end in a
RecursionError, not the process for want of stack.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from threading import Lock

DEEPEST = 100_000

_lock = Lock()
_compiling: list[int] = []  # the limit before each compilation that has not ended


@contextmanager
def deep_recursion() -> Generator[None]:
    """Also inside itself, and in several threads: the last to leave restores the limit."""
    with _lock:
        _compiling.append(sys.getrecursionlimit())
        sys.setrecursionlimit(max(DEEPEST, *_compiling))
    try:
        yield
    finally:
        with _lock:
            first = _compiling[0]
            _compiling.pop()
            if not _compiling:
                with suppress(RecursionError):  # this thread was deeper when it came
                    sys.setrecursionlimit(first)
