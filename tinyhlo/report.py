"""Time per kernel as text: the lines of TINYHLO_DEBUG=2 and the tables of the demo and the CLI.

In: `Executable.profile()`, a list of (KernelReport, calls, seconds of all calls together).
Out: lines, or a `rich` table.

    dot_add_max_0  model.py:12      1.62 ms  82.9 GFLOP/s   3.1 GB/s
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tinyhlo.config import Config, from_environment
from tinyhlo.runtime.executable import KernelReport

if TYPE_CHECKING:
    from rich.table import Table

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


def slowest(timings: Sequence[Timing]) -> list[Timing]:
    """By time of all calls, longest first."""
    return sorted(timings, key=lambda timing: -timing[2])


def kernel_table(timings: Sequence[Timing], title: str, count: int | None = None) -> Table:
    """The `count` slowest kernels with their share of the whole time."""
    from rich.table import Table

    total = sum(seconds for _, _, seconds in timings) or 1.0
    table = Table(title=title, title_justify="left", title_style="", box=None, pad_edge=False)
    table.add_column("kernel", no_wrap=True, max_width=24)
    table.add_column("your line", no_wrap=True, max_width=22)
    for heading in ("share", "time", "GFLOP/s", "GB/s"):
        table.add_column(heading, justify="right", no_wrap=True, min_width=len(heading))
    for timing in slowest(timings)[:count]:
        report, _, seconds = timing
        time_text, flops, moved = rates(timing)
        table.add_row(
            report.name,
            short_location(report.location),
            f"{seconds / total:.0%}",
            time_text,
            flops.removesuffix(" GFLOP/s"),
            moved.removesuffix(" GB/s"),
        )
    return table


def profile_module(
    source: bytes | str, arguments: Sequence[np.ndarray], calls: int, config: Config | None = None
) -> list[Timing]:
    """Compile a StableHLO module with counters around its kernels and run it `calls` times.

    Raises what `compile_module` and the run raise.
    """
    from tinyhlo.compiler import compile_module

    config = config or from_environment()
    # Counters are compiled in when a trace is asked for; here only their sums are wanted.
    executable = compile_module(source, replace(config, profile=config.profile or os.devnull))
    executable(*arguments)  # first touch of memory is not the kernels' time
    before = executable.profile()
    for _ in range(calls):
        executable(*arguments)
    return [
        (report, number - first_number, seconds - first_seconds)
        for (report, number, seconds), (_, first_number, first_seconds) in zip(
            executable.profile(), before, strict=True
        )
    ]
