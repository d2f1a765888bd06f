"""Run files of JAX's tests in worker processes that may die.

In: names of files. Out: a task per file; its process is pytest with the plugins
of `tests/conformance/plugin` and of `plugin`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.conformance import foreign
from tests.conformance.foreign import pytest_task
from tests.conformance.outcomes import Group, Outcome, append, read_log
from tests.conformance.workers import Task, run_tasks
from tests.jax_suite.plugin.several_plugin import log_of
from tests.jax_suite.skips import SKIPS

PLUGINS_HOME = Path(__file__).parent / "plugin"
PLUGINS = {"jax_suite_plugin": PLUGINS_HOME}
# Files of this folder are run by several processes at once, each with devices of its own.
SEVERAL, PROCESSES, DEVICES = "multiprocess/", 4, 2
# JAX on this platform first; cpu stays for callbacks and for what the tests compare with.
DEFAULTS = {"JAX_PLATFORMS": "tiny,cpu", "JAX_SKIP_SLOW_TESTS": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(foreign.Settings):
    """`sources`: folder of JAX's tests; `cases`: generated per parametrisation; `thresholds`: the
    number that decides the compiler's, None for its own."""

    sources: Path
    x64: bool
    cases: int
    thresholds: int | None = None


def task(file: str, settings: Settings, platforms: str = "", only: Sequence[str] = ()) -> Task:
    """pytest over one file, or over some of its tests; on other platforms with logs of its own."""
    several, small = file.startswith(SEVERAL), settings.thresholds is not None
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
            **({"processes": PROCESSES} if several else {}),
        },
        variables={
            **{name: os.environ.get(name, value) for name, value in DEFAULTS.items()},
            **({"JAX_PLATFORMS": platforms} if platforms else {}),
            "JAX_ENABLE_X64": str(int(settings.x64)),
            "JAX_NUM_GENERATED_CASES": str(settings.cases),
            **({"JAX_NUM_CPU_DEVICES": str(DEVICES)} if several else {}),
            **({"THRESHOLDS": str(settings.thresholds), "TINYHLO_CACHE": "0"} if small else {}),
        },
        plugins={
            **PLUGINS,
            **({"several_plugin": PLUGINS_HOME} if several else {}),
            **({"small_plugin": PLUGINS_HOME} if small else {}),
        },
    )


def run_files(files: Sequence[str], settings: Settings, processes: int) -> Iterator[Group]:
    """Each file's outcomes as it ends; earlier results of these files are forgotten."""
    for outcomes in run_tasks([task(file, settings) for file in files], processes):
        found = of_all(outcomes, settings) if outcomes.name.startswith(SEVERAL) else outcomes
        yield beside_xla(found, settings) if found.defects else found


def of_all(outcomes: Group, settings: Settings) -> Group:
    """What the first of several processes saw, and what failed in others alone."""
    log = settings.logs / f"{outcomes.name}.jsonl"
    known = {outcome.test: outcome.outcome for outcome in outcomes.outcomes}
    for rank in range(1, PROCESSES):
        for outcome in read_log(log_of(log, rank)).finished:
            if outcome.outcome != known.get(outcome.test) == "passed":
                append(log, replace(outcome, message=f"process {rank}: {outcome.message}"))
    return Group(outcomes.name, read_log(log).finished)


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
