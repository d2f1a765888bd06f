"""Where a C compiler is: $CC, the system's, or the one in the Python package `ziglang`.

The build of this package reads this file alone: it imports the standard library only.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys

HINT = "install gcc or clang, or `pip install ziglang`"


def found() -> list[str] | None:
    """The command of a C compiler, None when there is none."""
    return of_system() or of_ziglang()


def of_system() -> list[str] | None:
    asked = os.environ.get("CC")
    if asked:
        return asked.split()
    paths = map(shutil.which, ("cc", "gcc", "clang"))
    return next(([path] for path in paths if path), None)


def of_ziglang() -> list[str] | None:
    if importlib.util.find_spec("ziglang") is None:
        return None
    return [sys.executable, "-m", "ziglang", "cc"]
