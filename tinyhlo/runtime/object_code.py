"""Object code of modules, several at a time.

In: LLVM IR texts, one after the other. Out: their object code: what an earlier process compiled
from the same text for the same target, or compiled now, on as many threads as the target has
(LLVM runs without Python's lock).

    with closing(ObjectCode(target, config)) as code:
        code.add(text)                           # a thread compiles it
        linked = link(code.pieces(last_text))    # this one compiles the last
"""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tinyhlo.config import Config
from tinyhlo.python_settings import INTERVAL
from tinyhlo.runtime.cache import cache_of, kept, key_of
from tinyhlo.runtime.jit import compile_text, llvm_version
from tinyhlo.target import Target
from tinyhlo.version import VERSION

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

# Seconds until Python hands its lock over to a thread that comes back from LLVM. It is 5 ms usually
# and taken a dozen times a module: 15 ms of work took 90 while Python was busy.
HANDOVER = 3e-4


class ObjectCode:
    """A program of one module starts no thread."""

    def __init__(self, target: Target, config: Config) -> None:
        self.target = target
        self.cache = cache_of("objects", config)
        self.threads: ThreadPoolExecutor | None = None
        self.changed = ExitStack()  # settings, while there are threads
        self.futures: list[Future[bytes]] = []

    def close(self) -> None:
        if self.threads is None:
            return
        self.threads.shutdown(cancel_futures=True)
        self.changed.close()

    def add(self, text: str) -> None:
        """Begin to compile a module."""
        try:
            future = self.started().submit(self.compile, text)
        except RuntimeError:  # a process that is ending starts no threads, nor imports them
            future = Future[bytes]()
            future.set_result(self.compile(text))
        self.futures.append(future)

    def started(self) -> ThreadPoolExecutor:
        """The threads, from the first module on."""
        if self.threads is None:
            from concurrent.futures import ThreadPoolExecutor

            self.threads = ThreadPoolExecutor(self.target.threads, "tinyhlo-compile")
            self.changed.enter_context(INTERVAL.changed(lambda usual: min(usual, HANDOVER)))
        return self.threads

    def pieces(self, last: str) -> tuple[bytes, ...]:
        """The code of all modules, once it is there; `last` is a module too."""
        code = self.compile(last)
        return (*(future.result() for future in self.futures), code)

    def compile(self, text: str) -> bytes:
        """The code of one module."""
        key = key_of((VERSION, llvm_version(), repr(self.target), text))
        return kept(self.cache, key, lambda: compile_text(text, self.target))
