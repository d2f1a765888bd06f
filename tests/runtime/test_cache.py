"""The code cache: what is stored comes back, what is damaged does not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tinyhlo.runtime.cache import Cache, key_of


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


def test_trim_drops_what_was_used_longest_ago(tmp_path: Path) -> None:
    import os

    cache = Cache(tmp_path, limit=5 * 140)
    keys = [key_of([str(n)]) for n in range(10)]
    for age, key in enumerate(keys):
        cache.store(key, bytes(100))
        os.utime(tmp_path / key[:2] / key, (1000 + age, 1000 + age))
    cache.load(keys[0])
    cache.trim()
    kept = [key for key in keys if cache.load(key) is not None]
    assert keys[0] in kept and keys[1] not in kept and len(kept) == 5


def test_an_unwritable_folder_is_no_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    cache = Cache(blocked)
    assert not cache.store(key_of(["x"]), b"code")
    assert cache.load(key_of(["x"])) is None


def test_many_writers_of_one_key(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    key = key_of(["x"])
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: cache.store(key, bytes([n]) * 5000), range(64)))
    payload = cache.load(key)
    assert payload is not None and len(payload) == 5000 and len(set(payload)) == 1
