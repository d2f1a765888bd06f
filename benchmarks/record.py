"""Time the 41 workloads and the real programs beside the checkout, and write docs/benchmarks.md,
or the page of the machine's kind (`page_of`). On a GPU, the 41 workloads against XLA's own backend
for it, into a page of that device.

    python -m benchmarks.record
    python -m benchmarks.record --device NV     # docs/benchmarks-nv.md; needs jax[cuda13] too

`bench/bench_jax.py` (in ../shared, or in the folder beside TINYHLO_SUITES) does the timing: both
backends alternate in one process, a fresh process for each workload, errors against float64.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from tinyhlo.runtime.devices.device import available
from tinyhlo.runtime.processors import host_target
from tinyhlo.target import Target

CHECKOUT = Path(__file__).resolve().parents[1]
KINDS = {64: "", 32: "-avx2", 16: "-128"}  # of processors, by bytes of a vector
RIVALS = {"CPU": "cpu", "NV": "cuda", "AMD": "rocm"}  # JAX's names of XLA's backends


def page_of(target: Target) -> Path:
    """Where the figures of a processor stand: of those with AMX; of AVX-512 or AVX2, of AMD's or
    Intel's. Zen 4 starts half as many multiply-adds as Zen 5."""
    if target.matrices:
        return CHECKOUT / "docs" / "benchmarks-amx.md"
    others = target.triple.startswith("x86") and not target.cpu.startswith("znver")
    kind = "-zen4" if target.cpu == "znver4" else KINDS[target.vector_bytes]
    return CHECKOUT / "docs" / f"benchmarks{'-intel' if others else ''}{kind}.md"


PAGE = page_of(host_target(1))
ARGUMENTS = ["--rounds", "2", "--budget", "0.1"]
FRESH = ["--fresh"]  # a process for each workload
OTHERS = ("corpus", "models", "unrolled", "large", "memory", "sweep")  # each writes a section

INTRODUCTION = """# Benchmarks{where}

Written by `make bench-workloads{option}`; do not edit. {date}, {machine},
Python {python}, {versions}.

Milliseconds are medians of calls that wait for their result, the two backends alternating in one
process. *Ratio* is {rival}'s time over tiny's: above 1 tiny is faster. *Compile* is cold, without
caches. *Error* is the largest difference from the same function in float64, over the largest
magnitude.
{remark}
| workload | tiny ms | {rival} ms | ratio | GFLOP/s | GB/s | compile tiny | compile XLA | error tiny | error XLA |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|
"""  # noqa: E501
ON_GPUS = """
XLA multiplies f32 by TF32, of 10 bits, where a program does not ask for more; tiny by f32, unless
`TINYHLO_TF32=1` says otherwise: see below.
"""
IN_TF32 = """
## With TINYHLO_TF32=1

The workloads that multiply f32, in a run of their own; *ratio* is to {rival}'s time above.

"""
# names and prefixes of those
TF32 = (
    *("matmul_1024", "matmul_512", "matmul_256", "bmm", "matmul_bias", "conv", "attention"),
    *("mlp_train", "cnn_train", "gpt2", "tinygpt", "resnet", "lstm"),
)


def main() -> int:
    """Run and write; the exit code is 2 when the workloads are not there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=RIVALS, default="CPU")
    device = parser.parse_args().device
    page_of_device = PAGE if device == "CPU" else PAGE.with_name(f"benchmarks-{device.lower()}.md")
    script = workloads_script()
    if script is None:
        print("nothing recorded: bench/bench_jax.py is not in ../shared", file=sys.stderr)
        return 2
    # Compile times are cold; XLA leaves a GPU's memory to others.
    environment = os.environ | {"TINYHLO_CACHE": "0", "TINYHLO_DEVICE": device}
    environment |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    fresh = FRESH if device == "CPU" else []
    results = timed(script, [f"{RIVALS[device]},tiny", *fresh], environment)
    if not any("tiny" in row for row in results.values()):
        print("nothing recorded: JAX has no backend tiny; pip install -e . first", file=sys.stderr)
        return 2
    sections = [page(results, device)]
    if device == "NV":
        only = ["tiny", "--only", ",".join(TF32)]
        sections.append(tf32(results, timed(script, only, environment | {"TINYHLO_TF32": "1"})))
    for name in OTHERS if device == "CPU" else ():
        command = [sys.executable, "-m", f"benchmarks.{name}", "--markdown"]
        found = subprocess.run(
            command, check=True, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, text=True
        )
        sections.append(found.stdout)
    page_of_device.write_text("\n".join(sections))
    print(f"wrote {page_of_device}")
    return 0


Results = dict[str, dict[str, dict[str, Any]]]  # by workload and backend


def timed(script: Path, backends: Sequence[str], environment: Mapping[str, str]) -> Results:
    """What the workloads take on some backends."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "results.json"
        arguments = ["--backend", *backends, *ARGUMENTS, "--json", str(out)]
        command = [sys.executable, str(script), *arguments]
        subprocess.run(command, check=True, cwd=CHECKOUT, env=environment)
        return json.loads(out.read_text())


