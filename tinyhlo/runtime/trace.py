"""Every call of every kernel with its time, as a file for ui.perfetto.dev (TINYHLO_PROFILE).

Generated code appends rows (kernel, begin, end) to a table; when the process ends they become
"complete events" of Chrome's trace format, one track a program.

    {"name": "matmul_add_0", "ph": "X", "ts": 12.5, "dur": 80.1, "pid": 71, "tid": 1,
     "args": {"line": "model.py:12", "GFLOP/s": 104.9, "GB/s": 2.1}}
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tinyhlo.config import file_at_exit
from tinyhlo.once import once
from tinyhlo.records import dataclass
from tinyhlo.report import KernelReport
from tinyhlo.runtime import core

CAPACITY = 1 << 20  # calls that are kept; memory is touched only as they come


@dataclass(eq=False, slots=True)
class Trace:
    """`table` has a spare last row, which all calls share that do not fit; `cursor` counts calls.
    `programs` are (name, first number, its kernels)."""

    path: str
    capacity: int = CAPACITY
    cursor: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))
    programs: list[tuple[str, int, Sequence[KernelReport]]] = field(default_factory=list)
    table: np.ndarray = field(init=False)
    numbers: int = 0
    lock: Any = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.table = np.zeros((self.capacity + 1, 3), np.int64)

    def reserve(self, count: int) -> int:
        """The first of `count` numbers for the kernels of a program."""
        with self.lock:
            first, self.numbers = self.numbers, self.numbers + count
        return first

    def addresses(self) -> tuple[int, int, int]:
        """Addresses of the table and of the count of its rows, and how many rows there are."""
        return self.table.ctypes.data, self.cursor.ctypes.data, self.capacity

    def describe(self, name: str, first: int, kernels: Sequence[KernelReport]) -> None:
        """Say what the numbers from `first` on stand for."""
        self.programs.append((name, first, kernels))

    def events(self) -> Iterator[dict[str, Any]]:
        """The calls so far, in Chrome's trace format."""
        process = os.getpid()
        known: dict[int, tuple[int, KernelReport]] = {}
        for track, (name, first, kernels) in enumerate(self.programs, 1):
            known |= {first + k: (track, kernel) for k, kernel in enumerate(kernels)}
            heading = {"ph": "M", "pid": process, "tid": track, "args": {"name": name}}
            yield {"name": "thread_name", **heading}
        kept = min(int(self.cursor[0]), self.capacity)
        for number, begin, end in self.table[:kept].tolist():
            track, kernel = known[number]
            nanoseconds = max(end - begin, 1)
            yield {
                "name": kernel.name,
                "ph": "X",
                "ts": begin / 1e3,
                "dur": nanoseconds / 1e3,
                "pid": process,
                "tid": track,
                "args": {
                    "line": kernel.location,
                    "GFLOP/s": round(kernel.flops / nanoseconds, 2),
                    "GB/s": round((kernel.bytes_read + kernel.bytes_written) / nanoseconds, 2),
                },
            }

    def write(self) -> None:
        """Write the file; a path that cannot be written is one line on stderr."""
        calls = int(self.cursor[0])
        try:
            with open(self.path, "w") as file:
                json.dump({"displayTimeUnit": "ns", "traceEvents": list(self.events())}, file)
        except OSError as error:
            print(f"tinyhlo: TINYHLO_PROFILE: {error}", file=sys.stderr)
            return
        kept = "" if calls <= self.capacity else f" (the first {self.capacity} of {calls})"
        done = f"wrote {min(calls, self.capacity)} kernel calls{kept} to {self.path}"
        print(f"tinyhlo: {done}: open it at ui.perfetto.dev", file=sys.stderr)


@once
def trace_to(path: str) -> Trace | None:
    """The trace of this process that ends in a file; none where nothing would read it.

    Raises TinyhloError where no file can be written.
    """
    if not path or path == os.devnull:
        return None
    trace = Trace(file_at_exit("profile", path))
    atexit.register(trace.write)
    atexit.register(core.library().tiny_stream_close)  # runs first: what still runs counts too
    return trace
