"""The search over schedules: what it finds, what it never takes, and the file it keeps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tinyhlo.cli import main
from tinyhlo.compiler import compile_module, run_stages, target_of
from tinyhlo.config import Config
from tinyhlo.errors import CannotWrite, TinyhloError
from tinyhlo.runtime.saved import place_of
from tinyhlo.runtime.search import beam
from tinyhlo.runtime.search.store import Found, Schedules, check_writable
from tinyhlo.schedule.program import Kernel

X = np.linspace(-1.0, 1.0, 256 * 200, dtype=np.float32).reshape(256, 200)
TEXT = jax.jit(lambda x: jax.nn.softmax(jnp.sin(x))).lower(X).as_text()


SECONDS = {"a": 1.0, "b": 0.8, "c": 0.5}


class Landscape:
    """A Bench of times that are known: two decisions, of which each round changes one."""

    kernel = Kernel("hills", None)  # type: ignore[arg-type]

    def __init__(self, lying: str = "") -> None:
        self.target = target_of(Config(threads=2))
        self.lying = lying  # a schedule that is fast and wrong
        self.timed: set[str] = set()

    def name(self, schedule: Any) -> str:
        return schedule.get("first", "a") + schedule.get("second", "a")

    def loops(self, schedule: Any) -> tuple[str, dict[str, tuple[str, ...]]]:
        return self.name(schedule), {"first": ("a", "b", "c"), "second": ("a", "b", "c")}

    def code(self, schedule: Any) -> str:
        return self.name(schedule)

    def results(self, code: str) -> tuple[np.ndarray, ...]:
        return (np.float32([2.0 if code == self.lying else 1.0]),)

    def race(self, codes: Sequence[str]) -> list[float]:
        self.timed.update(codes)
        return [1e-3 * SECONDS[c[0]] * SECONDS[c[1]] for c in codes]


def test_it_finds_what_takes_several_steps() -> None:
    bench = Landscape()
    found = beam.search_kernel(bench, 2)  # type: ignore[arg-type]
    assert found == Found("hills", {"first": "c", "second": "c"}, 1000.0, 250.0)
    assert bench.timed <= {"".join(pair) for pair in product("abc", repeat=2)}


def test_wrong_results_never_win() -> None:
    bench = Landscape(lying="cc")
    found = beam.search_kernel(bench, 2)  # type: ignore[arg-type]
    assert found.after == pytest.approx(400.0) and "cc" not in bench.timed


def test_schedules_are_found_once_and_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = Config(cache=0, beam=1, threads=2, schedules=str(tmp_path / "found.jsonl"))
    (first,) = run_stages(TEXT, config).compiled.found
    assert first.kernel in capsys.readouterr().err
    (again,) = run_stages(TEXT, replace(config, beam=0)).compiled.found
    assert again == first and not capsys.readouterr().err
    (y,) = compile_module(TEXT, config)(X)
    np.testing.assert_allclose(y, jax.nn.softmax(jnp.sin(X)), rtol=1e-5)


def test_a_file_of_schedules_changes_the_loops(tmp_path: Path) -> None:
    path = tmp_path / "shipped.jsonl"
    config = Config(cache=0, beam=1, threads=2, schedules=str(path))
    run_stages(TEXT, config)
    (key,) = Schedules(path).found
    Schedules(path).add(key, Found("mine", {"stage": "no"}, 2.0, 1.0))
    (loops,) = run_stages(TEXT, replace(config, beam=0)).compiled.loops
    assert not any(move.startswith("stage") for move in loops.moves)


def test_answers_that_are_none_here_are_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "older.jsonl"
    config = Config(cache=0, beam=1, threads=2, schedules=str(path))
    run_stages(TEXT, config)
    (key,) = Schedules(path).found
    asked = {"stage": "no", "rows together": "17", "decided before": "yes"}
    Schedules(path).add(key, Found("softmax", asked, 2.0, 1.0))
    capsys.readouterr()
    for _ in range(2):
        (loops,) = run_stages(TEXT, replace(config, beam=0)).compiled.loops
        assert not any(move.startswith("stage") for move in loops.moves)
    said = capsys.readouterr().err
    assert said.count("kernel softmax has no such choice here") == 1 and str(path) in said
    assert "rows together: 17, decided before: yes;" in said and "stage" not in said


def test_a_stored_program_belongs_to_its_schedules(tmp_path: Path) -> None:
    path = tmp_path / "found.jsonl"
    config = Config(cache_dir=str(tmp_path), schedules=str(path))
    plain, keys = Config(cache_dir=str(tmp_path)), set[str]()
    path.write_text("")
    for given, line in ((plain, ""), (config, "one"), (config, ""), (replace(config, beam=2), "")):
        place = place_of(TEXT, target_of(given), given)
        assert place is not None
        keys.add(place.key)
        path.write_text(path.read_text() + line)
    assert len(keys) == 4


GOOD = {"key": "k", "kernel": "sum", "schedule": {"rows": "no"}, "before": 2.0, "after": 1.0}
WRONG = (
    *('{"key": "cut of', "[]", "null", '{"key": "k", "version": 9}'),
    *(json.dumps(GOOD | {name: None}) for name in GOOD),
    *(json.dumps(GOOD | {"schedule": value}) for value in ([], {"rows": None}, {"rows": ["no"]})),
    *(json.dumps(GOOD | given) for given in ({"key": 7}, {"before": "2"}, {"later": 1})),
    "[" * 200_000,  # deeper than any stack
)


@pytest.mark.parametrize("line", WRONG)
def test_lines_that_cannot_be_read_are_passed_over(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "found.jsonl"
    path.write_text(f"{json.dumps(GOOD)}\n{line}\n\n")
    for _ in range(2):  # said once
        assert Schedules(path).found == {"k": Found("sum", {"rows": "no"}, 2.0, 1.0)}
    said = f"tinyhlo: {path}: no schedules of this version, passed over: line 2\n"
    assert capsys.readouterr().err == said


def test_what_is_added_to_a_file_that_was_cut_off_is_kept(tmp_path: Path) -> None:
    path, found = tmp_path / "found.jsonl", Found("sum", {}, 2.0, 1.0)
    path.write_text(json.dumps(GOOD)[:-5])
    schedules = Schedules(path)
    for key in ("first", "second"):
        schedules.add(key, found)
    assert Schedules(path).found == {"first": found, "second": found}


def test_what_cannot_be_read_is_searched_again(tmp_path: Path) -> None:
    config = Config(cache=0, beam=1, threads=2, schedules=str(tmp_path / "found.jsonl"))
    (first,) = run_stages(TEXT, config).compiled.found
    path = Path(config.schedules)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schedule": None}) + "\n")
    (again,) = run_stages(TEXT, config).compiled.found
    assert again.kernel == first.kernel and len(path.read_text().splitlines()) == 2


def test_a_file_that_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TinyhloError, match="cannot read the schedules"):
        Schedules(tmp_path)
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "none"):
        with pytest.raises(TinyhloError, match="no schedules in"):
            Schedules(path, needed=True)
    with pytest.raises(CannotWrite, match="cannot write schedules"):
        check_writable(tmp_path / "file" / "x.jsonl")


def test_what_cannot_be_kept_serves_this_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A search within `jax.jit`, for a user whose home cannot be written."""
    (tmp_path / "file").write_text("")
    config = Config(beam=1, schedules=str(tmp_path / "file" / "x.jsonl"), cache=0)
    assert run_stages(TEXT, config).compiled.found
    assert capsys.readouterr().err.count("cannot write schedules to") == 1


def test_tune_says_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, out = tmp_path / "model.mlir", tmp_path / "found.jsonl"
    model.write_text(TEXT)
    assert main(["tune", str(model), "--beam", "1", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "1 kernels" in printed and str(out) in printed and len(Schedules(out).found) == 1
