"""A client that is no Python program: the library starts an interpreter for itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tinyhlo.pjrt_plugin import abi
from tinyhlo.runtime import core

HERE = Path(__file__).resolve().parent


def libpython() -> Path:
    """The shared libpython of this interpreter."""
    folder = sysconfig.get_config_var("LIBDIR") or ""
    name = f"libpython{sysconfig.get_config_var('LDVERSION')}.so.1.0"
    return Path(folder) / name


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
@pytest.mark.skipif(not libpython().exists(), reason="this Python has no shared library")
@pytest.mark.parametrize("folder", ["plain", "it's here"])
def test_compile_and_run(tmp_path: Path, folder: str) -> None:
    program = tmp_path / "client"
    package = tmp_path / folder / "tinyhlo"
    package.parent.mkdir()
    package.symlink_to(core.NATIVE.parents[1])
    header = Path(abi.__file__).parent / "native"
    subprocess.run(
        ["cc", f"-I{header}", str(HERE / "client.c"), "-o", str(program), "-ldl"], check=True
    )
    result = subprocess.run(
        [str(program), str(package / "runtime" / "native" / core.LIBRARY.name)],
        env=os.environ
        | {"TINYHLO_LIBPYTHON": str(libpython()), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "2 3 4 5 "
