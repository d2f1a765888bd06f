"""Run libraries' tests, with JAX on one platform, in worker processes that may die.

In: libraries. Out: the outcomes of each on tiny, then on XLA:CPU those of its tests that did not
pass or took long, and these on tiny again, as they end.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.outcomes import DEFECTS, Group, read_log
from tests.conformance.sections import commit
from tests.conformance.workers import Task, run_tasks
from tests.ecosystem.libraries import Library
from tests.ecosystem.sources import sources

CHECKOUT = Path(__file__).parents[2]
PLUGIN = CHECKOUT / "tests/conformance/plugin"
# In order; cpu stays for callbacks. What cpu is asked for, tiny does again in the same company:
# some tests leave 64-bit types on for those after them.
PLATFORMS = {"tiny": "tiny,cpu", "cpu": "cpu", "again": "tiny,cpu"}
LONG_SECONDS = 1.0  # of a test: XLA's time is asked for
ENDED_WELL = (0, 1, 2, 5)  # of pytest: passed, failed, with files that cannot be imported, none


@dataclass(frozen=True, slots=True)
class Settings:
    """`logs`: folder of the results; limits in seconds; `most`: tests run of a library."""

    logs: Path
    test_limit: float
    library_limit: float
    most: int
    matching: str = ""


def environment(platform: str, orders: Path) -> dict[str, str]:
    paths = [str(PLUGIN), str(CHECKOUT), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "JAX_PLATFORMS": PLATFORMS[platform],
        "PYTHONHASHSEED": "0",  # the same tests in the same order
        "TEST_ORDERS": str(orders),
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }


def task(library: Library, platform: str, settings: Settings) -> Task:
    """pytest over a library's tests; what is done and left out are written to a file of orders."""
    log = log_of(library, platform, settings.logs)
    orders = log.with_suffix(".orders.json")
    folder = sources(library)
    files = [str(path.relative_to(folder)) for glob in library.tests for path in folder.glob(glob)]

    chosen = (
        {"most": settings.most} if platform == "tiny" else {"only": doubtful(library, settings)}
    )

    def command(done: Sequence[str]) -> list[str]:
        order = {"log": str(log), "done": list(done), "skips": list(library.left_out.items())}
        order |= {"prefix": "", "commit": commit(), **chosen}
        orders.write_text(json.dumps(order))
        options = ["-q", "-precording_plugin", "-pno:cacheprovider", "--tb=short"]
        options += ["--continue-on-collection-errors", "-k", settings.matching, *library.options]
        return [sys.executable, "-m", "pytest", *options, *sorted(files)]

    return Task(
        name=f"{library.name} on {platform}",
        command=command,
        log=log,
        folder=folder,
        environment=environment(platform, orders),
        case_limit=settings.test_limit,
        limit=settings.library_limit,
        ended_well=ENDED_WELL,
    )


def doubtful(library: Library, settings: Settings) -> list[str]:
    """The tests that did not pass on tiny, or took long."""
    outcomes = read_log(log_of(library, "tiny", settings.logs)).finished
    return [o.test for o in outcomes if o.outcome in DEFECTS or o.seconds > LONG_SECONDS]


def log_of(library: Library, platform: str, logs: Path) -> Path:
    return logs / f"{library.name}.{platform}.jsonl"


def run_libraries(
    libraries: Sequence[Library], settings: Settings, processes: int
) -> Iterator[Group]:
    """The outcomes of each library on each platform as it ends; earlier ones are forgotten."""
    settings.logs.mkdir(parents=True, exist_ok=True)
    for platform in PLATFORMS:
        tasks = [task(library, platform, settings) for library in libraries]
        for one in tasks:
            one.log.unlink(missing_ok=True)
            one.output.unlink(missing_ok=True)
        yield from run_tasks(tasks, processes)
