"""Which processor code is made for, and that foreign code is refused, not run."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from tinyhlo.errors import TinyhloError
from tinyhlo.runtime.processors import PROCESSORS, cpu_target, host_target, named_target


def test_this_machine_is_the_default() -> None:
    assert cpu_target("", 2) == host_target(2)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="for x86-64")
def test_a_lesser_processor() -> None:
    assert cpu_target("x86-64", 1).vector_bytes == 16
    with pytest.raises(TinyhloError, match="its aarch64 code does not run here"):
        cpu_target("neoverse-n1", 1)


@pytest.mark.skipif(
    "+avx512bf16" in host_target(1).features, reason="this machine has all features of the table"
)
def test_missing_features_are_named() -> None:
    name = "cooperlake" if platform.machine() == "x86_64" else "x86-64-v3"
    with pytest.raises(TinyhloError, match=r"this machine lacks .*|does not run here"):
        cpu_target(name, 1)


def test_unknown_names_list_the_known() -> None:
    with pytest.raises(TinyhloError, match="known: x86-64,"):
        cpu_target("pentium", 1)


def test_registers_fit_the_vectors() -> None:
    for name in PROCESSORS:
        target = named_target(name, 1)
        assert target.vector_registers == (32 if target.vector_bytes != 32 and target.fma else 16)


def test_a_target_is_printed_alike_in_every_process() -> None:
    """It is part of the names of what the cache keeps."""
    program = (
        "from tinyhlo.runtime.processors import named_target; print(named_target('cooperlake', 2))"
    )
    printed = {
        subprocess.check_output(
            [sys.executable, "-c", program], env=os.environ | {"PYTHONHASHSEED": str(seed)}
        )
        for seed in range(4)
    }
    assert len(printed) == 1