def workloads_script() -> Path | None:
    suites = os.environ.get("TINYHLO_SUITES")
    shared = Path(suites).resolve().parent if suites else CHECKOUT.parent / "shared"
    script = shared / "bench" / "bench_jax.py"
    return script if script.exists() else None


def workloads() -> Mapping[str, Any]:
    """The 41 workloads beside the checkout, by name. Raises SystemExit where they are not there."""
    script = workloads_script()
    if script is None:
        raise SystemExit("bench/workloads.py is not in ../shared")
    sys.path.insert(0, str(script.parent))
    return importlib.import_module("workloads").W


def page(results: Results, device: str) -> str:
    """The table of the workloads, with what is above and below it."""
    is_cpu, rival = device == "CPU", RIVALS[device]
    amx = " with AMX" if host_target(1).matrices else ""
    machine = f"{llvm.get_host_cpu_name()}{amx}, {len(os.sched_getaffinity(0))} threads"
    text = INTRODUCTION.format(
        where="" if is_cpu else f" on {device}",
        option="" if is_cpu else f" DEVICE={device}",
        date=datetime.date.today().isoformat(),
        machine=machine if is_cpu else dict(available())[device],
        rival=f"XLA:{rival.upper()}",
        remark="" if is_cpu else ON_GPUS,
        python=sys.version.split()[0],
        versions=", ".join(f"{name} {version(name)}" for name in ("jax", "jaxlib", "llvmlite")),
    )
    ratios: list[float] = []
    failures: list[str] = []
    for name, row in results.items():
        ours, theirs = row.get("tiny", {}), row.get(rival, {})
        ratio = theirs.get("median_ms", math.nan) / ours.get("median_ms", math.nan)
        if not math.isnan(ratio):
            ratios.append(ratio)
        text += line(name, ours, theirs, ratio)
        if "error" in ours:
            failures.append(f"* `{name}` {ours.get('stage', '')}: {ours['error'][:200]}")
        elif ours.get("bad"):
            failures.append(f"* `{name}` is wrong: error {ours['relmax']:.1e}")
    if ratios:
        mean, best = statistics.geometric_mean(ratios), sum(r > 1 for r in ratios)
        text += (
            f"\n{len(ratios)} of {len(results)} workloads run on both; tiny is faster on {best}; "
        )
        text += f"the geometric mean of the ratios is {mean:.2f}.\n"
    if failures:
        text += "\n## Not running, or wrong, on tiny\n\n" + "\n".join(failures) + "\n"
    return text


def tf32(results: Results, rounded: Results) -> str:
    """The table of the workloads that were timed once more."""
    rows: list[list[str]] = []
    for name, row in rounded.items():
        theirs, ours = (
            each.get("median_ms", math.nan)
            for each in (results[name].get(RIVALS["NV"], {}), row["tiny"])
        )
        values = (ours, ".3f"), (theirs / ours, ".2f"), (row["tiny"].get("gflops"), ".1f")
        rows.append(
            [name, *(shown(*each) for each in (*values, (row["tiny"].get("relmax"), ".1e")))]
        )
    columns = ["workload", "tiny ms", "ratio", "GFLOP/s", "error"]
    return IN_TF32.format(rival="XLA:CUDA").lstrip("\n") + markdown_table(columns, rows)


def line(name: str, ours: dict[str, Any], theirs: dict[str, Any], ratio: float) -> str:
    cells = [
        shown(ours.get("median_ms"), ".3f"),
        shown(theirs.get("median_ms"), ".3f"),
        shown(ratio, ".2f"),
        shown(ours.get("gflops"), ".1f"),
        shown(ours.get("gbs"), ".1f"),
        shown(ours.get("compile_ms"), ".0f"),
        shown(theirs.get("compile_ms"), ".0f"),
        shown(ours.get("relmax"), ".1e"),
        shown(theirs.get("relmax"), ".1e"),
    ]
    return f"| {name} | " + " | ".join(cells) + " |\n"


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """A table whose first `texts` columns are text and whose others are numbers."""
    rule = "|" + "---|" * texts + "---:|" * (len(columns) - texts)
    lines = ["| " + " | ".join(cells) + " |" for cells in (columns, *rows)]
    return "\n".join([lines[0], rule, *lines[1:]]) + "\n"


def write_section(section: str, path: Path = PAGE) -> None:
    """Put `section` into the page of this kind of machine, which is made where there is none."""
    path.write_text(replaced(path.read_text() if path.exists() else "# Benchmarks\n", section))


def replaced(page: str, section: str) -> str:
    """The page with `section` in place of the one of its title; at the end where it has none."""
    title = section.splitlines()[0]
    before, found, after = page.partition(title + "\n")
    rest = after.partition("\n## ")[2] if found else ""
    return f"{before.rstrip()}\n\n{section}" + (f"\n## {rest}" if rest else "")


def shown(value: float | None, form: str) -> str:
    return "-" if value is None or math.isnan(value) else format(value, form)


if __name__ == "__main__":
    sys.exit(main())
