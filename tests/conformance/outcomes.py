"""What became of a group of tests: read from the log of its workers, counted.

In: a log with lines such as `{"event": "start", "test": "LaxTest::testAdd"}`. Out: `Group`, whose
`applicable` tests are those that are neither skipped on this platform nor left out by our lists.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

DEFECTS = ("failed", "crash", "timeout")
APART = ("shared", "skipped", "excluded")  # neither passed nor a defect


@dataclass(frozen=True, slots=True)
class Outcome:
    """`outcome`: passed, failed, crash (the process died), timeout, skipped (by JAX), excluded
    (by our list), shared (XLA:CPU fails too)."""

    test: str
    outcome: str
    seconds: float
    message: str


@dataclass(frozen=True, slots=True)
class Group:
    """All tests of a file, or of a primitive."""

    name: str
    outcomes: tuple[Outcome, ...]

    def count(self, *kinds: str) -> int:
        return sum(outcome.outcome in kinds for outcome in self.outcomes)

    @property
    def applicable(self) -> int:
        return self.count("passed", *DEFECTS)

    @property
    def defects(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.outcome in DEFECTS]

    @property
    def seconds(self) -> float:
        return sum(outcome.seconds for outcome in self.outcomes)


@dataclass(frozen=True, slots=True)
class Log:
    """A log so far: what is finished, the test that is running, and of which commit."""

    finished: tuple[Outcome, ...]
    running: str | None
    collected: int
    commit: str


def read_log(path: Path) -> Log:
    """What a log says; a last line that is being written is left for the next time."""
    finished: dict[str, Outcome] = {}
    running, collected, commit = None, 0, ""
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            continue
        match event["event"]:
            case "collected":
                collected, commit = event["count"], event.get("commit", "")
            case "start":
                running = event["test"]
            case _:
                outcome = Outcome(
                    event["test"], event["outcome"], event["seconds"], event["message"]
                )
                finished[outcome.test] = outcome
                running = None
    return Log(tuple(finished.values()), running, collected, commit)


def append(path: Path, outcome: Outcome) -> None:
    """What the runner, not the worker, knows of a test: that its process died, or was stopped."""
    fields = {name: getattr(outcome, name) for name in Outcome.__slots__}
    with path.open("a") as log:
        log.write(json.dumps({"event": "end", **fields}) + "\n")


def summary(outcomes: Group) -> str:
    """lax_test: 540 of 543 passed, 2 failed, 1 crash, 48 skipped"""
    number = Counter(outcome.outcome for outcome in outcomes.outcomes)
    parts = [f"{number[kind]} {kind}" for kind in (*DEFECTS, *APART) if number[kind]]
    passed = f"{number['passed']} of {outcomes.applicable} passed"
    return f"{outcomes.name}: " + ", ".join([passed, *parts])
