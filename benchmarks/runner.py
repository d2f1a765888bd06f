"""Time the workloads on tiny and on XLA:CPU, alternating, in one process.

In: names of workloads. Out: a table; `ratio` is XLA:CPU's time over tiny's, so above 1 tiny is
faster. Every call waits for its result. A round times one backend, then the other; the medians of
all rounds are compared, so that a busy moment of the machine hits both.
"""

from __future__ import annotations

import json
import math
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.workloads import WORKLOADS, Workload
from tinyhlo.check import scaled_error
from tinyhlo.errors import TinyhloError

BACKENDS = ("tiny", "cpu")
SECONDS_PER_ROUND = 0.1
FEWEST_CALLS = 3


@dataclass(frozen=True, slots=True)
class Measured:
    """One backend on one workload: median seconds of a call, cold compile time, what went wrong
    if anything did, and the largest difference from XLA:CPU over the largest magnitude."""

    seconds: float = math.nan
    compile_seconds: float = math.nan
    failure: str = ""
    error: float = math.nan


Rows = dict[str, dict[str, Measured]]  # by workload and backend


def run_benchmarks(only: str, rounds: int, json_path: Path | None, list_only: bool) -> int:
    """Run the workloads that `only` names; 0 when all of them ran and agreed.

    Raises TinyhloError for a name that fits nothing, and when JAX has no backend "tiny".
    """
    chosen = select(only)
    if list_only:
        for workload in chosen:
            print(workload.name)
        return 0
    devices = warm_devices()
    console = Console()
    rows: Rows = {}
    with console.status("") as status:
        for workload in chosen:
            status.update(workload.name)
            rows[workload.name] = measure(workload, devices, rounds)
    console.print(table(rows))
    if json_path:
        content = {
            name: {backend: asdict(measured) for backend, measured in row.items()}
            for name, row in rows.items()
        }
        json_path.write_text(json.dumps(content, indent=1) + "\n")
    failed = failures(rows)
    for text in failed:
        console.print(text, highlight=False, markup=False, emoji=False, soft_wrap=True)
    return 1 if failed else 0


def failures(rows: Rows) -> list[str]:
    """What failed, and where."""
    return [f"{n} on {b}: {m.failure}" for n, r in rows.items() for b, m in r.items() if m.failure]


def ratio(row: Mapping[str, Measured], what: str = "seconds") -> float:
    """XLA:CPU's time over tiny's."""
    return getattr(row["cpu"], what) / getattr(row["tiny"], what)


def select(only: str) -> list[Workload]:
    """Workloads whose names begin with one of the given prefixes."""
    prefixes = tuple(filter(None, only.split(",")))
    for prefix in prefixes:
        if not any(name.startswith(prefix) for name in WORKLOADS):
            raise TinyhloError(f"no benchmark is called {prefix!r}; see tinyhlo bench --list")
    return [w for name, w in WORKLOADS.items() if not prefixes or name.startswith(prefixes)]


def warm_devices() -> dict[str, jax.Device]:
    """The device of each backend, its compiler loaded: else the first compile pays for that."""
    devices = {backend: device_of(backend) for backend in BACKENDS}
    for device in devices.values():
        compile_cold(jax.jit(abs), (jax.device_put(1.0, device),), device)
    return devices


def device_of(backend: str) -> jax.Device:
    try:
        return jax.devices(backend)[0]
    except RuntimeError as error:
        raise TinyhloError(f"JAX has no backend {backend!r}: {first_line(error)}") from error


