"""The runner of the programs: what it reads of them, how it compares, and one program played."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conformance.outcomes import Outcome, read_log
from tests.programs import programs, worker
from tests.programs.measure import Measured, apart, read
from tests.programs.page import section
from tests.programs.programs import all_programs

OWN = '''"""A sum of two vectors."""

import jax.numpy as jnp

PACKAGES = ("jax",)
TOLERANCE = (1e-6, "float32")


def program():
    return lambda: {"sum": jnp.arange(4.0) + %s, "count": 4}
'''


def test_every_program_says_what_it_is() -> None:
    required = (Path(programs.__file__).parent / "requirements.txt").read_text()
    found = all_programs()
    assert len(found) >= 10
    for program in found:
        assert program.about
        assert program.tolerance[0] >= 0.0 and program.tolerance[1]
        assert all(f"\n{package}>=" in required for package in program.packages), program.name


@pytest.mark.parametrize(
    ("found", "expected", "difference"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.2),
        ([1.0, math.nan], [1.0, math.nan], 0.0),
        ([1.0, math.nan], [1.0, 2.0], math.inf),
        ([1.0, 2.0], [1.0, math.inf], math.inf),
        ([math.nan], [math.nan], math.inf),
        ([1e-30, 0.0], [0.0, 0.0], math.inf),
        ([1, 2], [1, 2], 0.0),
        ([1, 2], [1, 3], math.inf),
        ([1, 2], [1.0, 2.0], math.inf),
        ([[1.0]], [1.0], math.inf),
    ],
)
def test_apart(found: list[float], expected: list[float], difference: float) -> None:
    assert apart([np.array(found)], [np.array(expected)]) == pytest.approx(difference)


def test_another_number_of_results() -> None:
    assert apart([np.ones(2)], []) == math.inf


def played(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> tuple[Outcome, Measured | None]:
    """A program of ours, played by the worker."""
    folder.mkdir(exist_ok=True)
    (folder / "own.py").write_text(text)
    monkeypatch.setattr(programs, "CORPUS", folder)
    monkeypatch.setattr(worker, "CALLS", 3)
    log = folder / "log.jsonl"
    monkeypatch.setattr(sys, "argv", ["worker", "own", str(log), str(folder)])
    worker.main()
    (outcome,) = read_log(log).finished
    results = folder / "own.json"
    return outcome, read(results) if results.exists() else None


def test_a_program_on_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, measured = played(tmp_path, monkeypatch, OWN % "1")
    assert outcome.outcome == "passed", outcome.message
    assert measured is not None and measured.error == 0.0
    assert measured.tiny.compiled >= 1
    text = section([outcome], {"own": measured})
    assert "| own | 0.0e+00 |" in text and "A sum of two vectors" in text


def test_a_difference_and_a_death_are_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    differs = "len(__import__('os').environ['JAX_PLATFORMS'])"
    outcome, _ = played(tmp_path / "differs", monkeypatch, OWN % differs)
    assert (outcome.outcome, "apart" in outcome.message) == ("failed", True)
    outcome, measured = played(tmp_path / "dies", monkeypatch, OWN % "None")
    assert outcome.outcome == "failed" and measured is None
    assert outcome.message.startswith("tiny (exit status 1): TypeError")
