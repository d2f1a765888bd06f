"""A folder of compiled code, shared by all processes of a user, never trusted blindly.

    cache = cache_of("objects", config)       # None: TINYHLO_CACHE=0
    code = cache.load(key)                    # bytes, or None: absent or damaged
    cache.store(key, code)

A file holds a magic word, the SHA-256 of its payload, and the payload. It is written under a
temporary name and renamed, so readers see all of it or nothing. A damaged file reads as absent.
When the folder outgrows `limit` bytes, the files used longest ago go first. A folder that cannot
be written is not an error: the program just compiles again (one that the user has named is said to
be none).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from tinyhlo.config import Config, cache_folder, variable
from tinyhlo.errors import TinyhloError
from tinyhlo.records import dataclass

MAGIC = b"tinyhlo1"
DIGEST_BYTES = 32
DEFAULT_LIMIT = 1 << 30
TRIM_EVERY = 64  # keys to one whose store looks at the folder's size; no process counts them


def key_of(parts: Iterable[str | bytes]) -> str:
    """A file name for what `parts` describe; each part is delimited, so none can imitate two."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Cache:
    """`folder` is created at the first store."""

    folder: Path
    limit: int = DEFAULT_LIMIT

    def load(self, key: str) -> bytes | None:
        """The payload stored under `key`, or None."""
        path = self.path(key)
        try:
            payload = payload_of(path.read_bytes())
        except OSError:
            return None
        if payload is None:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):  # a read-only folder is still a good cache
            os.utime(path)  # the time of last use, for `trim`
        return payload

    def store(self, key: str, payload: bytes) -> bool:
        """Keep `payload`; False when the folder cannot be written."""
        path = self.path(key)
        temporary = ""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
            with os.fdopen(handle, "wb") as file:
                file.write(MAGIC + hashlib.sha256(payload).digest() + payload)
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):  # half a file on a full disk
                os.unlink(temporary)
            return False
        if int(key[-4:], 16) % TRIM_EVERY == 0:
            self.trim()
        return True

    def trim(self) -> None:
        """Delete the files used longest ago until the folder holds at most `limit` bytes."""
        found: list[tuple[float, int, Path]] = []
        for path in self.folder.glob("*/*"):
            try:
                status = path.stat()
            except OSError:
                continue  # another process deleted it
            found.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self.limit:
                return
            with contextlib.suppress(OSError):  # another user's
                path.unlink(missing_ok=True)
                total -= size

    def path(self, key: str) -> Path:
        return self.folder / key[:2] / key


def payload_of(raw: bytes) -> bytes | None:
    """What a file of a cache holds; None where it is damaged."""
    start = len(MAGIC) + DIGEST_BYTES
    payload = raw[start:]
    return payload if raw[:start] == MAGIC + hashlib.sha256(payload).digest() else None


def cache_of(name: str, config: Config) -> Cache | None:
    """The folder of this name in the user's cache; None when nothing is to be kept."""
    if not config.cache:
        return None
    try:
        folder = cache_folder(config)
    except TinyhloError:  # a user without a home compiles again, as where no folder can be written
        return None
    if config.cache_dir:
        check_named(folder)
    return Cache(folder / name)


@cache
def check_named(folder: Path) -> None:
    """Say once that a folder which the user has named cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        name, why = variable("cache_dir"), error.strerror or str(error)
        print(f"tinyhlo: {name}={folder}: {why}; nothing is kept there", file=sys.stderr)


def kept(cache: Cache | None, key: str, make: Callable[[], bytes]) -> bytes:
    """What is stored under `key`, or what `make` gives, stored from now on."""
    payload = cache.load(key) if cache else None
    if payload is None:
        payload = make()
        if cache:
            cache.store(key, payload)
    return payload
