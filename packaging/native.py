"""Compile libtinyhlo: the C runtime core and the PJRT plugin, one shared library.

    python packaging/native.py          # into tinyhlo/runtime/native/

In: the C sources of tinyhlo. Out: the path of the library. Uses $CC, else the system's C compiler,
else the one in the Python package `ziglang`. Needs nothing but the standard library. The header of
the PJRT C API is written first (`pjrt_header.py`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pjrt_header

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "tinyhlo"
SOURCE_FOLDERS = (PACKAGE / "runtime" / "native", PACKAGE / "pjrt_plugin" / "native")
HEADER = PACKAGE / "pjrt_plugin" / "native" / "pjrt_abi.h"
SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"
LIBRARY = PACKAGE / "runtime" / "native" / f"libtinyhlo{SUFFIX}"

c_compiler = pjrt_header.module_at(PACKAGE / "runtime" / "c_compiler.py")

# -fno-semantic-interposition: calls between our own functions need no indirection.
FLAGS = (
    "-std=gnu11",
    "-O2",
    "-g0",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-fno-semantic-interposition",
    "-Wall",
    "-Wextra",
)
LIBRARIES = ("-lpthread", "-ldl", "-lm") + (() if sys.platform == "darwin" else ("-s",))


def version() -> str:
    text = (PACKAGE / "version.py").read_text()
    found = re.search(r'^VERSION = "(.+)"$', text, re.MULTILINE)
    if not found:
        raise SystemExit("tinyhlo/version.py names no VERSION")
    return found[1]


def sources() -> list[Path]:
    return sorted(path for folder in SOURCE_FOLDERS for path in folder.glob("*.c"))


def is_current() -> bool:
    """True when the library is newer than everything it is made from."""
    if not LIBRARY.exists():
        return False
    made = LIBRARY.stat().st_mtime
    inputs = [path for folder in SOURCE_FOLDERS for path in folder.glob("*.[ch]")]
    return all(path.stat().st_mtime < made for path in [*inputs, Path(__file__)])


def write_header() -> None:
    """Bring the header of the PJRT C API up to date."""
    text = pjrt_header.header(PACKAGE)
    if not HEADER.exists() or HEADER.read_text() != text:
        HEADER.write_text(text)


def build(force: bool = False) -> Path:
    """Compile the library unless it is current.

    Raises SystemExit with the compiler's words when that fails.
    """
    write_header()
    if is_current() and not force:
        return LIBRARY
    compiler = c_compiler.found()
    if compiler is None:
        raise SystemExit(f"tinyhlo needs a C compiler: {c_compiler.HINT}")
    # Built aside and moved: a running process may have the old library loaded.
    target = LIBRARY.with_name(f"{LIBRARY.name}.{os.getpid()}")
    define = f'-DTINYHLO_VERSION="{version()}"'
    command = [*compiler, *FLAGS, define, "-o", str(target), *map(str, sources()), *LIBRARIES]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        target.unlink(missing_ok=True)
        raise SystemExit(f"{' '.join(command)}\n{result.stderr}")
    target.replace(LIBRARY)
    return LIBRARY


if __name__ == "__main__":
    print(build(force="--force" in sys.argv))
