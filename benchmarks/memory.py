"""Peak memory of training steps and of a forward pass, on each backend in a process of its own.

    python -m benchmarks.memory [--markdown] [NAME ...]

What a process holds at most (`VmHWM`) is read after its inputs lie on the device, reset, and read
again after three steps. Compiling comes before: its memory is given back and counted by neither.
*Arena* is what tiny's plan asks for beside inputs and outputs.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

import jax
from rich.console import Console
from rich.table import Table

from benchmarks.record import markdown_table, workloads
from benchmarks.runner import BACKENDS

PROGRAMS = ("mlp_train", "cnn_train", "tinygpt_train_adam", "resnet18_b1", "resnet18_b8")
CALLS = 3
COLUMNS = ("program", "tiny MiB", "XLA:CPU MiB", "tiny / XLA", "arena MiB", "inputs + outputs MiB")
TITLE = """## Peak memory

What a process holds at most while it runs the compiled program, less what it held before, when its
inputs lay on the device already; each figure from a process of its own. *Arena* is what tiny's plan
asks for beside inputs and outputs.
"""
Figures = dict[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--measure", nargs=2, metavar=("NAME", "BACKEND"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*options.measure)))
        return 0
    rows = [row(name) for name in options.names or PROGRAMS]
    if options.markdown:
        print(TITLE + "\n" + markdown_table(COLUMNS, rows), end="")
        return 0
    table = Table(*COLUMNS)
    for cells in rows:
        table.add_row(*cells)
    Console(width=120).print(table)
    return 0


def row(name: str) -> tuple[str, ...]:
    ours, theirs = (apart("benchmarks.memory", name, backend) for backend in BACKENDS)
    sizes = (ours["peak"], theirs["peak"])
    return (
        name,
        *(f"{size / 2**20:.1f}" for size in sizes),
        f"{sizes[0] / sizes[1]:.2f}",
        *(f"{ours[key] / 2**20:.1f}" for key in ("arena", "arguments")),
    )


def apart(module: str, name: str, backend: str) -> Figures:
    """What a benchmark measures in a fresh process."""
    command = [sys.executable, "-m", module, "--measure", name, backend]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(found.stdout.splitlines()[-1])


def measure(name: str, backend: str) -> Figures:
    """Bytes that running the program takes on top of what the process held when it had compiled
    it and had its inputs."""
    device, workload = jax.devices(backend)[0], workloads()[name]
    arguments = jax.device_put(workload.make(), device)
    compiled = jax.jit(workload.fn).lower(*arguments).compile()
    jax.block_until_ready(arguments)
    before = resident()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    for _ in range(CALLS):
        results = compiled(*arguments)
        jax.block_until_ready(results)
    held = [x.nbytes for x in jax.tree.leaves((arguments, results))]
    arena = getattr(compiled.memory_analysis(), "temp_size_in_bytes", 0)
    return {"peak": peak() - before, "arena": arena, "arguments": sum(held)}


def resident() -> int:
    return status("VmRSS")


def peak() -> int:
    return status("VmHWM")


def status(field: str) -> int:
    """A figure of this process, in bytes."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) << 10 if found else 0


if __name__ == "__main__":
    sys.exit(main())
