"""Run files of JAX's tests in worker processes that may die.

In: names of files. Out: a task per file; its process is pytest with the plugins
of `tests/conformance/plugin` and of `plugin`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conformance import foreign
from tests.conformance.foreign import pytest_task
from tests.conformance.outcomes import Group, Outcome, append, read_log
from tests.conformance.workers import Task, run_tasks
from tests.jax_suite.skips import SKIPS

PLUGINS = {"jax_suite_plugin": Path(__file__).parent / "plugin"}
# JAX on this platform first; cpu stays for callbacks and for what the tests compare with.
DEFAULTS = {"JAX_PLATFORMS": "tiny,cpu", "JAX_SKIP_SLOW_TESTS": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(foreign.Settings):
    """`sources`: folder of JAX's tests; `cases`: generated per parametrisation."""

    sources: Path
    x64: bool
    cases: int


def task(file: str, settings: Settings, platforms: str = "", only: Sequence[str] = ()) -> Task:
    """pytest over one file, or over some of its tests; on other platforms with logs of its own."""
    return pytest_task(
        file,
        settings.logs / platforms / f"{file}.jsonl",
        settings.sources,
        ["-s", f"tests/{file}.py"],
        settings,
        asked={
            "skips": [(skip.test, skip.reason) for skip in SKIPS if skip.file == file],
            "modules": str(settings.sources / "modules"),
            "prefix": f"tests/{file}.py::",
            **({"only": list(only)} if only else {}),
        },
        variables={
            **{name: os.environ.get(name, value) for name, value in DEFAULTS.items()},
            **({"JAX_PLATFORMS": platforms} if platforms else {}),
            "JAX_ENABLE_X64": str(int(settings.x64)),
            "JAX_NUM_GENERATED_CASES": str(settings.cases),
        },
        plugins=PLUGINS,
    )


def run_files(files: Sequence[str], settings: Settings, processes: int) -> Iterator[Group]:
    """Each file's outcomes as it ends; earlier results of these files are forgotten."""
    for outcomes in run_tasks([task(file, settings) for file in files], processes):
        yield beside_xla(outcomes, settings) if outcomes.defects else outcomes


def beside_xla(outcomes: Group, settings: Settings) -> Group:
    """What did not pass once more, on XLA:CPU; what ends there in the same way is "shared"."""
    log = settings.logs / f"{outcomes.name}.jsonl"
    names = [outcome.test for outcome in outcomes.defects]
    for theirs in run_tasks([task(outcomes.name, settings, "cpu", names)], 1):
        found = {outcome.test: outcome for outcome in theirs.defects}
        for ours in outcomes.defects:
            other = found.get(ours.test)
            if other is not None and other.outcome == ours.outcome:
                append(log, Outcome(ours.test, "shared", ours.seconds, other.message))
    return Group(outcomes.name, read_log(log).finished)
