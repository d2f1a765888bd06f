"""Read files of unknown origin in a process of their own first.

In: bytes that may be damaged. Out: bytecode that jaxlib itself has just written.

    clean = admit(Path("model.bc").read_bytes(), cache)

MLIR's bytecode reader trusts its input: one flipped bit crashes it once in a hundred times, and the
process with it (docs/decisions/0010-quarantine.md). So another process reads the file and writes
what it has read; when that one dies, this one raises InvalidProgram. A file read before is known
by its digest and costs nothing. Text needs none of this.
"""

from __future__ import annotations

import atexit
import os
import struct
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Lock, Timer

from jaxlib.version import __version__ as jaxlib_version

from tinyhlo.errors import InvalidProgram
from tinyhlo.import_stablehlo.artifact import BYTECODE_MAGIC, embedded_module
from tinyhlo.runtime.cache import Cache, kept, key_of

HEADER = struct.Struct("<BQ")  # verdict, bytes that follow
READ, REFUSED = 0, 1
SECONDS = 300.0  # by the wall clock, on a busy machine; see quarantine_process for the CPU's
QUIET_SECONDS = 1.0  # a process that dies sooner after its last answer died of the file
CRASHED = "the file is damaged: MLIR's reader does not survive it"
PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:]; "
    "from tinyhlo.import_stablehlo.quarantine_process import serve; serve()"
)


def admit(source: bytes, cache: Cache | None = None) -> bytes:
    """`source` itself when it is text, else fresh bytecode of the same program.

    Raises InvalidProgram when it cannot be read.
    """
    if not source.startswith(BYTECODE_MAGIC) and embedded_module(source) is None:
        return source
    key = key_of((source, "quarantine", jaxlib_version))
    return kept(cache, key, lambda: _reader.read(source))


class ProcessDied(Exception):
    """The process ended without an answer."""


class Reader:
    """The process that reads, started when needed; it ends by itself after idle seconds.

    It has `seconds` for a file; `program` is what it runs."""

    def __init__(self, seconds: float = SECONDS, program: str = PROGRAM) -> None:
        self._seconds = seconds
        self._program = program
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._answered = 0.0

    def read(self, source: bytes) -> bytes:
        """Fresh bytecode of a program.

        Raises InvalidProgram with the parser's words, or when the process died or hung.
        """
        with self._lock:
            process = self._running()
            quiet = time.monotonic() - self._answered > QUIET_SECONDS
            try:
                if process is not None and quiet:
                    with suppress(ProcessDied):  # perhaps it was idle and left just now
                        return self._ask(process, source)
                    process = None
                return self._ask(process or self._start(), source)
            except ProcessDied as error:
                raise InvalidProgram(CRASHED) from error

    def close(self) -> None:
        """End the process, if this process started it."""
        process, self._process = self._running(), None
        if process is not None:
            process.kill()
            process.wait()

    def _running(self) -> subprocess.Popen[bytes] | None:
        process = self._process
        if process is None or self._owner != os.getpid() or process.poll() is not None:
            return None
        return process

    def _start(self) -> subprocess.Popen[bytes]:
        path = [str(Path(__file__).parents[2]), *sys.path]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", self._program, *path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            raise InvalidProgram(
                f"cannot start {sys.executable!r} to check the file: {error}; "
                "StableHLO text is read without it"
            ) from error
        self._owner = os.getpid()
        return self._process

    def _ask(self, process: subprocess.Popen[bytes], source: bytes) -> bytes:
        assert process.stdin and process.stdout
        timer = Timer(self._seconds, process.kill)
        timer.start()
        try:
            with suppress(BrokenPipeError):
                process.stdin.write(HEADER.pack(READ, len(source)) + source)
                process.stdin.flush()
            header = process.stdout.read(HEADER.size)
            if len(header) < HEADER.size:
                process.wait()
                if timer.is_alive():
                    raise ProcessDied
                raise InvalidProgram(f"the file was not read within {self._seconds:.0f} s")
            verdict, length = HEADER.unpack(header)
            payload = process.stdout.read(length)
            if len(payload) < length:
                raise ProcessDied
        finally:
            timer.cancel()
            self._answered = time.monotonic()
        if verdict != READ:
            raise InvalidProgram(payload.decode(errors="replace"))
        return payload


_reader = Reader()
atexit.register(_reader.close)
