"""Settings of the interpreter, others while a program is compiled, for all of its threads.

    with COLLECTOR.changed(lambda on: False):
        stages = run_stages(source, config)

The last to leave gives back what the first one found. A child that is forked meanwhile has none of
the other threads that would.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from threading import Lock, get_ident
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Setting(Generic[Value]):
    """One of them: how it is read and written, and who has changed it."""

    def __init__(self, read: Callable[[], Value], write: Callable[[Value], object]) -> None:
        self.read, self.write = read, write
        self.lock = Lock()
        self.before: list[Value] = []  # one value, while it is another
        self.users: list[int] = []  # a thread for each that has not left
        os.register_at_fork(after_in_child=self.keep_own)

    @contextmanager
    def changed(self, wanted: Callable[[Value], Value]) -> Generator[None]:
        """As `wanted` makes it of what it is now. Also inside itself, and in several threads."""
        with self.lock:
            now, me = self.read(), get_ident()
            self.before = self.before or [now]
            self.users.append(me)
            self.write(wanted(now))
        try:
            yield
        finally:
            with self.lock:
                self.users.remove(me)
                self.restore()

    def restore(self) -> None:
        if self.before and not self.users:
            self.write(self.before.pop())

    def keep_own(self) -> None:
        """In a forked child: who else has changed it does not live here."""
        self.lock = Lock()
        self.users = [user for user in self.users if user == get_ident()]
        self.restore()


def collect(on: bool) -> None:
    gc.enable() if on else gc.disable()


def limit_recursion(depth: int) -> None:
    with suppress(RecursionError):  # this thread was deeper when it came
        sys.setrecursionlimit(depth)


COLLECTOR = Setting(gc.isenabled, collect)
INTERVAL = Setting(sys.getswitchinterval, sys.setswitchinterval)
RECURSION = Setting(sys.getrecursionlimit, limit_recursion)
