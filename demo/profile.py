"""Where the time of a program goes, kernel by kernel.

In: a StableHLO module and its arguments. Out: a table of its slowest kernels.

    kernel_table(profile_module(text, arguments, calls=20), "a training step", count=5)
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from rich.table import Table

from tinyhlo.compiler import compile_module
from tinyhlo.config import Config, from_environment
from tinyhlo.report import Timing, rates, short_location


def slowest(timings: Sequence[Timing]) -> list[Timing]:
    """By time of all calls, longest first."""
    return sorted(timings, key=lambda timing: -timing.seconds)


def kernel_table(timings: Sequence[Timing], title: str, count: int | None = None) -> Table:
    """The `count` slowest kernels with their share of the whole time."""
    total = sum(timing.seconds for timing in timings) or 1.0
    table = Table(title=title, title_justify="left", title_style="", box=None, pad_edge=False)
    table.add_column("kernel", no_wrap=True, max_width=24)
    table.add_column("your line", no_wrap=True, max_width=22)
    for heading in ("share", "time", "GFLOP/s", "GB/s"):
        table.add_column(heading, justify="right", no_wrap=True, min_width=len(heading))
    for timing in slowest(timings)[:count]:
        name, location = timing.report.name, short_location(timing.report.location)
        table.add_row(name, location, f"{timing.seconds / total:.0%}", *rates(timing))
    return table


def profile_module(
    source: bytes | str, arguments: Sequence[np.ndarray], calls: int, config: Config | None = None
) -> list[Timing]:
    """Compile a StableHLO module with counters around its kernels and run it `calls` times.

    Raises what `compile_module` and the run raise.
    """
    config = config or from_environment()
    # Counters are compiled in when a trace is asked for; here only their sums are wanted.
    executable = compile_module(source, replace(config, profile=config.profile or os.devnull))
    executable(*arguments)  # first touch of memory is not the kernels' time
    before = executable.profile()
    for _ in range(calls):
        executable(*arguments)
    return [
        Timing(after.report, after.calls - first.calls, after.seconds - first.seconds)
        for after, first in zip(executable.profile(), before, strict=True)
    ]
