"""Run files of JAX's tests in worker processes that may die.

In: names of files. Out: a log per file (see outcomes.py). A worker that dies, or is stopped because
a test runs too long, is replaced by one that goes on after that test.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.jax_suite.outcomes import FileOutcomes, Outcome, append, read_log
from tests.jax_suite.skips import SKIPS

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
PLUGIN = "jax_suite_plugin"
POLL_SECONDS = 0.5
ENDED_WELL = (0, 1, 5)  # of pytest: all passed, some failed, none collected


@dataclass(frozen=True, slots=True)
class Settings:
    """`sources`: folder of JAX's tests; `logs`: folder of the results; limits in seconds."""

    sources: Path
    logs: Path
    x64: bool
    cases: int
    test_limit: float
    file_limit: float
    matching: str = ""


def environment(settings: Settings, orders: Path) -> dict[str, str]:
    """JAX on this platform first; cpu stays for callbacks and for what the tests compare with."""
    paths = [str(HERE / "plugin"), str(CHECKOUT), os.environ.get("PYTHONPATH", "")]
    return {
        "JAX_PLATFORMS": "tiny,cpu",
        "JAX_SKIP_SLOW_TESTS": "1",
        **os.environ,
        "JAX_ENABLE_X64": str(int(settings.x64)),
        "JAX_NUM_GENERATED_CASES": str(settings.cases),
        "JAX_SUITE_ORDERS": str(orders),
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }


@dataclass(slots=True)
class Worker:
    """One process over one file; `poll` is called until it says False."""

    file: str
    settings: Settings
    process: subprocess.Popen[bytes] | None = None
    began: float = 0.0
    test: str | None = None
    test_began: float = 0.0
    attempts: int = 0

    @property
    def log(self) -> Path:
        return self.settings.logs / f"{self.file}.jsonl"

    @property
    def output(self) -> Path:
        return self.settings.logs / f"{self.file}.output"

    def start(self) -> None:
        """A process for the tests that are not done."""
        orders = self.settings.logs / f"{self.file}.orders.json"
        done = [outcome.test for outcome in read_log(self.log).finished]
        modules = str(self.settings.sources / "modules")
        orders.write_text(
            json.dumps(
                {
                    "log": str(self.log),
                    "done": done,
                    "skips": [(skip.test, skip.reason) for skip in SKIPS if skip.file == self.file],
                    "modules": modules,
                }
            )
        )
        command = [sys.executable, "-m", "pytest", f"tests/{self.file}.py", "-p", PLUGIN, "-q"]
        command += ["-p", "no:cacheprovider", "--tb=short", "-k", self.settings.matching]
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                cwd=self.settings.sources,
                env=environment(self.settings, orders),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.attempts += 1
        self.test, self.test_began = None, time.monotonic()

    def begin(self) -> None:
        """Forget earlier results, and start."""
        self.began = time.monotonic()
        for path in (self.log, self.output):
            path.unlink(missing_ok=True)
        self.start()

    def poll(self) -> bool:
        """Whether there is more to wait for."""
        assert self.process is not None
        running, now = read_log(self.log).running, time.monotonic()
        if running != self.test:
            self.test, self.test_began = running, now
        status = self.process.poll()
        if status is not None:
            return self.ended(status)
        if now - self.began > self.settings.file_limit:
            self.stop(f"the file ran longer than {self.settings.file_limit:.0f} s")
            return False
        if running is not None and now - self.test_began > self.settings.test_limit:
            self.stop(f"longer than {self.settings.test_limit:.0f} s")
            self.start()
        return True

    def stop(self, why: str) -> None:
        """End the process; the test that runs gets a timeout."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        log = read_log(self.log)
        append(self.log, Outcome(log.running or "collection", "timeout", 0.0, why))

    def ended(self, status: int) -> bool:
        """Attribute a death to the test that was running; go on with the rest."""
        log = read_log(self.log)
        if status in ENDED_WELL and log.running is None:
            return False
        name = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        tail = self.output.read_text(errors="replace")[-1500:]
        if log.running is not None:
            append(self.log, Outcome(log.running, "crash", 0.0, f"{name}\n{tail}"))
            self.start()
            return True
        if status < 0:
            test = "end of the process" if log.collected else "collection"
            append(self.log, Outcome(test, "crash", 0.0, f"{name}\n{tail}"))
        elif not log.finished:
            append(self.log, Outcome("collection", "failed", 0.0, f"{name}\n{tail}"))
        return False


def run_files(files: Sequence[str], settings: Settings, processes: int) -> Iterator[FileOutcomes]:
    """Each file's outcomes as it ends; a line on a terminal says how far the running ones are."""
    settings.logs.mkdir(parents=True, exist_ok=True)
    waiting = [Worker(file, settings) for file in files]
    running: list[Worker] = []
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                running.append(waiting.pop(0))
                running[-1].begin()
            time.sleep(POLL_SECONDS)
            for worker in list(running):
                if not worker.poll():
                    running.remove(worker)
                    yield FileOutcomes(worker.file, read_log(worker.log).finished)
            show_progress(running)
    finally:
        for worker in running:
            if worker.process is not None and worker.process.poll() is None:
                os.killpg(worker.process.pid, signal.SIGKILL)


def show_progress(running: Sequence[Worker]) -> None:
    """lax_test 120/593, 2 not passing | nn_test 3/198"""
    if not sys.stdout.isatty():
        return
    parts = []
    for worker in running:
        log = read_log(worker.log)
        defects = len(FileOutcomes(worker.file, log.finished).defects)
        part = f"{worker.file} {len(log.finished)}/{log.collected}"
        parts.append(part + (f", {defects} not passing" if defects else ""))
    print("\r\x1b[K" + " | ".join(parts)[:150], end="", flush=True)
