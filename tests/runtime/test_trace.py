"""TINYHLO_PROFILE: a file with every call of every kernel."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tinyhlo.report import KernelReport
from tinyhlo.runtime.trace import Trace

PROGRAM = """
import numpy as np
from tinyhlo.compiler import compile_module
from tinyhlo.config import from_environment
text = '''func.func public @main(%x: tensor<1024xf32>) -> tensor<1024xf32> {
  %0 = stablehlo.tanh %x : tensor<1024xf32>
  return %0 : tensor<1024xf32>
}'''
run = compile_module(text, from_environment())
for _ in range(3):
    run(np.ones(1024, np.float32))
"""


def test_every_call_is_an_event(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    environment = {"TINYHLO_PROFILE": str(path), "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    assert f"wrote 3 kernel calls to {path}" in done.stderr
    track, *calls = json.loads(path.read_text())["traceEvents"]
    assert track["name"] == "thread_name"
    assert [call["name"] for call in calls] == ["tanh_0"] * 3
    times = [(call["ts"], call["ts"] + call["dur"]) for call in calls]
    assert all(begin < end for begin, end in times) and times == sorted(times)
    assert all(call["tid"] == track["tid"] and call["args"]["GB/s"] > 0 for call in calls)


def test_what_does_not_fit_is_counted(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    trace = Trace(str(tmp_path / "trace.json"), capacity=2)
    trace.describe("program", trace.reserve(1), [KernelReport("add_0", "", 1, 4, 4)])
    trace.table[:] = [[0, 10, 20], [0, 30, 50], [0, 60, 90]]
    trace.cursor[0] = 3
    trace.write()
    assert "2 kernel calls (the first 2 of 3)" in capsys.readouterr().err
    assert len(json.loads(Path(trace.path).read_text())["traceEvents"]) == 1 + 2


def test_a_path_that_cannot_be_written(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    Trace(str(tmp_path / "missing" / "trace.json"), capacity=1).write()
    assert "TINYHLO_PROFILE" in capsys.readouterr().err
