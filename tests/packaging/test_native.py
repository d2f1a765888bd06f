"""The C library: compiles without a warning, exports what it should and nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import native
from tinyhlo.runtime import core


@pytest.mark.skipif(not native.c_compiler.of_system(), reason="no C compiler")
def test_no_warnings(tmp_path: Path) -> None:
    command = [*(native.c_compiler.of_system() or ()), *native.FLAGS, "-Werror", "-fsyntax-only"]
    define = '-DTINYHLO_VERSION="0"'
    subprocess.run([*command, define, *map(str, native.sources())], check=True, cwd=tmp_path)


def test_what_it_is_made_from() -> None:
    """Whatever changes there, and the version that it says, has it compiled again."""
    assert {*native.sources(), native.HEADER, native.VERSION} < set(native.inputs())


@pytest.mark.skipif(not shutil.which("nm"), reason="no nm")
def test_exports() -> None:
    command = ["nm", "-D", "--defined-only", str(core.LIBRARY)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = set(re.findall(r" [TW] (\w+)$", listing, re.MULTILINE))
    assert names == set(core.FUNCTIONS)


@pytest.mark.skipif(not shutil.which("ldd"), reason="no ldd")
def test_depends_on_the_c_library_alone() -> None:
    listing = subprocess.run(["ldd", str(core.LIBRARY)], capture_output=True, text=True, check=True)
    assert "python" not in listing.stdout
    assert "stdc++" not in listing.stdout
