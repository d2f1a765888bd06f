"""Where a C compiler is: $CC, the system's, or the one in the Python package `ziglang`.

The build of this package reads this file alone: it imports the standard library only.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys

HINT = "install gcc or clang, or `pip install ziglang`"


def found(architecture: str = "") -> list[str] | None:
    """The command of a C compiler for this machine, or for Linux on another architecture; None when
    there is none."""
    return of_system(architecture) or of_ziglang(architecture)


def of_system(architecture: str = "") -> list[str] | None:
    asked = os.environ.get("CC")
    if asked:
        return asked.split()
    names = (f"{architecture}-linux-gnu-gcc",) if is_other(architecture) else ("cc", "gcc", "clang")
    return next(([path] for path in map(shutil.which, names) if path), None)


def of_ziglang(architecture: str) -> list[str] | None:
    if importlib.util.find_spec("ziglang") is None:
        return None
    target = ("-target", f"{architecture}-linux-gnu") if is_other(architecture) else ()
    return [sys.executable, "-m", "ziglang", "cc", *target]


def is_other(architecture: str) -> bool:
    return architecture not in ("", platform.machine())