def measure(workload: Workload, devices: dict[str, jax.Device], rounds: int) -> dict[str, Measured]:
    """Both backends on one workload."""
    calls: dict[str, Callable[[], object]] = {}
    compiled: dict[str, float] = {}
    outputs: dict[str, list[np.ndarray]] = {}
    failures: dict[str, str] = {}
    for backend, device in devices.items():
        try:
            calls[backend], compiled[backend] = prepare(workload, device)
            outputs[backend] = [np.asarray(leaf) for leaf in jax.tree.leaves(calls[backend]())]
        except Exception as error:  # one workload that fails must not hide the others
            calls.pop(backend, None)
            failures[backend] = first_line(error)[:200]
    samples: dict[str, list[float]] = {backend: [] for backend in calls}
    for _ in range(rounds):
        for backend, call in calls.items():
            samples[backend] += sample(call)
    error = math.nan
    if len(outputs) == len(devices):
        error = largest_error(outputs["tiny"], outputs["cpu"])
        if not error <= workload.allowed_error:
            failures["tiny"] = f"differs from XLA:CPU, scaled error {error:.1e}"
    return {
        backend: Measured(
            statistics.median(samples[backend]) if backend in samples else math.nan,
            compiled.get(backend, math.nan),
            failures.get(backend, ""),
            error if backend == "tiny" else 0.0,
        )
        for backend in devices
    }


def first_line(error: Exception) -> str:
    """What went wrong; the kind of error where it has no text, as a bare `assert` has none."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def prepare(workload: Workload, device: jax.Device) -> tuple[Callable[[], object], float]:
    """A function that makes one blocking call, and the seconds of a cold compile."""
    arguments = jax.device_put(workload.arguments(), device)
    jax.clear_caches()
    compiled, seconds = compile_cold(jax.jit(workload.function), arguments, device)
    return lambda: jax.block_until_ready(compiled(*arguments)), seconds


def compile_cold(
    jitted: Any, arguments: Sequence[jax.Array], device: jax.Device
) -> tuple[Callable[..., object], float]:
    """The compiled function, and the seconds that it took without tiny's cache on disk."""
    lowered = jitted.lower(*arguments)
    cold = {"tinyhlo_cache": "0"} if device.platform == "tiny" else None
    started = time.perf_counter()
    compiled = lowered.compile(compiler_options=cold)
    return compiled, time.perf_counter() - started


def sample(call: Callable[[], object]) -> list[float]:
    """Seconds of calls, as many as fit into a round."""
    seconds: list[float] = []
    end = time.perf_counter() + SECONDS_PER_ROUND
    while len(seconds) < FEWEST_CALLS or time.perf_counter() < end:
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return seconds


def largest_error(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    return max(scaled_error(a, b) for a, b in zip(ours, theirs, strict=True))


def table(rows: Rows) -> Table:
    """A row for each workload, their geometric mean last."""
    processor = platform.processor() or platform.machine()
    heading = f"milliseconds a call on {processor}, jax {jax.__version__}"
    result = Table(title=heading, title_justify="left", title_style="", box=None, pad_edge=False)
    result.add_column("workload", no_wrap=True)
    columns = ("tiny", "XLA:CPU", "ratio", "GFLOP/s", "GB/s", "compile tiny", "compile XLA")
    for column in columns:
        result.add_column(column, justify="right")
    ratios: list[float] = []
    for name, row in rows.items():
        ours, theirs = row["tiny"], row["cpu"]
        faster = ratio(row)
        if not math.isnan(faster):
            ratios.append(faster)
        needed = WORKLOADS[name]
        result.add_row(
            name,
            number(1e3 * ours.seconds, ".3f"),
            number(1e3 * theirs.seconds, ".3f"),
            number(faster, ".2f"),
            number(needed.flops / ours.seconds / 1e9, ".1f"),
            number(needed.bytes / ours.seconds / 1e9, ".1f"),
            number(1e3 * ours.compile_seconds, ".0f"),
            number(1e3 * theirs.compile_seconds, ".0f"),
        )
    if ratios:
        result.add_section()
        result.add_row("geometric mean", "", "", f"{statistics.geometric_mean(ratios):.2f}")
    return result


def number(value: float, form: str) -> str:
    return "-" if math.isnan(value) else format(value, form)
