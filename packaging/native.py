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
VERSION = PACKAGE / "version.py"
HEADER = PACKAGE / "pjrt_plugin" / "native" / "pjrt_abi.h"
SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"
LIBRARY = PACKAGE / "runtime" / "native" / f"libtinyhlo{SUFFIX}"

c_compiler = pjrt_header.module_at(PACKAGE / "runtime" / "c_compiler.py")

FLAGS = (
    "-std=gnu11",
    "-O2",
    "-g0",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
)
# Of ELF alone: calls between our own functions need no indirection; no names but the exported ones.
ELF_FLAGS = () if sys.platform == "darwin" else ("-fno-semantic-interposition", "-s")
LIBRARIES = ("-lpthread", "-ldl", "-lm")


def version() -> str:
    found = re.search(r'^VERSION = "(.+)"$', VERSION.read_text(), re.MULTILINE)
    if not found:
        raise SystemExit(f"{VERSION} names no VERSION")
    return found[1]


def sources() -> list[Path]:
    """The core's before the plugin's: macOS runs constructors in the order of linking."""
    return [path for folder in SOURCE_FOLDERS for path in sorted(folder.glob("*.c"))]


def inputs() -> list[Path]:
    """Everything that the library is made from."""
    texts = [path for folder in SOURCE_FOLDERS for path in folder.glob("*.[ch]")]
    return [*texts, VERSION, Path(__file__)]


def is_current() -> bool:
    """Whether the library is newer than all of that."""
    if not LIBRARY.exists():
        return False
    made = LIBRARY.stat().st_mtime
    return all(path.stat().st_mtime < made for path in inputs())


def write_header() -> None:
    """Bring the header of the PJRT C API up to date."""
    text = pjrt_header.header(PACKAGE)
    if not HEADER.exists() or HEADER.read_text() != text:
        HEADER.write_text(text)


def compile_to(target: Path | str) -> None:
    """Raises SystemExit with the compiler's words when it fails."""
    compiler = c_compiler.found()
    if compiler is None:
        raise SystemExit(f"tinyhlo needs a C compiler: {c_compiler.HINT}")
    flags = (*FLAGS, *ELF_FLAGS, f'-DTINYHLO_VERSION="{version()}"')
    command = [*compiler, *flags, "-o", str(target), *map(str, sources()), *LIBRARIES]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        Path(target).unlink(missing_ok=True)
        raise SystemExit(f"{' '.join(command)}\n{result.stderr}")


def build(force: bool = False) -> Path:
    """Compile the library unless it is current."""
    write_header()
    if is_current() and not force:
        return LIBRARY
    # Built aside and moved: a running process may have the old library loaded.
    target = LIBRARY.with_name(f"{LIBRARY.name}.{os.getpid()}")
    compile_to(target)
    target.replace(LIBRARY)
    return LIBRARY


if __name__ == "__main__":
    print(build(force="--force" in sys.argv))
