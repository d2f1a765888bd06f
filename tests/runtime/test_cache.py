"""The code cache: what is stored comes back, what is damaged does not."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tinyhlo.config import Config, schedules_file
from tinyhlo.errors import TinyhloError
from tinyhlo.runtime.cache import TRIM_EVERY, Cache, cache_of, key_of


def test_round_trip_and_absence(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    key = key_of(["ir", b"target"])
    assert cache.load(key) is None
    assert cache.store(key, b"code")
    assert cache.load(key) == b"code"
    assert cache.load(key_of(["irtarget"])) is None


def test_damage_reads_as_absent(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    key = key_of(["x"])
    cache.store(key, b"machine code")
    (path,) = tmp_path.glob("*/*")
    for damaged in (b"", path.read_bytes()[:-1], b"\0" * 60):
        path.write_bytes(damaged)
        assert cache.load(key) is None
        cache.store(key, b"machine code")
    assert cache.load(key) == b"machine code"


def test_damage_in_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, key = Cache(tmp_path), key_of(["x"])
    cache.store(key, b"machine code")
    (path,) = tmp_path.glob("*/*")
    path.write_bytes(b"damaged")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", refuse)
    assert cache.load(key) is None


def test_trim_drops_what_was_used_longest_ago(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=5 * 140)
    keys = [key_of([str(n)]) for n in range(10)]
    for age, key in enumerate(keys):
        cache.store(key, bytes(100))
        os.utime(tmp_path / key[:2] / key, (1000 + age, 1000 + age))
    cache.load(keys[0])
    cache.trim()
    kept = [key for key in keys if cache.load(key) is not None]
    assert keys[0] in kept and keys[1] not in kept and len(kept) == 5


def test_many_caches_of_one_folder_trim_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each compilation asks for the folder anew."""
    trimmed: list[Path] = []
    monkeypatch.setattr(Cache, "trim", lambda self: trimmed.append(self.folder))
    config = Config(cache_dir=str(tmp_path))
    for number in range(8 * TRIM_EVERY):
        cache = cache_of("programs", config)
        assert cache is not None and cache.store(key_of([str(number)]), b"code")
    assert 3 <= len(trimmed) <= 16


def test_trim_passes_over_what_it_may_not_delete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path, limit=0)
    keys = [key_of([str(n)]) for n in range(2)]
    for age, key in enumerate(keys):
        cache.store(key, bytes(100))
        os.utime(tmp_path / key[:2] / key, (1000 + age, 1000 + age))
    unlink = Path.unlink

    def guarded(path: Path, missing_ok: bool = False) -> None:
        if path.name == keys[0]:
            raise PermissionError(13, "Permission denied", str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", guarded)
    cache.trim()
    assert [path.name for path in tmp_path.glob("*/*")] == [keys[0]]


def test_an_unwritable_folder_is_no_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    cache = Cache(blocked)
    assert not cache.store(key_of(["x"]), b"code")
    assert cache.load(key_of(["x"])) is None


def test_an_unwritable_folder_that_is_named_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_bytes(b"")
    config = Config(cache_dir=str(tmp_path / "file" / "cache"))
    assert cache_of("programs", config) and cache_of("objects", config)
    said = capsys.readouterr().err
    assert said.count("TINYHLO_CACHE_DIR=") == 1 and "nothing is kept there" in said


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    pwd = pytest.importorskip("pwd")

    def unknown(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_of("programs", Config()) is None
    with pytest.raises(TinyhloError, match="set HOME or TINYHLO_CACHE_DIR"):
        schedules_file(Config(beam=2))


def test_a_full_disk_keeps_no_half_of_a_file(tmp_path: Path) -> None:
    """What is larger than this process may write fails as on a full disk."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        assert not Cache(tmp_path).store(key_of(["x"]), bytes(1 << 17))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert not list(tmp_path.glob("*/*"))


def test_many_writers_of_one_key(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    key = key_of(["x"])
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: cache.store(key, bytes([n]) * 5000), range(64)))
    payload = cache.load(key)
    assert payload is not None and len(payload) == 5000 and len(set(payload)) == 1
