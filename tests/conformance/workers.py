"""Work in processes that may die: a log says what is done, and a new process does the rest.

In: tasks, each a command whose process writes "start" and "end" lines of its cases to a log (see
outcomes.py) and leaves out the cases that it is told are done. Out: the outcomes of every task; the
case in which a process died, or that ran too long, is one of them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.outcomes import Group, Outcome, append, read_log

POLL_SECONDS = 0.5
TAIL = 1500  # characters of a dead process's last output


@dataclass(frozen=True, slots=True)
class Task:
    """`command(done)`: what to run, given the names of the cases that are done; `ended_well`: exit
    statuses that say that no case is left; limits in seconds, of one case and of everything."""

    name: str
    command: Callable[[Sequence[str]], Sequence[str]]
    log: Path
    folder: Path
    environment: Mapping[str, str]
    case_limit: float
    limit: float
    ended_well: tuple[int, ...] = (0,)

    @property
    def output(self) -> Path:
        return self.log.with_suffix(".output")


class Worker:
    """The process that runs a task at present; `poll` until it says False."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.began = time.monotonic()
        self.start()

    def start(self) -> None:
        """A process for the cases that are not done."""
        done = [outcome.test for outcome in read_log(self.task.log).finished]
        with self.task.output.open("ab") as output:
            self.process = subprocess.Popen(
                self.task.command(done),
                cwd=self.task.folder,
                env=dict(self.task.environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.case: str | None = None
        self.case_began = time.monotonic()

    def poll(self) -> bool:
        """Whether there is more to wait for."""
        status, now = self.process.poll(), time.monotonic()
        if status is not None:
            return self.ended(status)
        running = read_log(self.task.log).running
        if running != self.case:
            self.case, self.case_began = running, now
        if now - self.began > self.task.limit:
            self.stop(f"everything together longer than {self.task.limit:.0f} s")
            return False
        if running is not None and now - self.case_began > self.task.case_limit:
            self.stop(f"longer than {self.task.case_limit:.0f} s")
            self.start()
        return True

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def stop(self, why: str) -> None:
        """End the process; the case that runs gets a timeout."""
        self.kill()
        running = read_log(self.task.log).running
        append(self.task.log, Outcome(running or "collection", "timeout", 0.0, why))

    def ended(self, status: int) -> bool:
        """Attribute a death to the case that was running; go on with the rest."""
        log = read_log(self.task.log)
        if status in self.task.ended_well and log.running is None:
            return False
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        tail = self.task.output.read_text(errors="replace")[-TAIL:]
        if log.running is not None:
            append(self.task.log, Outcome(log.running, "crash", 0.0, f"{how}\n{tail}"))
            self.start()
            return True
        kind = "crash" if status < 0 else "failed"
        if kind == "crash" or not log.finished:
            place = "end of the process" if log.finished else "collection"
            append(self.task.log, Outcome(place, kind, 0.0, f"{how}\n{tail}"))
        return False


def run_tasks(tasks: Sequence[Task], processes: int) -> Iterator[Group]:
    """Each task's outcomes as it ends; a line on a terminal says how far the running ones are."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and so end the workers below
    waiting, running = list(tasks), []
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                running.append(Worker(waiting.pop(0)))
            time.sleep(POLL_SECONDS)
            for worker in list(running):
                if not worker.poll():
                    running.remove(worker)
                    yield Group(worker.task.name, read_log(worker.task.log).finished)
            show_progress(running)
    finally:
        for worker in running:
            worker.kill()


def show_progress(running: Sequence[Worker]) -> None:
    """lax_test 120/593, 2 not passing | nn_test 3/198"""
    if not sys.stdout.isatty():
        return
    parts: list[str] = []
    for worker in running:
        log = read_log(worker.task.log)
        defects = len(Group(worker.task.name, log.finished).defects)
        part = f"{worker.task.name} {len(log.finished)}/{log.collected}"
        parts.append(part + (f", {defects} not passing" if defects else ""))
    print("\r\x1b[K" + " | ".join(parts)[:150], end="", flush=True)
