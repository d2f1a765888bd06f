"""What is known of a kernel, and its time as text: the lines of TINYHLO_DEBUG=2.

In: what `Executable.profile()` lists.

    dot_add_max_0  model.py:12      1.62 ms  82.9 GFLOP/s   3.1 GB/s
"""

from __future__ import annotations

import os
from dataclasses import field
from typing import NamedTuple

from tinyhlo.records import dataclass

UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


@dataclass(frozen=True, slots=True)
class KernelReport:
    """What is known of a kernel before it runs: for cost_analysis, TINYHLO_DEBUG, the viewer."""

    name: str
    location: str
    flops: int
    bytes_read: int
    bytes_written: int
    transcendentals: int = 0  # of the operations
    loops: object = field(default="", repr=False)

    @property
    def source(self) -> str:
        """The generated loops; written when somebody asks, as that takes time."""
        return str(self.loops)


class Timing(NamedTuple):
    """A kernel, how often it ran, and the seconds of all its calls."""

    report: KernelReport
    calls: int
    seconds: float


def kernel_line(timing: Timing) -> str:
    """One kernel: name, the user's source line, time of a call, GFLOP/s, GB/s."""
    name, location = timing.report.name[:28], short_location(timing.report.location)
    units = ("", " GFLOP/s", " GB/s")
    columns = (f"{text + unit:>12}" for text, unit in zip(rates(timing), units, strict=True))
    return f"{name:28} {location:32} " + "  ".join(columns)


def rates(timing: Timing) -> tuple[str, str, str]:
    """Time of a call, and billions of operations and of bytes a second; dashes where the clock
    shows no time."""
    report, calls, seconds = timing
    if seconds <= 0.0:
        return "-", "-", "-"
    moved = report.bytes_read + report.bytes_written
    flops, bytes_ = (f"{count * calls / seconds / 1e9:.1f}" for count in (report.flops, moved))
    return duration(seconds / calls), flops, bytes_


def short_location(location: str) -> str:
    """ "to/model.py:31" of "path/to/model.py:31, in loss", so that columns stay narrow."""
    path, _, rest = location.partition(":")
    line = rest.partition(",")[0]
    return os.sep.join(path.split(os.sep)[-2:]) + (f":{line}" if line else "")


def duration(seconds: float) -> str:
    """Seconds to three digits, in the largest unit that they fill."""
    scale, unit = next((each for each in UNITS if seconds >= each[0]), UNITS[-1])
    return f"{float(f'{seconds / scale:.3g}'):g} {unit}"  # 1000, not 1e+03
