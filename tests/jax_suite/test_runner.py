"""The runner of JAX's tests on a file that crashes, hangs, fails, skips and passes."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.outcomes import Group, Outcome
from tests.conformance.sections import write_section
from tests.jax_suite.page import section
from tests.jax_suite.run import Settings, run_files
from tests.jax_suite.sources import of_archive, origin, place, sources

EXAMPLE = """
import os, time, unittest

ON_XLA = os.environ["JAX_PLATFORMS"] == "cpu"

class Example(unittest.TestCase):
    def test_a_passes(self): pass
    def test_b_dies(self): ON_XLA or os.abort()
    def test_c_fails(self): self.assertTrue(ON_XLA)
    def test_d_hangs(self): ON_XLA or time.sleep(1000)
    def test_e_skipped(self): self.skipTest("not here")
    def test_f_subtest_fails(self):
        with self.subTest("one"): self.assertTrue(ON_XLA)
    def test_g_passes(self): pass
    def test_h_fails_everywhere(self): self.assertEqual(1, 2)
    def test_i_dies_here_and_fails_there(self): self.fail("there") if ON_XLA else os.abort()
"""
EXPECTED = {
    "a_passes": "passed",
    "b_dies": "crash",
    "c_fails": "failed",
    "d_hangs": "timeout",
    "e_skipped": "skipped",
    "f_subtest_fails": "failed",
    "g_passes": "passed",
    "h_fails_everywhere": "shared",
    "i_dies_here_and_fails_there": "crash",
}


def settings_of(folder: Path, limit: float) -> Settings:
    """For sources and logs in a folder; `limit`: seconds of a test."""
    logs = folder / "logs"
    return Settings(
        sources=folder / "sources", logs=logs, x64=False, cases=1, test_limit=limit, limit=300
    )


def test_deaths_are_attributed_and_the_file_goes_on(tmp_path: Path) -> None:
    tests = tmp_path / "sources" / "tests"
    tests.mkdir(parents=True)
    (tests / "example_test.py").write_text(EXAMPLE)
    settings = settings_of(tmp_path, 3)
    (outcomes,) = run_files(["example_test"], settings, processes=1)
    found = {o.test.removeprefix("Example::test_"): o.outcome for o in outcomes.outcomes}
    assert found == EXPECTED
    assert (outcomes.applicable, outcomes.count("passed")) == (7, 2)
    page = section({"all": [outcomes]})
    assert "| example_test | 7 | 2 | 2 | 3 | 1 | 1 | 0 | 28.6% |" in page
    assert "SIGABRT" in page and "h_fails_everywhere" not in page
    fine = Group("fine_test", (Outcome("one", "passed", 0.0, ""),))
    page = section({"all": [outcomes, fine]}, None, "jax-v0", "jax-tests-newest")
    assert "| the other 1 files | 1 | 1 |" in page and "h_fails_everywhere" in page
    assert "JAX's tests at jax-v0" in page and "no checkout of the tests" in page


SEVERAL = """
import unittest
import jax

class Example(unittest.TestCase):
    def test_a_together(self): self.assertEqual((jax.process_count(), jax.device_count()), (2, 4))
    def test_b_fails_in_another(self): self.assertNotEqual(jax.process_index(), 1)
    def test_c_fails_in_all(self): self.assertEqual(1, 2)
"""


def test_several_processes_run_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails in one of them is a failure, and is tried on XLA too."""
    pytest.importorskip("absl")
    monkeypatch.setattr("tests.jax_suite.run.PROCESSES", 2)
    tests = tmp_path / "sources" / "tests" / "multiprocess"
    tests.mkdir(parents=True)
    (tests / "example_test.py").write_text(SEVERAL)
    settings = settings_of(tmp_path, 60)
    (outcomes,) = run_files(["multiprocess/example_test"], settings, processes=1)
    found = {o.test.removeprefix("Example::test_"): o for o in outcomes.outcomes}
    assert {name: o.outcome for name, o in found.items()} == {
        "a_together": "passed",
        "b_fails_in_another": "failed",
        "c_fails_in_all": "shared",
    }
    assert "process 1: " in found["b_fails_in_another"].message


SMALL = """
import unittest
from tinyhlo.codegen.moves import parallel, write_out
from tinyhlo.schedule import items

class Example(unittest.TestCase):
    def test_a_has_others(self):
        own = items.LONGEST_CHAIN, items.TIMES_REPEATED, items.LARGE_SIZE, items.MANY_ROWS
        more = parallel.PARALLEL_WORK, parallel.STRIPS, parallel.SMALL_STRIP, write_out.MANY_ROWS
        usual = (1 << 10, 1 << 5, 1 << 12, 1 << 14), (1 << 17, 32, 512, 1024)
        self.assertNotEqual((own, more), usual)
"""


def test_thresholds_are_drawn_for_each_test(tmp_path: Path) -> None:
    tests = tmp_path / "sources" / "tests"
    tests.mkdir(parents=True)
    (tests / "example_test.py").write_text(SMALL)

    settings = replace(settings_of(tmp_path, 60), thresholds=2)
    (outcomes,) = run_files(["example_test"], settings, processes=1)
    assert outcomes.count("passed") == 1


def test_sources_are_unpacked_without_the_package(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name in ("tests/a_test.py", "jax/core.py", "jax/_src/hypothesis_test_util.py"):
            tar.addfile(tarfile.TarInfo(f"jax-jax-v1/{name}"))
    place(of_archive(buffer.getvalue()), tmp_path / "sources", "jax-v1")
    files = [p.relative_to(tmp_path / "sources") for p in tmp_path.rglob("*.py")]
    assert sorted(map(str, files)) == ["modules/hypothesis_test_util.py", "tests/a_test.py"]
    assert origin(tmp_path / "sources") == "jax-v1"


def test_a_checkout_is_given_without_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder jax would be imported in place of the installed one."""
    checkout = tmp_path / "checkout"
    for name in ("tests/a_test.py", "jax/core.py", "jax/_src/hypothesis_test_util.py"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("")
    monkeypatch.setenv("TINYHLO_JAX_SOURCES", str(checkout))
    monkeypatch.setattr("tests.jax_suite.sources.cache_folder", lambda: tmp_path / "cache")
    folder = sources()
    files = [p.relative_to(folder) for p in folder.rglob("*.py")]
    assert sorted(map(str, files)) == ["modules/hypothesis_test_util.py", "tests/a_test.py"]
    assert origin(folder) == "checkout"


def test_sections_are_written_one_by_one(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    write_section("jax-tests", "first", page)
    write_section("suites", "second", page)
    write_section("jax-tests", "third", page)
    text = page.read_text()
    assert "first" not in text and text.index("second") < text.index("third")
    with pytest.raises(ValueError, match="unknown section"):
        write_section("other", "", page)
