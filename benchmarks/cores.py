"""What programs would take on more cores than this machine has, and why not less.

    python -m benchmarks.cores [--cores 8,16,64] [--only REGEX] [--loops N]

Programs are compiled for so many threads. Of each parallel loop the parts are run one after the
other and timed (`cores.c`), and dealt out to as many threads as the pool would have; what is
around the loops counts as it is. So this is what cutting and dealing out allow, on cores that do
not wait for one memory: what is limited by it gains less. Waking threads counts as `FORK_SECONDS`.

*Faster* is one core's time over that of so many; *work* the time of all cores together over one
core's: above 1 something is done more often; *even* the share of it in which cores of parallel
loops have something to do; *alone* the share of a call outside of parallel loops. `--loops` lists
those that cost the most.
"""

from __future__ import annotations

import argparse
import ctypes
import re
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

from rich.console import Console
from rich.progress import track
from rich.table import Column, Table

from benchmarks.passes import Caller, Source, sources
from benchmarks.runner import warm_devices
from tinyhlo.compiler import compile_stages
from tinyhlo.config import from_environment
from tinyhlo.runtime import c_compiler, core, jit
from tinyhlo.runtime.executable import Executable

FORK_SECONDS = 2e-6
CALLS = 9
MOST_CORES, MOST_TASKS = 256, 1 << 16  # of cores.c


class Task(ctypes.Structure):
    """A parallel loop that ran, times in nanoseconds (see `cores.c`)."""

    _fields_ = [(name, ctypes.c_int64) for name in ("work", "span", "longest", "count")] + [
        (name, ctypes.c_int32) for name in ("threads", "most")
    ]


@dataclass(frozen=True, slots=True)
class Call:
    """Seconds of a call on imagined cores, outside of parallel loops, and in them."""

    seconds: float
    alone: float
    work: float
    span: float
    tasks: tuple[Task, ...]


class Simulator:
    """A pool of imagined threads, in place of the one that there is."""

    def __init__(self, folder: Path) -> None:
        library = folder / "cores.so"
        native = Path(core.__file__).parent / "native"
        compiler = c_compiler.found()
        if compiler is None:
            raise SystemExit(f"no C compiler: {c_compiler.HINT}")
        source = Path(__file__).with_suffix(".c")
        flags = ("-std=gnu11", "-O2", "-fPIC", "-shared", f"-I{native}")
        subprocess.run([*compiler, *flags, "-o", str(library), str(source)], check=True)
        self.library = ctypes.CDLL(str(library))
        self.tasks = (Task * MOST_TASKS).in_dll(self.library, "cores_tasks")
        self.count = ctypes.c_int64.in_dll(self.library, "cores_task_count")
        self.threads = ctypes.c_int32.in_dll(self.library, "cores_threads")

    @contextmanager
    def in_place(self, threads: int) -> Iterator[None]:
        self.threads.value = threads
        address = ctypes.cast(self.library.cores_parallel, ctypes.c_void_p).value
        with mock.patch.dict(jit.imports(), {"tiny_parallel": address}):
            yield

    def call(self, caller: Caller) -> Call:
        self.count.value = 0
        seconds = caller.seconds(1)
        ran = self.tasks[: min(self.count.value, MOST_TASKS)]
        tasks = tuple(map(Task.from_buffer_copy, ran))  # the next call writes over them
        work, span = (1e-9 * sum(getattr(t, name) for t in tasks) for name in ("work", "span"))
        alone = seconds - work
        return Call(alone + span + FORK_SECONDS * len(tasks), alone, work, span, tasks)

    def compiled(self, source: Source, threads: int) -> Executable:
        """For so many threads; `in_place` of the pool, as it is linked when it is compiled."""
        config = replace(from_environment(), cache=0, threads=threads)
        return compile_stages(source.code, config)[1]

    def measured(self, source: Source, threads: int) -> Call:
        """The call of middle length."""
        with self.in_place(threads):
            caller = Caller(self.compiled(source, threads), source.arguments)
            calls = sorted((self.call(caller) for _ in range(CALLS)), key=lambda c: c.seconds)
        return calls[CALLS // 2]


def cells(one: Call, call: Call, cores: int) -> tuple[str, ...]:
    work = (call.alone + call.work) / one.seconds
    even = call.work / (cores * call.span) if call.span else 1.0
    return (
        f"{one.seconds / call.seconds:.1f}", f"{work:.2f}", f"{even:.0%}",
        f"{call.alone / call.seconds:.0%}",
    )  # fmt: skip


def loops_table(call: Call, cores: int, most: int) -> Table:
    """The loops that lose the most against an even share of each core."""
    table = Table(
        "loop", "work us", "span us", "faster", "longest part", "count", "threads", "worth"
    )
    order = sorted(enumerate(call.tasks), key=lambda item: item[1].work / cores - item[1].span)
    for number, task in order[:most]:
        times = (task.work / 1e3, task.span / 1e3, task.work / task.span, task.longest / 1e3)
        counts = (task.count, task.threads, task.most)
        table.add_row(str(number), *(f"{x:.1f}" for x in times), *map(str, counts))
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line a program."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cores", description=__doc__)
    parser.add_argument("--cores", default="8,16,64", help="numbers of cores")
    parser.add_argument("--only", default="", help="a regular expression on the programs' names")
    parser.add_argument("--loops", type=int, default=0, help="list so many loops of each")
    options = parser.parse_args(arguments)
    if not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", options.cores):
        parser.error(f"--cores: numbers like 8,16,64, not {options.cores!r}")
    counts = [min(int(number), MOST_CORES) for number in options.cores.split(",")]
    chosen = list(sources(options.only))
    if not chosen:
        parser.error(f"--only: no program is called like {options.only!r}")
    warm_devices()
    console = Console(stderr=True)
    heads = [f"{what} {n}" for n in counts for what in ("faster", "work", "even", "alone")]
    table = Table(Column("program", no_wrap=True), "1 core us", *heads)
    speeds: dict[int, list[float]] = {n: [] for n in counts}
    details: list[str | Table] = []
    with tempfile.TemporaryDirectory() as folder:
        simulator = Simulator(Path(folder))
        for source in track(chosen, console=console):
            one = simulator.measured(source, 1)
            row = [source.name, f"{one.seconds * 1e6:.1f}"]
            for cores in counts:
                call = simulator.measured(source, cores)
                speeds[cores].append(one.seconds / call.seconds)
                row += cells(one, call, cores)
                if options.loops:
                    details += [f"{source.name}, {cores}", loops_table(call, cores, options.loops)]
            table.add_row(*row)
    shown = Console(width=60 + 44 * len(counts))
    shown.print(table, *details)
    for cores, each in speeds.items():
        shown.print(f"{cores} cores: {statistics.geometric_mean(each):.2f} times as fast as one")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
