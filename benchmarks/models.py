"""Time models of real size, tiny and XLA:CPU alternating in one process.

    python -m benchmarks.models [--rounds N] [--markdown] [NAME ...]

Training steps, sampling, text, simulations: what benchmarks/networks.py, benchmarks/decoding.py and
benchmarks/simulations.py hold. Prints a row for each and writes the section of docs/benchmarks.md.
`--markdown` prints that section and writes nothing; with names, nothing is written either.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import decoding, networks, simulations  # noqa: F401  (they fill MODELS)
from benchmarks.layers import MODELS, Build
from benchmarks.record import markdown_table, write_section
from benchmarks.runner import BACKENDS, Measured, Rows, failures, measure, ratio, warm_devices
from benchmarks.workloads import Workload

ALLOWED_ERROR = 5e-2  # bf16 keeps 8 bits, and gradients add up what they lose
COLUMNS = (
    "program", "what", "tiny ms", "XLA:CPU ms", "ratio", "compile tiny s", "compile XLA s",
    "difference",
)  # fmt: skip
INTRODUCTION = """## Models of real size

By `make bench-models`: medians of both backends alternating in one process. *Compile* is cold.
*Difference* is the largest between both, over the largest magnitude. *Ratio* is XLA:CPU's time over
tiny's: the geometric mean is {mean:.2f}, of the times to compile {compiling:.2f}.
"""


def main() -> int:
    return run(MODELS, INTRODUCTION, __doc__ or "")


def run(programs: Mapping[str, Build], introduction: str, description: str) -> int:
    """Time a table of programs as the command line asks for, and write their section; 1 where one
    failed. `introduction` begins with its title and has places for the means."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(programs))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--markdown", action="store_true", help="print the section of the page")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in programs]
    if unknown:
        parser.error(f"nothing is called {', '.join(unknown)}; there are {', '.join(programs)}")
    devices = warm_devices()
    rows: Rows = {}
    chosen = options.names or list(programs)
    for name in track(chosen, console=Console(stderr=True), description="programs"):
        rows[name] = measure(workload(name, programs[name]), devices, options.rounds)
    what = {name: programs[name].__doc__ or "" for name in rows}
    text = section(rows, introduction, what)
    if options.markdown:
        print(text, end="")
    else:
        table = Table(*COLUMNS)
        for name, row in rows.items():
            table.add_row(*cells(name, what[name], row))
        Console().print(table)
    if not (options.markdown or options.names):
        write_section(text)
    failed = failures(rows)
    for text in failed:
        print(text, file=sys.stderr)
    return 1 if failed else 0


def workload(name: str, build: Build) -> Workload:
    function, arguments = build(np.random.default_rng(0))
    return Workload(name, function, lambda: arguments, 0.0, 0.0, ALLOWED_ERROR)


def cells(name: str, what: str, row: dict[str, Measured]) -> tuple[str, ...]:
    times = (f"{1e3 * row[backend].seconds:.{digits(row)}f}" for backend in BACKENDS)
    compiling = (f"{row[backend].compile_seconds:.2f}" for backend in BACKENDS)
    difference = f"{row['tiny'].error:.0e}"
    return (name, what, *times, f"{ratio(row):.2f}", *compiling, difference)


def digits(row: dict[str, Measured]) -> int:
    """Of the milliseconds of a row: three where a backend takes less than one."""
    return 3 if min(each.seconds for each in row.values()) < 1e-3 else 1


def section(rows: Rows, introduction: str, what: Mapping[str, str]) -> str:
    """The section of docs/benchmarks.md."""
    compared = [row for row in rows.values() if ratio(row) > 0]  # not those that failed
    text = introduction.format(
        mean=statistics.geometric_mean(map(ratio, compared)),
        compiling=statistics.geometric_mean(ratio(row, "compile_seconds") for row in compared),
    )
    table = (cells(name, what[name], row) for name, row in rows.items())
    return text + "\n" + markdown_table(COLUMNS, table, 2)


if __name__ == "__main__":
    sys.exit(main())
