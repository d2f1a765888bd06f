"""Run libraries' tests, with JAX on one platform, in worker processes that may die.

In: libraries. Out: the outcomes of each on tiny, then on XLA:CPU those of its tests that did not
pass or took long, and these on tiny again, as they end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.conformance.foreign import Settings, pytest_task
from tests.conformance.outcomes import DEFECTS, Group, read_log
from tests.conformance.workers import Task, run_tasks
from tests.ecosystem.libraries import Library
from tests.ecosystem.sources import sources

# In order; cpu stays for callbacks. What cpu is asked for, tiny does again in the same company:
# some tests leave 64-bit types on for those after them.
PLATFORMS = {"tiny": "tiny,cpu", "cpu": "cpu", "again": "tiny,cpu"}
LONG_SECONDS = 1.0  # of a test: XLA's time is asked for


def task(library: Library, platform: str, most: int, settings: Settings) -> Task:
    """All tests of a library, or up to `most` of them, on tiny; then those in doubt."""
    folder = sources(library)
    files = [str(path.relative_to(folder)) for glob in library.tests for path in folder.glob(glob)]
    chosen = {"most": most} if platform == "tiny" else {"only": doubtful(library, settings)}
    return pytest_task(
        f"{library.name} on {platform}",
        log_of(library, platform, settings.logs),
        folder,
        ["--continue-on-collection-errors", *library.options, *sorted(files)],
        settings,
        asked={"skips": list(library.left_out.items()), **chosen},
        variables={
            "JAX_PLATFORMS": PLATFORMS[platform],
            "PYTHONHASHSEED": "0",  # the same tests in the same order
            **library.variables,
        },
    )


def doubtful(library: Library, settings: Settings) -> list[str]:
    """The tests that did not pass on tiny, or took long."""
    outcomes = read_log(log_of(library, "tiny", settings.logs)).finished
    return [o.test for o in outcomes if o.outcome in DEFECTS or o.seconds > LONG_SECONDS]


def log_of(library: Library, platform: str, logs: Path) -> Path:
    return logs / f"{library.name}.{platform}.jsonl"


def run_libraries(
    libraries: Sequence[Library], most: int, settings: Settings, processes: int
) -> Iterator[Group]:
    """The outcomes of each library on each platform as it ends; earlier ones are forgotten."""
    for platform in PLATFORMS:
        tasks = [task(library, platform, most, settings) for library in libraries]
        yield from run_tasks(tasks, processes)
