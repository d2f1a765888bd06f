"""What is known of a kernel, and its time as text: the lines of TINYHLO_DEBUG=2.

In: what `Executable.profile()` lists: (KernelReport, calls, seconds of all calls together).

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


# (what is known of the kernel, how often it ran, seconds of all its calls)
Timing = tuple[KernelReport, int, float]


def kernel_line(timing: Timing) -> str:
    """One kernel: name, the user's source line, time of a call, GFLOP/s, GB/s."""
    report, _, _ = timing
    name, location = report.name[:28], short_location(report.location)
    return f"{name:28} {location:32} " + "  ".join(f"{text:>12}" for text in rates(timing))


def short_location(location: str) -> str:
    """ "to/model.py:31" of "path/to/model.py:31, in loss", so that columns stay narrow."""
    path, _, rest = location.partition(":")
    line = rest.partition(",")[0]
    return os.sep.join(path.split(os.sep)[-2:]) + (f":{line}" if line else "")


def rates(timing: Timing) -> tuple[str, str, str]:
    """Time of a call, GFLOP/s and GB/s as text; a kernel that never ran has dashes."""
    report, calls, seconds = timing
    if not calls or seconds <= 0.0:
        return "-", "-", "-"
    per_call = seconds / calls
    moved = report.bytes_read + report.bytes_written
    return (
        duration(per_call),
        f"{report.flops / per_call / 1e9:.1f} GFLOP/s",
        f"{moved / per_call / 1e9:.1f} GB/s",
    )


def duration(seconds: float) -> str:
    """Seconds with a unit that leaves one to three digits before the point."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"
