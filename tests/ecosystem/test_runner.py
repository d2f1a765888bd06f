"""The runner of libraries' tests on a library whose tests pass, fail and die by platform."""

from __future__ import annotations

import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.conformance.foreign import Settings
from tests.ecosystem.__main__ import comparison
from tests.ecosystem.libraries import Library
from tests.ecosystem.page import section
from tests.ecosystem.run import run_libraries
from tests.ecosystem.sources import normal, unpack

EXAMPLE = """
import os
import pytest
ours = os.environ["JAX_PLATFORMS"] == "tiny,cpu"

def test_a_passes(): pass
def test_b_fails(): assert False
def test_c_fails_on_tiny(): assert not ours, "other numbers"
def test_d_dies_on_tiny(): os.abort() if ours else None
def test_e_is_known(): assert not ours, "whose name is tiny"
def test_f_is_left_out(): assert False
def test_g_passes(): pass
@pytest.mark.xfail
def test_h_is_expected_to_fail(): assert False
"""


def test_what_fails_is_held_against_xla(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(
        "pytest",  # whose version is asked for
        ("tests",),
        left_out={"test_f": "needs a network"},
        known={"name is tiny": "reads the platform's name"},
    )
    folder = tmp_path / f"pytest-{version('pytest')}" / "tests"
    folder.mkdir(parents=True)
    (folder / "test_example.py").write_text(EXAMPLE)
    monkeypatch.setenv("TINYHLO_ECOSYSTEM_SOURCES", str(tmp_path))
    settings = Settings(logs=tmp_path / "logs", test_limit=60, limit=300)
    ours, theirs, again = run_libraries([library], 100, settings, processes=1)
    assert (ours.count("passed"), ours.applicable, theirs.applicable) == (2, 6, 4)
    assert again.applicable == 4
    one = comparison(library, settings.logs)
    assert one is not None
    assert [test.partition("::")[2] for test, _ in one.unexplained] == [
        "test_c_fails_on_tiny",
        "test_d_dies_on_tiny",
    ]
    page = section([one])
    assert f"| pytest | {version('pytest')} | 6 | 2 | 1 | 3 | 1 |" in page
    assert "* 1 of pytest: reads the platform's name" in page and "test_e_is_known" not in page
    assert "other numbers" in page and "SIGABRT" in page and "needs a network" in page


def test_an_archive_is_unpacked_under_the_librarys_name(tmp_path: Path) -> None:
    archive = tmp_path / "dm_haiku-0.1.tar.gz"
    with tarfile.open(archive, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("dm_haiku-0.1/haiku/a_test.py"))
    assert normal(archive) == "dm-haiku-0.1"
    unpack(archive, tmp_path / "dm-haiku-0.1")
    assert [path.name for path in tmp_path.iterdir()] == ["dm-haiku-0.1"]
    assert (tmp_path / "dm-haiku-0.1/haiku/a_test.py").is_file()
