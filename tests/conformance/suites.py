"""Suites that others wrote: where they are, which cases, and how they are run.

In: a folder `../shared` beside the checkout with `suites/`, or TINYHLO_SUITES=DIR. Out: results of
cases, as the suites' own runners report them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PLUGIN = "tests.conformance.plugs:compile_and_run"
MISSING = "the suites are not here: set TINYHLO_SUITES=DIR, or put them at ../shared/suites"

# Outside the slice: complex, quantized and sub-byte types
OTHER_TYPES = re.compile(r"complex<|!quant|\bx?u?i[24]\b|xu?i[24]>|<u?i[24]>|f8E|f4E|f6E")
DTYPE = re.compile(r"_?(bool|u?int\d+|b?float\d+|complex\d+)")
CASES_PER_OP = 4

# A line of the corpus's runner: status, name, seconds, message
RESULT = re.compile(r"(pass|fail|unsupported|error|timeout|crash)\s+(\S+)\s+[\d.]+s ?(.*)")


@dataclass(frozen=True, slots=True)
class Case:
    """`status`: pass (as upstream demands), loose, fail, error, unsupported, crash, timeout, skip;
    `plain`: no complex, quantized or sub-byte type in it."""

    name: str
    status: str
    message: str
    plain: bool


@cache
def suites_folder() -> Path | None:
    """The folder of the runners, or None."""
    given = os.environ.get("TINYHLO_SUITES")
    candidates = [Path(given)] if given else [CHECKOUT.parent / "shared" / "suites"]
    for folder in candidates:
        for found in (folder, folder / "suites"):
            if (found / "run_stablehlo_suite.py").exists():
                return found
    return None


def slice_names(folder: Path) -> list[str]:
    """A few cases of each op of openxla's test data, over different dtypes."""
    by_op: dict[str, list[str]] = defaultdict(list)
    for file in sorted((folder / "stablehlo" / "testdata").glob("*.mlir")):
        if is_plain(file):
            by_op[DTYPE.split(file.stem)[0]].append(file.stem)
    names: list[str] = []
    for cases in by_op.values():
        stride = max(1, len(cases) // CASES_PER_OP)
        names += cases[::stride][:CASES_PER_OP]
    return names


@cache
def is_plain(file: Path) -> bool:
    """Whether a case has no complex, quantized or sub-byte type."""
    return file.exists() and not OTHER_TYPES.search(file.read_text())


def run_openxla(folder: Path, names: Sequence[str] | None, processes: int) -> list[Case]:
    """Run cases of the test data (all of them when `names` is None) in a few processes."""
    testdata = folder / "stablehlo" / "testdata"
    chosen = names if names is not None else sorted(file.stem for file in testdata.glob("*.mlir"))
    with tempfile.TemporaryDirectory() as scratch:
        running = []
        for k in range(processes):
            part = "|".join(map(re.escape, chosen[k::processes]))
            out = Path(scratch) / f"{k}.json"
            command = [sys.executable, folder / "run_stablehlo_suite.py", "--plugin", PLUGIN]
            command += ["--filter", f"^testdata/({part})$", "--out", out, "--list-failures", "0"]
            running.append((subprocess.Popen(command, **PIPES), out))
        results = []
        for process, out in running:
            output, _ = process.communicate()
            if process.returncode:
                raise RuntimeError(f"the suite's runner failed: {output[-2000:]}")
            results += json.loads(out.read_text())
    return [
        Case(
            name=result["name"].removeprefix("testdata/"),
            status=result["status"],
            message=result["msg"],
            plain=is_plain(testdata / (result["name"].removeprefix("testdata/") + ".mlir")),
        )
        for result in results
    ]


def run_corpus(folder: Path, timeout: int = 300) -> list[Case]:
    """Run every program of the corpus."""
    command = [sys.executable, str(folder / "run_corpus.py"), "--plugin", PLUGIN]
    output = subprocess.run([*command, "--timeout", str(timeout)], check=True, **PIPES).stdout
    cases: list[Case] = []
    for line in output.splitlines():
        if match := RESULT.match(line):
            cases.append(Case(match[2], match[1], match[3], True))
        elif cases and not line.startswith("{"):  # the rest of a message
            cases[-1] = replace(cases[-1], message=f"{cases[-1].message}\n{line}")
    return cases


# The runners look for the plugin in the current folder.
PIPES = {"cwd": CHECKOUT, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
