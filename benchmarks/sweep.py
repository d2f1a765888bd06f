"""Time functions of one operation each, tiny and XLA:CPU alternating in one process.

    python -m benchmarks.sweep [--only REGEX] [--rounds N] [--markdown]
    python -m benchmarks.sweep --random N [--first K] [--rounds N]
    python -m benchmarks.sweep --pairs [--only REGEX] [--rounds N]

Whole programs hide a slow operation behind fast ones; here each stands alone. Prints every row, the
slowest for tiny first, and writes the slowest into their section of docs/benchmarks.md.
`--markdown` prints that section and writes nothing; with `--only`, nothing is written either, nor
with `--random`: operations K to K + N of `random_operations.py`, and with `--pairs`: two steps, one
after the other (`pairs.py`).
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
from collections.abc import Mapping
from itertools import starmap
from typing import Any

import jax
import ml_dtypes
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.operations import OPERATIONS, Operation
from benchmarks.pairs import pairs
from benchmarks.random_operations import drawn
from benchmarks.record import markdown_table, write_section
from benchmarks.runner import BACKENDS, Measured, Rows, failures, measure, ratio, warm_devices
from benchmarks.workloads import Workload

SHOWN = 30
COLUMNS = ("operation", "arguments", "tiny µs", "XLA:CPU µs", "ratio")
INTRODUCTION = """## One operation at a time

By `make bench-sweep`: {count} functions of one operation each (`benchmarks/operations.py`), medians
of both backends alternating in one process. *Ratio* is XLA:CPU's time over tiny's: the geometric
mean is {mean:.2f}, and tiny is slower in {slower}. The machine's load was {load:.0f} on {threads}
threads: above {threads}, single rows say little. Those with the smallest ratios:
"""
ARGUMENT = re.compile(r"(\w+)\[([\d,]*)\](\+?)(?:<(\d+))?")
DTYPES: dict[str, Any] = {
    "pred": "?", "i32": "i4", "u8": "u1", "u32": "u4",
    "f16": "f2", "f32": "f4", "f64": "f8", "c64": "c8", "bf16": ml_dtypes.bfloat16,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--random", type=int, default=0, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="K")
    parser.add_argument("--pairs", action="store_true")
    options = parser.parse_args()
    numbers = range(options.first, options.first + options.random)
    operations = dict(map(drawn, numbers)) if options.random else OPERATIONS
    operations = pairs() if options.pairs else operations
    chosen = {name: each for name, each in operations.items() if re.search(options.only, name)}
    devices = warm_devices()
    found: Rows = {}
    console = Console(stderr=True)
    for name, each in track(chosen.items(), console=console, description="operations"):
        found[name] = measured(name, each, devices, options.rounds)
    rows = dict(sorted(found.items(), key=lambda item: ratio(item[1])))
    if not options.markdown:
        table = Table(*COLUMNS)
        for name, row in rows.items():
            table.add_row(*cells(name, row, chosen))
        Console().print(table)
    if options.markdown:
        print(section(rows), end="")
    elif operations is OPERATIONS and not options.only:
        write_section(section(rows))
    failed = failures(rows)
    for text in failed:
        print(text, file=sys.stderr)
    return 1 if failed else 0


def measured(
    name: str, operation: Operation, devices: dict[str, Any], rounds: int
) -> dict[str, Measured]:
    """Both backends on one operation, with 64-bit types where an argument has one."""
    function, specification = operation
    texts = specification.split()
    workload = Workload(name, function, lambda: tuple(array(text) for text in texts), 0.0, 0.0)
    with jax.enable_x64("f64" in specification):
        return measure(workload, devices, rounds)


def array(text: str) -> np.ndarray:
    """`f32[3,4]+` and the like, from a fixed seed."""
    found = ARGUMENT.fullmatch(text)
    assert found is not None, text
    kind, extents, positive, bound = found.groups()
    shape = tuple(int(extent) for extent in extents.split(",") if extent)
    random = np.random.default_rng(len(text))
    if kind[0] in "iu":
        values: Any = random.integers(0, int(bound or 100), shape)
    else:
        values = random.uniform(0.05, 0.95, shape) if positive else random.standard_normal(shape)
    if kind[0] == "c":
        values = values + 1j * random.standard_normal(shape)
    return np.asarray(values < 0 if kind == "pred" else values).astype(DTYPES[kind])


def cells(
    name: str, row: dict[str, Measured], operations: Mapping[str, Operation] = OPERATIONS
) -> tuple[str, ...]:
    arguments = operations[name][1].split()
    shown = " ".join(arguments[:2]) + (" …" if len(arguments) > 2 else "")
    times = (f"{1e6 * row[backend].seconds:.0f}" for backend in BACKENDS)
    return (name, shown, *times, f"{ratio(row):.2f}")


def section(rows: Rows) -> str:
    """The section of docs/benchmarks.md."""
    ratios = [ratio(row) for row in rows.values() if ratio(row) > 0]  # not those that failed
    text = INTRODUCTION.format(
        count=len(rows),
        mean=statistics.geometric_mean(ratios),
        slower=sum(found < 1 for found in ratios),
        load=os.getloadavg()[0],
        threads=len(os.sched_getaffinity(0)),
    )
    return text + "\n" + markdown_table(COLUMNS, starmap(cells, list(rows.items())[:SHOWN]), 2)


if __name__ == "__main__":
    sys.exit(main())
