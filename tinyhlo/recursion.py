"""Python's limit of recursion, raised while programs are compiled: chains of nodes are long.

    with deep_recursion():
        stages = run_stages(source, config)

It is the user's again afterwards: a function of theirs that calls itself for ever must end in a
RecursionError, not the process for want of stack. It cannot be that of the compiling thread alone:
Python's own compiler, which makes a class or imports far down, asks for that of all.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from tinyhlo.python_settings import RECURSION

DEEPEST = 100_000


@contextmanager
def deep_recursion() -> Generator[None]:
    """Also inside itself, and in several threads: the last to leave restores the limit."""
    with RECURSION.changed(lambda limit: max(limit, DEEPEST)):
        yield
