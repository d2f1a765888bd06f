"""Damaged files: one clear error each, and this process lives on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import tinyhlo
from tinyhlo.errors import InvalidProgram, TinyhloError
from tinyhlo.import_stablehlo import import_module, quarantine
from tinyhlo.import_stablehlo.quarantine import Reader, admit
from tinyhlo.runtime.cache import Cache
from tools.fuzz_import import FINE, mutant, outcome_of
from tools.fuzz_programs import sources

SAMPLE = 120  # of the 20,000 and more of `make fuzz`

pytest.importorskip("flatbuffers")


@pytest.mark.parametrize("first", range(0, SAMPLE, 20))
def test_damaged_files(first: int) -> None:
    found = {number: outcome_of(mutant(number)) for number in range(first, first + 20)}
    assert {n: outcome for n, outcome in found.items() if outcome not in FINE} == {}


def test_what_is_whole_is_admitted_and_remembered(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    source = sources()["loops portable"]
    clean = admit(source, cache)
    assert str(import_module(clean).graph) == str(import_module(source).graph)
    reader = Reader()  # not asked: the digest is known
    assert admit(source, cache) == clean
    assert reader._process is None


def test_text_needs_no_quarantine() -> None:
    source = sources()["dense text"]
    assert admit(source) is source


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import os; os.abort()", "does not survive"),
        ("import sys; sys.stdin.buffer.read(9); sys.exit(3)", "does not survive"),
        ("import os; os.write(1, bytes([0, 9] + [0] * 7) + b'half')", "does not survive"),
        ("import time; time.sleep(60)", "not read within 1 s"),
    ],
)
def test_a_reader_that_dies_or_hangs_is_one_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, message: str
) -> None:
    path = tmp_path / "program.bc"
    path.write_bytes(sources()["dense bytecode"])
    with monkeypatch.context() as patched:
        patched.setenv("TINYHLO_CACHE", "0")
        patched.setattr(quarantine, "_reader", Reader(seconds=1, program=program))
        with pytest.raises(InvalidProgram, match=message):
            tinyhlo.load(path)
    assert len(tinyhlo.load(path).outputs) == 3  # the next file is read again


def test_a_reader_that_went_away_is_replaced() -> None:
    reader, source = Reader(), sources()["dense portable"]
    first = reader.read(source)
    assert reader._process is not None
    os.kill(reader._process.pid, signal.SIGKILL)
    reader._answered -= 60  # as if it had been idle
    assert reader.read(source) == first
    reader.close()


def test_a_newer_version_is_named() -> None:
    source = sources()["dense portable"]
    assert b"StableHLO_v1" in source[:24]
    newer = source.replace(b"StableHLO_v1", b"StableHLO_v9", 1)
    with pytest.raises(TinyhloError, match=r"v9\.\d+\.\d+, newer than .* upgrade jaxlib"):
        admit(newer[:-40] + bytes(40))
