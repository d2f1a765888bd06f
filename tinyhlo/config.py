"""What users set: one table, read once from the environment into a frozen `Config`.

The same options per function: `jax.jit(f, compiler_options={"tinyhlo_debug": "2"})`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Any

from tinyhlo.errors import TinyhloError
from tinyhlo.records import dataclass

ON_HOST = ("CPU", "PYTHON", "WEBGPU")  # devices whose arrays lie in memory of the host


def is_on_host(device: str) -> bool:
    return device.partition(":")[0] in ON_HOST


def option(default: Any, meaning: str) -> Any:
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True, slots=True)
class Config:
    """Every option, with its default and what it means."""

    device: str = option(
        "CPU",
        "device that runs programs: CPU, CL (the first OpenCL device; CL:1 the second), NV (an "
        "NVIDIA GPU, by CUDA), AMD (an AMD GPU, by HIP), METAL (a Mac's GPU), QCOM (Qualcomm's "
        "Adreno, by OpenCL), WEBGPU (any GPU, by wgpu), or PYTHON (the NumPy interpreter)",
    )
    emulate: int = option(
        0, "1: device QCOM is the first OpenCL device that has images, whoever made it: for tests"
    )
    debug: int = option(
        0,
        "1: a line per compiled program; 2: a line per kernel with time, GFLOP/s, GB/s; 3: the "
        "Program; 4: generated code; 5: the Graph; 6: machine code",
    )
    verify: int = option(
        0, "1: check each graph, and that no kernel reads memory that it or another has overwritten"
    )
    beam: int = option(
        0, "width of the search for faster schedules, kernel by kernel (0: heuristics only)"
    )
    schedules: str = option(
        "",
        "file of schedules that a search found, to be used (empty: while searching, one of "
        "the cache's folder)",
    )
    cpu: str = option(
        "", "processor that code is made for, as x86-64-v2 or x86-64-v3 (empty: this machine's)"
    )
    threads: int = option(0, "worker threads (0: one per core that this process may use)")
    cache: int = option(1, "0: do not use the on-disk cache of compiled programs")
    cache_dir: str = option("", "folder of that cache (empty: the user's cache folder)")
    devices: int = option(
        0, "devices to pretend, all of them this CPU (0: as many as XLA's cpu is told to, else one)"
    )
    profile: str = option("", "write a Perfetto trace of kernels to this file")
    viz: str = option(
        "",
        "write a page for a browser, with every form of every program, to this file (1: "
        "tinyhlo.html)",
    )


OPTIONS: dict[str, str] = {field.name: field.metadata["meaning"] for field in fields(Config)}


def from_environment() -> Config:
    """Read TINYHLO_<OPTION> for every option.

    Raises TinyhloError when a number is expected and something else is given.
    """
    given = {
        name: os.environ[f"TINYHLO_{name.upper()}"]
        for name in OPTIONS
        if f"TINYHLO_{name.upper()}" in os.environ
    }
    return with_options(Config(), given, lambda name: f"TINYHLO_{name.upper()}")


def with_options(
    config: Config, options: Mapping[str, str], spelled: Callable[[str], str]
) -> Config:
    """`config` with the given option texts applied; unknown names are an error."""
    kinds = {field.name: field.type for field in fields(Config)}
    changes: dict[str, str | int] = {}
    for name, text in options.items():
        if name not in kinds:
            known = ", ".join(map(spelled, OPTIONS))
            raise TinyhloError(f"unknown option {spelled(name)!r}; known: {known}")
        if kinds[name] == "int":
            if not str(text).isdigit():
                raise TinyhloError(f"{spelled(name)} must be a number from 0 up, got {text!r}")
            changes[name] = int(text)
        else:
            changes[name] = str(text)
    return replace(config, **changes)  # type: ignore[arg-type]


def cache_folder(config: Config) -> Path:
    """Where compiled programs are kept."""
    if config.cache_dir:
        return Path(config.cache_dir)
    import platformdirs

    return Path(platformdirs.user_cache_dir("tinyhlo"))


def schedules_file(config: Config) -> Path:
    """Where schedules that a search found are kept: what the user named, or beside programs."""
    return Path(config.schedules) if config.schedules else cache_folder(config) / "schedules.jsonl"
