"""JAX's tests at the version that is installed: found, or fetched once.

Out: a folder with `tests/`, `pyproject.toml` and `modules/` (what the tests import from `jax._src`
but the wheel lacks); never JAX's own package, so that the installed one is tested.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import urllib.error
import urllib.request
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
    """The folder of JAX's tests: TINYHLO_JAX_SOURCES, or the cached download.

    Raises NoSources with what to do when there is no network.
    """
    if given := os.environ.get("TINYHLO_JAX_SOURCES"):
        folder = Path(given)
        if not (folder / "tests").is_dir():
            raise NoSources(f"TINYHLO_JAX_SOURCES={given} has no folder tests")
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
                f"TINYHLO_JAX_SOURCES to a checkout of JAX at tag jax-v{version('jax')}"
            ) from error
        unpack(archive, folder)
    return folder


def unpack(archive: bytes, folder: Path) -> None:
    """What the tests need of a source archive, moved to `folder` when it is complete."""
    scratch = folder.with_name(f"{folder.name}.{os.getpid()}")
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            path = PurePosixPath(*PurePosixPath(member.name).parts[1:])  # without jax-jax-v…/
            if not path.parts or not member.isfile():
                continue
            place = str(path) if path.parts[0] in KEPT else MODULES.get(str(path))
            content = tar.extractfile(member)
            if place is None or content is None:
                continue
            target = scratch / place
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.read())
    shutil.rmtree(folder, ignore_errors=True)
    scratch.rename(folder)
