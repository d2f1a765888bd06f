"""What users set: one table, read once from the environment into a frozen `Config`.

The same options per function: `jax.jit(f, compiler_options={"tinyhlo_debug": "2"})`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from tinyhlo.devices import DEVICES
from tinyhlo.errors import TinyhloError
from tinyhlo.records import dataclass


def option(default: Any, meaning: str) -> Any:
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True, slots=True)
class Config:
    """Every option, with its default and what it means."""

    device: str = option(
        "CPU",
        "device that runs programs; CL is the first of its kind, CL:1 the second. "
        + "; ".join(f"{name}: {kind.meaning}" for name, kind in DEVICES.items()),
    )
    emulate: int = option(
        0, "1: device QCOM is the first OpenCL device that has images, whoever made it: for tests"
    )
    debug: int = option(
        0,
        "1: a line per compiled program; 2: a line per call of a kernel with time, GFLOP/s, GB/s; "
        "3: the Program; 4: generated code; 5: the Graph; 6: machine code",
    )
    verify: int = option(
        0, "1: check each graph, and that no kernel reads memory that it or another has overwritten"
    )
    beam: int = option(
        0, "width of the search for faster schedules, kernel by kernel (0: heuristics only)"
    )
    schedules: str = option(
        "",
        "file of schedules to use, and to add to while BEAM searches (empty: none; while BEAM "
        "searches, one in the cache's folder)",
    )
    cpu: str = option(
        "", "processor that code is made for, as x86-64-v2 or x86-64-v3 (empty: this machine's)"
    )
    flush: int = option(
        0,
        "1: on a processor, denormal numbers (float32 below 1.2e-38) are zero, as in XLA's "
        "programs: Intel's take many times as long for them as for others",
    )
    graphs: int = option(
        1,
        "0: device NV is given every kernel of every call; else calls that come again on the same "
        "memory are CUDA graphs, which are recorded once",
    )
    tf32: int = option(
        0,
        "1: on GPUs that have TF32 (NVIDIA's from sm_80 on), products and convolutions of float32 "
        "of which a program asks no precision round their factors to 10 bits, as XLA's do",
    )
    threads: int = option(0, "worker threads (0: one per core that this process may use)")
    cache: int = option(1, "0: do not use the on-disk cache of compiled programs")
    cache_dir: str = option("", "folder of that cache (empty: the user's cache folder)")
    devices: int = option(
        0, "devices to pretend, all of them this CPU (0: as many as XLA's cpu is told to, else one)"
    )
    platform: str = option(
        "",
        "what `device.platform` and `jax.default_backend()` say, for programs that know platforms "
        "by their names alone, as cpu (empty: tiny)",
    )
    profile: str = option("", "write a Perfetto trace of kernels to this file")
    viz: str = option(
        "",
        "write a page for a browser, with every form of every program, to this file (1: "
        "tinyhlo.html)",
    )


NO_SCHEDULES = "device {}: schedules are searched for processors alone: set TINYHLO_DEVICE=CPU"
OPTIONS: dict[str, str] = {field.name: field.metadata["meaning"] for field in fields(Config)}


def variable(name: str) -> str:
    """The variable of the environment that sets an option."""
    return f"TINYHLO_{name.upper()}"


def from_environment() -> Config:
    """Read TINYHLO_<OPTION> for every option; what is nearly one is a line on stderr.

    Raises TinyhloError when a number is expected and something else is given.
    """
    variables = {variable(name): name for name in OPTIONS}
    for name in os.environ:
        if name.startswith(variable("")) and name not in variables:
            warn_of_slip(name, tuple(variables))
    given = {name: os.environ[asked] for asked, name in variables.items() if asked in os.environ}
    return with_options(Config(), given, variable)


@cache
def warn_of_slip(name: str, known: tuple[str, ...]) -> None:
    """Say once that a variable is no option where it looks like one: TINYHLO_DEVCE."""
    from difflib import get_close_matches

    for near in get_close_matches(name, known, 1, 0.85):
        print(f"tinyhlo: {name} is no option: {near}?", file=sys.stderr)


def with_options(
    config: Config, options: Mapping[str, str], spelled: Callable[[str], str]
) -> Config:
    """`config` with the given option texts applied: an empty one is the default (`export X=`), an
    unknown name an error."""
    kinds = {field.name: field.type for field in fields(Config)}
    changes: dict[str, str | int] = {}
    for name, text in options.items():
        if name not in kinds:
            known = ", ".join(map(spelled, OPTIONS))
            raise TinyhloError(f"unknown option {spelled(name)!r}; known: {known}")
        if text == "":
            changes[name] = getattr(Config(), name)
        elif kinds[name] == "int":
            if not str(text).isdecimal():
                raise TinyhloError(f"{spelled(name)} must be a number from 0 up, got {text!r}")
            changes[name] = int(text)
        elif "\0" in str(text):
            raise TinyhloError(f"{spelled(name)} must be a text without a zero byte, got {text!r}")
        else:
            changes[name] = str(text)
    return replace(config, **changes)  # type: ignore[arg-type]


def file_at_exit(name: str, path: str) -> str:
    """The absolute path of a file that an option names and that is written when the process ends.

    Raises TinyhloError at once where it cannot be.
    """
    try:
        absolute = os.path.abspath(path)
    except OSError as error:
        raise TinyhloError(f"{variable(name)}={path}: this folder is gone") from error
    if os.path.isdir(absolute) or not os.access(os.path.dirname(absolute), os.W_OK):
        raise TinyhloError(f"{variable(name)}={path}: no file can be written there")
    return absolute


def cache_folder(config: Config) -> Path:
    """Where compiled programs are kept.

    Raises TinyhloError for a user without a home, as in containers run under any number.
    """
    if config.cache_dir:
        return Path(config.cache_dir)
    import platformdirs

    try:
        return Path(platformdirs.user_cache_dir("tinyhlo"))
    except RuntimeError as error:
        hint = f"set HOME or {variable('cache_dir')}"
        raise TinyhloError(f"this user has no folder for caches: {hint}") from error


def schedules_file(config: Config) -> Path:
    """Where schedules that a search found are kept: what the user named, or beside programs."""
    return Path(config.schedules) if config.schedules else cache_folder(config) / "schedules.jsonl"
