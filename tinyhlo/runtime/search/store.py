"""Schedules that were found, in a file that people can read, ship, and load elsewhere.

    known = Schedules(path)
    known.add(key_of_kernel(kernel, runs, target), Found("matmul_3", {"tile": "6x4"}, 861.0, 790.0))

A line of JSON for each kernel. Of lines for the same kernel the last one counts, and what cannot be
read is passed over, which is said: several processes may append to a file, and people edit it.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from functools import cache
from pathlib import Path

from tinyhlo.codegen.moves.heuristics import OFTEN
from tinyhlo.errors import CannotWrite, TinyhloError
from tinyhlo.ir.graph import Graph
from tinyhlo.records import dataclass
from tinyhlo.runtime.cache import key_of
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

SHOWN = 5  # numbers of lines
MOST_BRACKETS = 100  # of a line


@dataclass(frozen=True, slots=True)
class Found:
    """The schedule of a kernel, empty where the heuristics' is best, and the times of a call in
    microseconds: with the heuristics' schedule (`before`) and with this one."""

    kernel: str
    schedule: dict[str, str]
    before: float
    after: float

    def __str__(self) -> str:
        changes = "  ".join(f"{decision}: {answer}" for decision, answer in self.schedule.items())
        return f"{self.kernel[:32]:32} {self.before:10.1f} µs -> {self.after:10.1f} µs  {changes}"


class Schedules:
    def __init__(self, path: Path, needed: bool = False) -> None:
        """Raises TinyhloError for a file that cannot be read, or, where the schedules in it are
        `needed`, has none."""
        self.path = path
        self.found: dict[str, Found] = {}
        text, wrong = self.text(), list[int]()
        self.cut_off = bool(text) and not text.endswith("\n")  # its last line
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            try:
                key, found = read(line)
                self.found[key] = found
            except ValueError:  # written by another version, cut off, or edited
                wrong.append(number)
        if needed and not self.found:
            why = "no line of it is one of this version's" if text else "it is empty or missing"
            raise TinyhloError(
                f"no schedules in {path}: {why}; `tinyhlo tune MODEL --out {path}` searches them"
            )
        if wrong:
            say_passed_over(path, tuple(wrong))

    def text(self) -> str:
        """Raises TinyhloError for a file that exists and cannot be read."""
        try:
            return self.path.read_text()
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except (OSError, UnicodeDecodeError) as error:
            raise TinyhloError(f"cannot read the schedules in {self.path}: {error}") from error

    def add(self, key: str, found: Found) -> None:
        """Keep it, in the file too. Where that cannot be written, this process has it alone, which
        is said once."""
        self.found[key] = found
        line = "\n" * self.cut_off + json.dumps({"key": key, **asdict(found)})
        self.cut_off = False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(line + "\n")
        except OSError as error:
            say_lost(self.path, error.strerror or str(error))


def check_writable(path: Path) -> None:
    """Raises CannotWrite where schedules cannot be added to a file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a"):
            pass
    except OSError as error:
        raise CannotWrite(f"cannot write schedules to {path}: {error.strerror}") from error


def read(line: str) -> tuple[str, Found]:
    """A key, and what was found for it. Raises ValueError for what `Schedules.add` never wrote."""
    if max(line.count("["), line.count("{")) > MOST_BRACKETS:  # more than a parser's stack may hold
        raise ValueError(line)
    match json.loads(line):
        case {
            "key": str(key),
            "kernel": str(kernel),
            "schedule": dict(schedule),
            "before": int() | float() as before,
            "after": int() | float() as after,
            **others,
        } if not others and all(isinstance(answer, str) for answer in schedule.values()):
            return key, Found(kernel, schedule, before, after)
    raise ValueError(line)


@cache
def say_passed_over(path: Path, numbers: tuple[int, ...]) -> None:
    """Say once which lines of a file nobody reads."""
    shown = ", ".join(map(str, numbers[:SHOWN])) + (", ..." if numbers[SHOWN:] else "")
    print(
        f"tinyhlo: {path}: no schedules of this version, passed over: line {shown}",
        file=sys.stderr,
    )


@cache
def say_lost(path: Path, reason: str) -> None:
    """Say once that a search will have to be made again."""
    print(
        f"tinyhlo: cannot write schedules to {path}: {reason}; what is found serves this process",
        file=sys.stderr,
    )


@cache
def say_ignored(path: Path, kernel: str, answers: tuple[str, ...]) -> None:
    """Say once which answers of a kernel's schedule are none here: the heuristics' are taken."""
    print(
        f"tinyhlo: {path}: kernel {kernel} has no such choice here, heuristics choose: "
        f"{', '.join(answers)}; delete its line, and `tinyhlo tune` searches it again",
        file=sys.stderr,
    )


def key_of_kernel(kernel: Kernel, runs: float, target: Target) -> str:
    """The same in every process for kernels that compute the same on the same target."""
    graph = Graph(kernel.graph.params, kernel.graph.results, kernel.graph.effects)
    return key_of((str(graph), str(kernel.in_place), str(runs >= OFTEN), repr(target)))
