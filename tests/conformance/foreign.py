"""Runs of pytest over tests that others wrote, as tasks (`workers.py`).

In: what to run, and what each run leaves out and is asked for. Out: tasks whose processes record
every test at once (`plugin`), and leave out those that are done when they start again.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conformance.sections import commit
from tests.conformance.workers import Task

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
RECORDING = {"recording_plugin": HERE / "plugin"}
ENDED_WELL = (0, 1, 2, 5)  # of pytest: passed, failed, with files that cannot be imported, none


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`logs`: folder of the results; limits in seconds, of a test and of a task; `matching`: as
    pytest's -k."""

    logs: Path
    test_limit: float
    limit: float
    matching: str = ""


def pytest_task(
    name: str,
    log: Path,
    folder: Path,
    arguments: Sequence[str],
    settings: Settings,
    asked: Mapping[str, Any],
    variables: Mapping[str, str],
    plugins: Mapping[str, Path] | None = None,
) -> Task:
    """pytest in `folder`, with further `plugins` from theirs. What is done, and what is `asked` of
    the recorder, are written to a file of orders. Results of an earlier run are forgotten."""
    plugins = RECORDING | dict(plugins or {})
    paths = [*map(str, plugins.values()), str(CHECKOUT), os.environ.get("PYTHONPATH", "")]
    orders = log.with_suffix(".orders.json")

    def command(done: Sequence[str]) -> list[str]:
        given = {"log": str(log), "done": list(done), "prefix": "", "commit": commit(), **asked}
        orders.write_text(json.dumps(given))
        options = ["-q", "-pno:cacheprovider", "--tb=short", "-k", settings.matching]
        options += [f"-p{plugin}" for plugin in plugins]
        return [sys.executable, "-m", "pytest", *options, *arguments]

    task = Task(
        name=name,
        command=command,
        log=log,
        folder=folder,
        environment={
            **os.environ,
            **variables,
            "TEST_ORDERS": str(orders),
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        },
        case_limit=settings.test_limit,
        limit=settings.limit,
        ended_well=ENDED_WELL,
    )
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    task.output.unlink(missing_ok=True)
    return task
