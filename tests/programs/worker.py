"""Play a program on tiny and on XLA:CPU, call by call in turn; compare and time them.

python -m tests.programs.worker NAME LOG RESULTS [DONE]. Each platform has a process of its own
(player.py), so that each first call traces, compiles and runs as a user's would. Out: lines of LOG
(tests/conformance/outcomes.py), and if it ran on both a file in RESULTS (measure.py).
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from tests.programs.measure import Measured, Played, Tolerance, apart, write
from tests.programs.programs import CHECKOUT, named, path_of

CALLS = 15  # of each platform, at most
FEWEST = 3
BUDGET = 4.0  # seconds of calls, both platforms together
PLATFORMS = {"tiny": "tiny", "xla": "cpu"}


def main() -> None:
    name, log, results, *done = sys.argv[1:]
    with Path(log).open("a") as lines:
        say(lines, "collected", count=1)
        if name not in done:
            record(name, Path(results), lines)


def record(name: str, results: Path, log: TextIO) -> None:
    """One program, as a start and an end line."""
    say(log, "start", test=name)
    began = time.monotonic()
    outcome, message = "passed", ""
    try:
        measured = measure(name)
        write(results / f"{name}.json", measured)
        if not measured.error <= measured.tolerance.relative:
            allowed = measured.tolerance.relative
            outcome, message = "failed", f"{measured.error:.2g} apart, allowed are {allowed:.2g}"
    except PlayerDied as death:
        outcome, message = "failed", str(death)
    seconds = round(time.monotonic() - began, 3)
    say(log, "end", test=name, outcome=outcome, seconds=seconds, message=message)


def say(log: TextIO, event: str, **fields: Any) -> None:
    log.write(json.dumps({"event": event, **fields}) + "\n")
    log.flush()


class PlayerDied(Exception):
    """A process ended before its answer; the text is the end of what it wrote."""


class Process:
    """A player on one platform; its caches are off, so that compile times are cold."""

    def __init__(self, name: str, platform: str, output: TextIO) -> None:
        self.platform, self.output = platform, output
        environment = os.environ | {"JAX_PLATFORMS": PLATFORMS[platform], "TINYHLO_CACHE": "0"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.programs.player", str(path_of(name))],
            cwd=CHECKOUT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
        )

    def ask(self, line: str) -> dict[str, float]:
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("a player without pipes")
        with contextlib.suppress(BrokenPipeError):
            print(line, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise PlayerDied(self.last_words())
        return json.loads(answer)

    def last_words(self) -> str:
        """What it raised; of a native death, the signal."""
        status = self.process.wait()
        self.output.seek(0)
        said = [line for line in self.output.read().splitlines() if line.strip()]
        raised = [line for line in said if line[:1].isalpha() and "Error" in line.split(":")[0]]
        words = (raised or said or [""])[-1]
        return f"{self.platform} (exit status {status}): {words}"

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def players(name: str) -> Generator[dict[str, Process]]:
    with contextlib.ExitStack() as stack:
        started: dict[str, Process] = {}
        for platform in PLATFORMS:
            output = stack.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
            started[platform] = Process(name, platform, output)
            stack.callback(started[platform].end)
        yield started


def measure(name: str) -> Measured:
    with players(name) as platforms:
        first = {platform: process.ask("first") for platform, process in platforms.items()}
        calls = in_turn(platforms)
        with tempfile.TemporaryDirectory() as scratch:
            leaves = {
                platform: saved(process, Path(scratch) / f"{platform}.npz")
                for platform, process in platforms.items()
            }
    tiny, xla = (played(first[platform], calls[platform]) for platform in PLATFORMS)
    module = named(name)
    packages = ", ".join(f"{p} {importlib.metadata.version(p)}" for p in module.packages)
    tolerance = Tolerance(*module.tolerance)
    return Measured(name, packages, apart(leaves["tiny"], leaves["xla"]), tolerance, tiny, xla)


def in_turn(platforms: dict[str, Process]) -> dict[str, list[float]]:
    """Seconds of calls, one platform after the other while there is time."""
    calls: dict[str, list[float]] = {platform: [] for platform in platforms}
    ends = time.monotonic() + BUDGET
    for count in range(CALLS):
        if count >= FEWEST and time.monotonic() > ends:
            break
        for platform, process in platforms.items():
            calls[platform].append(process.ask("again")["seconds"])
    return calls


def saved(process: Process, path: Path) -> list[np.ndarray]:
    process.ask(f"save {path}")
    with np.load(path) as arrays:
        return [arrays[f"arr_{k}"] for k in range(len(arrays.files))]


def played(first: dict[str, float], calls: list[float]) -> Played:
    call = statistics.median(calls)
    seconds, processor = first["seconds"], first["processor"]
    return Played(seconds, processor, first["compile"], int(first["compiled"]), call)


if __name__ == "__main__":
    main()
