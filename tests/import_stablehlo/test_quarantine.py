"""Damaged files: one clear error each, and this process lives on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import tinyhlo
from tinyhlo.errors import InvalidProgram, TinyhloError
from tinyhlo.import_stablehlo import import_module
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


@cache
def damaged_until_it_crashes() -> bytes:
    """A file that ends a process that reads it, by changing single bits of a good one."""
    source = sources()["bits bytecode"]
    reader = Reader(seconds=3)
    for seed in range(2000):
        damaged = bytearray(source)
        damaged[random.Random(seed).randrange(32, len(source))] ^= 1 << (seed % 8)
        try:
            reader.read(bytes(damaged))
        except InvalidProgram as error:
            if "does not survive" in str(error):
                return bytes(damaged)
    pytest.skip("this jaxlib survives everything")


def test_a_crash_is_one_error(tmp_path: Path) -> None:
    path = tmp_path / "crashes.bc"
    path.write_bytes(damaged_until_it_crashes())
    with pytest.raises(InvalidProgram, match="does not survive"):
        tinyhlo.load(path)
    path.write_bytes(sources()["dense bytecode"])
    assert len(tinyhlo.load(path).outputs) == 3  # the next file is read again


def test_a_reader_that_went_away_is_replaced() -> None:
    reader, source = Reader(), sources()["dense portable"]
    first = reader.read(source)
    assert reader._process is not None
    os.kill(reader._process.pid, signal.SIGKILL)
    reader._answered -= 60  # as if it had been idle
    assert reader.read(source) == first
    reader.close()


def test_the_command_survives(tmp_path: Path) -> None:
    path = tmp_path / "crashes.bc"
    path.write_bytes(damaged_until_it_crashes())
    ran = subprocess.run(
        [sys.executable, "-m", "tinyhlo", "run", str(path)], capture_output=True, text=True
    )
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1 and "the file is damaged" in ran.stderr


def test_a_newer_version_is_named() -> None:
    source = sources()["dense portable"]
    assert b"StableHLO_v1" in source[:24]
    newer = source.replace(b"StableHLO_v1", b"StableHLO_v9", 1)
    with pytest.raises(TinyhloError, match=r"v9\.\d+\.\d+, newer than .* upgrade jaxlib"):
        admit(newer[:-40] + bytes(40))
