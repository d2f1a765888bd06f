"""Real programs, `tiny` beside XLA:CPU in one process: time per call and time to compile.

    python -m benchmarks.corpus [--only REGEX] [--markdown]

The programs are saved StableHLO modules with their inputs (`tests/conformance/suites.py` finds
them). Both backends get the same module through the same PJRT calls, with arrays already on the
device; the rounds of the two alternate, and the figure is the median over the rounds.
"""

from __future__ import annotations

import argparse
import math
import pickle
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax._src import compiler, xla_bridge
from jaxlib import _jax  # type: ignore[attr-defined]
from rich.console import Console
from rich.table import Table

from benchmarks.runner import BACKENDS, first_line, warm_devices
from tests.conformance.suites import MISSING, suites_folder

ROUNDS = 9
SECONDS_PER_ROUND = 0.05
SMALL_SECONDS = 200e-6  # programs faster than this on XLA are mostly overhead


@dataclass(frozen=True, slots=True)
class Row:
    """One program: median seconds per call and seconds to compile, by backend."""

    name: str
    seconds: dict[str, float]
    compile_seconds: dict[str, float]
    problem: str = ""

    @property
    def ratio(self) -> float:
        """XLA's time over tiny's: above 1 tiny is faster."""
        return self.seconds["cpu"] / self.seconds["tiny"]

    @property
    def compile_ratio(self) -> float:
        return self.compile_seconds["cpu"] / self.compile_seconds["tiny"]


def programs(folder: Path, pattern: str) -> Iterator[tuple[str, bytes, list[np.ndarray]]]:
    """(name, MLIR bytecode, inputs) of every saved program."""
    for path in sorted((folder / "corpus").glob("*.bc")):
        if re.search(pattern, path.stem):
            saved = pickle.loads(path.with_suffix(".io.pkl").read_bytes())  # our own files
            yield path.stem, path.read_bytes(), [np.asarray(x) for x in saved["inputs"]]


def compiled(
    name: str, code: bytes, inputs: Sequence[np.ndarray]
) -> tuple[Callable[[], Any], float]:
    """(a call that waits for its results, seconds to compile) on one backend."""
    backend = xla_bridge.get_backend(name)
    device = backend.local_devices()[0]
    options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
    start = time.perf_counter()
    executable = backend.compile_and_load(code, _jax.DeviceList((device,)), options)
    seconds = time.perf_counter() - start
    given = [jax.device_put(x, device) for x in inputs]

    def call() -> Any:
        results = executable.execute_sharded(given).disassemble_into_single_device_arrays()
        for result in results:
            result[0].block_until_ready()
        return results

    return call, seconds


def measure(name: str, code: bytes, inputs: Sequence[np.ndarray]) -> Row:
    """Compile and time one program on both backends."""
    calls: dict[str, Callable[[], Any]] = {}
    compile_seconds: dict[str, float] = {}
    for backend in BACKENDS:
        try:
            calls[backend], compile_seconds[backend] = compiled(backend, code, inputs)
            calls[backend]()
        except Exception as error:  # a program that does not run is a row too
            return Row(name, {}, compile_seconds, f"{backend}: {first_line(error)}")
    rounds: dict[str, list[float]] = {backend: [] for backend in BACKENDS}
    repeats = {backend: repetitions(call) for backend, call in calls.items()}
    for _ in range(ROUNDS):
        for backend, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeats[backend]):
                call()
            rounds[backend].append((time.perf_counter() - start) / repeats[backend])
    seconds = {backend: statistics.median(times) for backend, times in rounds.items()}
    return Row(name, seconds, compile_seconds)


def repetitions(call: Callable[[], Any]) -> int:
    """How often to call in one round."""
    start = time.perf_counter()
    call()
    return max(1, int(SECONDS_PER_ROUND / (time.perf_counter() - start + 1e-9)))


def geometric_mean(values: Sequence[float]) -> float:
    return statistics.geometric_mean(values) if values else math.nan


def summary(rows: Sequence[Row]) -> list[str]:
    """How many programs run on both, and geometric means of the ratios, in sentences."""
    run = [row for row in rows if not row.problem]
    small = [row.ratio for row in run if row.seconds["cpu"] < SMALL_SECONDS]
    ratios, compiles = [row.ratio for row in run], [row.compile_ratio for row in run]
    return [
        f"{len(run)} of {len(rows)} programs run on both; geometric mean "
        f"{geometric_mean(ratios):.2f}x.",
        f"{len(small)} need under {SMALL_SECONDS * 1e6:.0f} us on XLA: geometric mean "
        f"{geometric_mean(small):.2f}x.",
        f"Time to compile, cold: geometric mean {geometric_mean(compiles):.2f}x, worst "
        f"{min(compiles, default=math.nan):.2f}x.",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus", description=__doc__)
    parser.add_argument("--only", default="", help="a regular expression on the programs' names")
    parser.add_argument("--markdown", action="store_true", help="for docs/benchmarks.md")
    options = parser.parse_args(arguments)
    folder = suites_folder()
    if folder is None:
        print(f"nothing measured: {MISSING}", file=sys.stderr)
        return 1
    jax.config.update("jax_enable_x64", True)
    warm_devices()
    console = Console(stderr=options.markdown)
    rows: list[Row] = []
    for name, code, inputs in programs(folder, options.only):
        with console.status(name):
            rows.append(measure(name, code, inputs))
    if options.markdown:
        print(markdown(rows))
        return 0
    console.print(table_of(rows))
    for line in summary(rows):
        console.print(line)
    return 0


def table_of(rows: Sequence[Row]) -> Table:
    """One line a program; ratios above 1 mean that tiny is faster."""
    table = Table("program", "tiny us", "XLA:CPU us", "ratio", "compile ms", "XLA ms", "ratio")
    for row in rows:
        if row.problem:
            table.add_row(row.name, row.problem[:60])
            continue
        times = [f"{1e6 * row.seconds[b]:.1f}" for b in BACKENDS]
        compiles = [f"{1e3 * row.compile_seconds[b]:.0f}" for b in BACKENDS]
        table.add_row(row.name, *times, f"{row.ratio:.2f}", *compiles, f"{row.compile_ratio:.2f}")
    return table


def markdown(rows: Sequence[Row]) -> str:
    """The same as a section of docs/benchmarks.md."""
    lines = [
        "## Real programs",
        "",
        "Saved modules of flax, haiku, optax, diffrax, brax, numpyro, transformers and others,",
        "called through PJRT. *Compile* is cold. Ratios above 1: tiny is faster.",
        "",
        "| program | tiny us | XLA:CPU us | ratio | compile tiny ms | compile XLA ms | ratio |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        if row.problem:
            lines.append(f"| {row.name} | {row.problem[:60]} | | | | | |")
            continue
        times = " | ".join(f"{1e6 * row.seconds[b]:.1f}" for b in BACKENDS)
        compiles = " | ".join(f"{1e3 * row.compile_seconds[b]:.0f}" for b in BACKENDS)
        lines.append(
            f"| {row.name} | {times} | {row.ratio:.2f} | {compiles} | {row.compile_ratio:.2f} |"
        )
    return "\n".join([*lines, "", " ".join(summary(rows))])


if __name__ == "__main__":
    sys.exit(main())
