"""Run files of JAX's tests in worker processes that may die.

In: names of files. Out: a task per file; its process is pytest with the plugins
of `tests/conformance/plugin` and of `plugin`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.outcomes import Group
from tests.conformance.sections import commit
from tests.conformance.workers import Task, run_tasks
from tests.jax_suite.skips import SKIPS

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
PLUGINS = {
    "recording_plugin": CHECKOUT / "tests/conformance/plugin",
    "jax_suite_plugin": HERE / "plugin",
}
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
    paths = [*map(str, PLUGINS.values()), str(CHECKOUT), os.environ.get("PYTHONPATH", "")]
    return {
        "JAX_PLATFORMS": "tiny,cpu",
        "JAX_SKIP_SLOW_TESTS": "1",
        **os.environ,
        "JAX_ENABLE_X64": str(int(settings.x64)),
        "JAX_NUM_GENERATED_CASES": str(settings.cases),
        "TEST_ORDERS": str(orders),
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }


def task(file: str, settings: Settings) -> Task:
    """pytest over one file; what is done and what to leave out are written to a file of orders."""
    log = settings.logs / f"{file}.jsonl"
    orders = settings.logs / f"{file}.orders.json"
    skips = [(skip.test, skip.reason) for skip in SKIPS if skip.file == file]
    modules = str(settings.sources / "modules")

    def command(done: Sequence[str]) -> list[str]:
        order = {"log": str(log), "done": list(done), "skips": skips, "modules": modules}
        order |= {"prefix": f"tests/{file}.py::", "commit": commit()}
        orders.write_text(json.dumps(order))
        options = ["-q", "-s", "-p", "no:cacheprovider", "--tb=short"]
        options += [f"-p{name}" for name in PLUGINS]
        options += ["-k", settings.matching]
        return [sys.executable, "-m", "pytest", f"tests/{file}.py", *options]

    return Task(
        name=file,
        command=command,
        log=log,
        folder=settings.sources,
        environment=environment(settings, orders),
        case_limit=settings.test_limit,
        limit=settings.file_limit,
        ended_well=ENDED_WELL,
    )


def run_files(files: Sequence[str], settings: Settings, processes: int) -> Iterator[Group]:
    """Each file's outcomes as it ends; earlier results of these files are forgotten."""
    settings.logs.mkdir(parents=True, exist_ok=True)
    tasks = [task(file, settings) for file in files]
    for one in tasks:
        one.log.unlink(missing_ok=True)
        one.output.unlink(missing_ok=True)
    return run_tasks(tasks, processes)
