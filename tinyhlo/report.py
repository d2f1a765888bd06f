"""What is known of a kernel, and its time as text: the lines of TINYHLO_DEBUG=2.

In: a KernelReport, its calls, and the seconds of all of them together.

    dot_add_max_0  model.py:12      1.62 ms  82.9 GFLOP/s   3.1 GB/s
"""

from __future__ import annotations

import os
from dataclasses import field

from tinyhlo.records import dataclass


@dataclass(frozen=True, slots=True)
class KernelReport:
    """What is known of a kernel before it runs: for cost_analysis, TINYHLO_DEBUG, the viewer."""

    name: str
    location: str
    flops: int
    bytes_read: int
    bytes_written: int
    loops: object = field(default="", repr=False)

    @property
    def source(self) -> str:
        """The generated loops; written when somebody asks, as that takes time."""
        return str(self.loops)


def kernel_line(report: KernelReport, calls: int, seconds: float) -> str:
    """One kernel: name, the user's source line, time of a call of so many, GFLOP/s, GB/s; dashes
    where the clock shows no time."""
    name, location = report.name[:28], short_location(report.location)
    per_call, moved = seconds / calls, report.bytes_read + report.bytes_written
    rates = ("-", "-", "-")
    if per_call > 0.0:
        flops, bytes_ = (f"{count / per_call / 1e9:.1f}" for count in (report.flops, moved))
        rates = (duration(per_call), f"{flops} GFLOP/s", f"{bytes_} GB/s")
    return f"{name:28} {location:32} " + "  ".join(f"{text:>12}" for text in rates)


def short_location(location: str) -> str:
    """ "to/model.py:31" of "path/to/model.py:31, in loss", so that columns stay narrow."""
    path, _, rest = location.partition(":")
    line = rest.partition(",")[0]
    return os.sep.join(path.split(os.sep)[-2:]) + (f":{line}" if line else "")


def duration(seconds: float) -> str:
    """Seconds with a unit that leaves one to three digits before the point."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"
