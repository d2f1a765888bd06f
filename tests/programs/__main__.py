"""Run programs of PyPI packages on tiny and on XLA:CPU; write their section of
docs/conformance.md.

python -m tests.programs [NAME ...] [--limit SECONDS] [--fresh]

Results are kept in the user's cache folder, and a run that was interrupted goes on where it was;
`--fresh` forgets them. With names it runs these (again), prints their table, and writes no page.
tests/programs/requirements.txt has the packages; `make programs` makes an environment of them.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.conformance.outcomes import Group, Outcome, summary
from tests.conformance.sections import write_section
from tests.conformance.workers import Task, run_tasks
from tests.jax_suite.sources import cache_folder
from tests.programs.measure import Measured, read
from tests.programs.page import INTRODUCTION, row, section
from tests.programs.programs import CHECKOUT, all_programs

CASE_LIMIT = 300.0


def main() -> int:
    """0 when every program agrees, else 1."""
    arguments = parse()
    known = [program.name for program in all_programs()]
    unknown = sorted(set(arguments.names) - set(known))
    if unknown:
        print(f"no such programs: {', '.join(unknown)}; known: {', '.join(known)}")
        return 2
    folder = cache_folder() / "programs"
    folder.mkdir(parents=True, exist_ok=True)
    forgotten = known if arguments.fresh else arguments.names
    for name in forgotten:
        (folder / f"{name}.jsonl").unlink(missing_ok=True)
        (folder / f"{name}.json").unlink(missing_ok=True)
    outcomes, measured = run(arguments.names or known, folder, arguments.limit)
    Console(width=150).print(table(list(measured.values())))
    everything = Group("programs", tuple(outcomes))
    for outcome in everything.defects:
        print(f"{outcome.outcome} {outcome.test}: {outcome.message}")
    print(summary(everything))
    if not arguments.names:
        write_section("programs", section(outcomes, measured))
        print("wrote the programs' section of docs/conformance.md")
    return int(bool(everything.defects))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.programs")
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument("--limit", type=float, default=CASE_LIMIT, help="seconds of one program")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    return parser.parse_args()


def run(
    names: Sequence[str], folder: Path, limit: float
) -> tuple[list[Outcome], dict[str, Measured]]:
    """Outcomes in order, each said as it comes; what was measured of the programs that ran."""
    outcomes: list[Outcome] = []
    tasks = [task(name, folder, limit) for name in names]
    for group in run_tasks(tasks, 1):  # one after the other: they are timed
        outcomes += group.outcomes
        for outcome in group.outcomes:
            print(f"{outcome.outcome:8} {outcome.seconds:5.0f} s  {outcome.test}", flush=True)
    files = {name: folder / f"{name}.json" for name in names}
    return outcomes, {name: read(path) for name, path in files.items() if path.exists()}


def task(name: str, folder: Path, limit: float) -> Task:
    log = folder / f"{name}.jsonl"
    worker = [sys.executable, "-m", "tests.programs.worker", name, str(log), str(folder)]
    return Task(
        name=name,
        command=lambda done: [*worker, *done],
        log=log,
        folder=CHECKOUT,
        environment=os.environ,
        case_limit=limit,
        limit=2 * limit,
    )


def table(measured: Sequence[Measured]) -> Table:
    """The page's table, for a terminal."""
    head = INTRODUCTION.splitlines()[-2]
    shown = Table(*cells(head))
    for program in measured:
        shown.add_row(*cells(row(program)))
    return shown


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("| ").split("|")]


if __name__ == "__main__":
    sys.exit(main())
