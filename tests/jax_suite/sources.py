"""JAX's tests at the version that is installed: found, or fetched once.

Out: a folder with `tests/`, `pyproject.toml`, `modules/` (what the tests import from `jax._src`
but the wheel lacks) and `origin` (whose tests they are); never JAX's own package, so that the
installed one is tested.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path, PurePosixPath

import platformdirs

URL = "https://codeload.github.com/jax-ml/jax/tar.gz/refs/tags/jax-v{version}"
KEPT = ("tests", "conftest.py", "pyproject.toml", "examples", "benchmarks")
MODULES = {"jax/_src/hypothesis_test_util.py": "modules/hypothesis_test_util.py"}


class NoSources(Exception):
    """JAX's tests are neither here nor to be had."""


def cache_folder() -> Path:
    """Where sources and results are kept."""
    return Path(platformdirs.user_cache_dir("tinyhlo")) / "jax-suite" / version("jax")


def sources() -> Path:
    """The folder of JAX's tests: those of the checkout TINYHLO_JAX_SOURCES, or the cached download.

    Raises NoSources with what to do when there is no network.
    """
    if given := os.environ.get("TINYHLO_JAX_SOURCES"):
        if not (Path(given) / "tests").is_dir():
            raise NoSources(f"TINYHLO_JAX_SOURCES={given} has no folder tests")
        folder = cache_folder() / "given"
        place(of_checkout(Path(given)), folder, described(Path(given)))
        return folder
    folder = cache_folder() / "sources"
    if not (folder / "tests").is_dir():
        url = URL.format(version=version("jax"))
        print(f"fetching JAX's tests from {url} ...", flush=True)
        try:
            with urllib.request.urlopen(url, timeout=60) as response:
                archive = response.read()
        except (urllib.error.URLError, TimeoutError) as error:
            raise NoSources(
                f"cannot fetch JAX's tests ({error}): connect to the network, or set "
                f"TINYHLO_JAX_SOURCES to a checkout of JAX at tag jax-v{version('jax')}, or near it"
            ) from error
        place(of_archive(archive), folder, f"jax-v{version('jax')}")
    return folder


def origin(folder: Path) -> str:
    """Whose tests are in a folder of `sources`: a tag, or what git calls a commit."""
    file = folder / "origin"
    return file.read_text() if file.is_file() else f"jax-v{version('jax')}"


def described(checkout: Path) -> str:
    """jax-v0.11.0-510-gcec06d116c; the folder's name outside of git"""
    command = ["git", "-C", str(checkout), "describe", "--tags", "--always"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or checkout.name


Files = Iterator[tuple[PurePosixPath, bytes]]


def of_archive(archive: bytes) -> Files:
    """The files of a source archive, by their paths in JAX's repository."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isfile() else None
            if content is not None:  # without jax-jax-v…/
                yield PurePosixPath(*PurePosixPath(member.name).parts[1:]), content.read()


def of_checkout(checkout: Path) -> Files:
    """The same of a checkout, as far as the tests need them."""
    for name in (*KEPT, *MODULES):
        found = checkout / name
        for file in sorted(found.rglob("*")) if found.is_dir() else [found]:
            if file.is_file():
                yield PurePosixPath(file.relative_to(checkout)), file.read_bytes()


def place(files: Files, folder: Path, tag: str) -> None:
    """What the tests need of JAX's files, moved to `folder` when it is complete."""
    scratch = folder.with_name(f"{folder.name}.{os.getpid()}")
    for path, content in files:
        wanted = path.parts and path.parts[0] in KEPT
        name = str(path) if wanted else MODULES.get(str(path))
        if name is None:
            continue
        target = scratch / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    (scratch / "origin").write_text(tag)
    shutil.rmtree(folder, ignore_errors=True)
    scratch.rename(folder)
