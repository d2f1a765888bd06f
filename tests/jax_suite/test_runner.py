"""The runner of JAX's tests on a file that crashes, hangs, fails, skips and passes."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from tests.conformance.sections import write_section
from tests.jax_suite.page import section
from tests.jax_suite.run import Settings, run_files
from tests.jax_suite.sources import unpack

EXAMPLE = """
import os, time, unittest

class Example(unittest.TestCase):
    def test_a_passes(self): pass
    def test_b_dies(self): os.abort()
    def test_c_fails(self): self.assertEqual(1, 2)
    def test_d_hangs(self): time.sleep(1000)
    def test_e_skipped(self): self.skipTest("not here")
    def test_f_subtest_fails(self):
        with self.subTest("one"): self.fail("inside")
    def test_g_passes(self): pass
"""
EXPECTED = {
    "a_passes": "passed",
    "b_dies": "crash",
    "c_fails": "failed",
    "d_hangs": "timeout",
    "e_skipped": "skipped",
    "f_subtest_fails": "failed",
    "g_passes": "passed",
}


def test_deaths_are_attributed_and_the_file_goes_on(tmp_path: Path) -> None:
    tests = tmp_path / "sources" / "tests"
    tests.mkdir(parents=True)
    (tests / "example_test.py").write_text(EXAMPLE)
    settings = Settings(
        sources=tests.parent,
        logs=tmp_path / "logs",
        x64=False,
        cases=1,
        test_limit=3,
        limit=300,
    )
    (outcomes,) = run_files(["example_test"], settings, processes=1)
    found = {o.test.removeprefix("Example::test_"): o.outcome for o in outcomes.outcomes}
    assert found == EXPECTED
    assert (outcomes.applicable, outcomes.count("passed")) == (6, 2)
    page = section({"all": [outcomes]})
    assert "| example_test | 6 | 2 | 2 | 2 | 1 | 0 | 33.3% |" in page
    assert "SIGABRT" in page and "assert 1 == 2" not in page


def test_sources_are_unpacked_without_the_package(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name in ("tests/a_test.py", "jax/core.py", "jax/_src/hypothesis_test_util.py"):
            tar.addfile(tarfile.TarInfo(f"jax-jax-v1/{name}"))
    unpack(buffer.getvalue(), tmp_path / "sources")
    files = [p.relative_to(tmp_path / "sources") for p in tmp_path.rglob("*.py")]
    assert sorted(map(str, files)) == ["modules/hypothesis_test_util.py", "tests/a_test.py"]


def test_sections_are_written_one_by_one(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    write_section("jax-tests", "first", page)
    write_section("suites", "second", page)
    write_section("jax-tests", "third", page)
    text = page.read_text()
    assert "first" not in text and text.index("second") < text.index("third")
    with pytest.raises(ValueError, match="unknown section"):
        write_section("other", "", page)
