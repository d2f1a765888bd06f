"""The tests of a library at the version that is installed: found, or fetched once.

Out: the folder of its source archive, from PyPI through pip, or from its repository's tag.
TINYHLO_ECOSYSTEM_SOURCES names a folder of such folders (`optax-0.2.8`) where there is no network.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from importlib.metadata import version
from pathlib import Path

import platformdirs

from tests.ecosystem.libraries import Library

ARCHIVE = "https://codeload.github.com/{repository}/tar.gz/refs/tags/{tag}"


class NoSources(Exception):
    """A library's tests are neither here nor to be had."""


def cache_folder() -> Path:
    """Where sources and results are kept."""
    return Path(platformdirs.user_cache_dir("tinyhlo")) / "ecosystem"


def sources(library: Library) -> Path:
    """The folder of a library's source archive; raises NoSources."""
    kept = os.environ.get("TINYHLO_ECOSYSTEM_SOURCES", cache_folder() / "sources")
    folder = Path(kept) / f"{library.name}-{version(library.name)}"
    if not folder.is_dir():
        archive = folder.with_name(f"{folder.name}.tar.gz")
        archive.parent.mkdir(parents=True, exist_ok=True)
        (from_repository if library.repository else from_pypi)(library, archive)
        unpack(archive, folder)
    return folder


def from_pypi(library: Library, archive: Path) -> None:
    wanted = f"{library.name}=={version(library.name)}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--no-binary", library.name, "--dest", str(archive.parent), wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    stem = archive.name.removesuffix(".tar.gz")
    found = [path for path in archive.parent.glob("*.tar.gz") if normal(path) == normal(stem)]
    if done.returncode or not found:
        raise NoSources(f"pip cannot download the sources of {wanted}: {done.stderr.strip()}")
    found[0].rename(archive)


def normal(name: Path | str) -> str:
    """dm_haiku-0.0.17.tar.gz -> dm-haiku-0.0.17"""
    return Path(name).name.removesuffix(".tar.gz").replace("_", "-").lower()


def from_repository(library: Library, archive: Path) -> None:
    named = library.repository.format(version=version(library.name))
    repository, _, tag = named.partition("@")
    url = ARCHIVE.format(repository=repository, tag=tag)
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            archive.write_bytes(response.read())
    except (urllib.error.URLError, TimeoutError) as error:
        raise NoSources(f"cannot fetch {url} ({error})") from error


def unpack(archive: Path, folder: Path) -> None:
    """The one folder that a source archive holds, under another name; the archive goes."""
    scratch = folder.with_name(f"{folder.name}.{os.getpid()}")
    with tarfile.open(archive) as tar:
        tar.extractall(scratch, filter="data")
    (inner,) = scratch.iterdir()
    inner.rename(folder)
    scratch.rmdir()
    archive.unlink()
