"""Where the time to compile goes: milliseconds a stage, for StableHLO files or single operations.

    python -m benchmarks.compile_time ../shared/suites/corpus/*.bc [--rounds 3] [--xla]
    python -m benchmarks.compile_time --operations "^sin|softmax" [--rounds 3] [--xla]

`--operations` chooses among those of `benchmarks/operations.py` by a regular expression.

The stages run one after the other in one thread, without caches, and their figures are CPU time:
*passes* and *select* are LLVM, before and after its own choice of instructions begins. *Wall* is
what a caller waits for `compile_module`, which compiles modules side by side while it renders the
next; *warm* the same with the object code in the cache of an earlier process. Each figure is the
least of the rounds.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax

from benchmarks.corpus import compiled, geometric_mean
from benchmarks.operations import OPERATIONS
from benchmarks.runner import warm_devices
from benchmarks.sweep import array
from tinyhlo.codegen.render import kernels_of, render_program
from tinyhlo.compiler import compile_module, stages, target_of
from tinyhlo.config import Config
from tinyhlo.recursion import deep_recursion
from tinyhlo.runtime.compile import bind_libraries
from tinyhlo.runtime.jit import compiler, link

Row = dict[str, float]  # column -> milliseconds, or a count
COLUMNS = ("import", "simplify", "schedule", "render", "passes", "select", "link", "wall", "warm")


@deep_recursion()
def staged(source: bytes) -> Row:
    """CPU milliseconds of every stage of one compilation; `lines` of LLVM IR."""
    config = Config(cache=0)
    target = target_of(config)
    row: Row = {}
    started = time.thread_time()

    def ended(stage: str) -> None:
        nonlocal started
        now = time.thread_time()
        row[stage] = row.get(stage, 0.0) + 1e3 * (now - started)
        started = now

    forms: dict[str, object] = {}
    for stage, form in stages(source, config):
        if stage == "codegen":
            break
        ended(stage)
        forms[stage] = form
        if stage == "schedule":
            break
    program = forms["schedule"]
    kernels = kernels_of(program.body)  # type: ignore[attr-defined]
    libraries = bind_libraries(kernels, target)
    texts: list[str] = []
    _, last = render_program(
        program,  # type: ignore[arg-type]
        {kernel: runs for kernel, runs in kernels.items() if kernel not in libraries},
        target,
        texts.append,
        {kernel: k for k, kernel in enumerate(libraries)},
    )
    ended("render")
    pieces: list[bytes] = []
    for text in [*texts, last]:
        with compiler(text, target) as llvm:
            module = llvm.optimized(text)
            ended("passes")
            pieces.append(llvm.emitted(module))
            ended("select")
    link(pieces, "timed")
    ended("link")
    return row | {"lines": float(sum(text.count("\n") for text in [*texts, last]))}


def walls(source: bytes) -> Row:
    """Milliseconds that a caller waits, cold and with a cache that another process filled."""
    with tempfile.TemporaryDirectory() as folder:
        row: Row = {}
        for column in ("wall", "warm"):
            start = time.perf_counter()
            compile_module(source, Config(cache_dir=folder))
            row[column] = 1e3 * (time.perf_counter() - start)
    return row


def operation(name: str) -> bytes:
    """A function of one operation as StableHLO."""
    function, specification = OPERATIONS[name]
    with jax.enable_x64("f64" in specification):
        arguments = map(array, specification.split())
        traced = jax.jit(function).trace(*arguments)
        return traced.lower(lowering_platforms=("tiny",)).as_text().encode()


def measure(source: bytes, rounds: int, xla: bool) -> Row:
    """The least of every figure."""
    found = [staged(source) | walls(source) for _ in range(rounds)]
    row = {column: min(each[column] for each in found) for column in found[0]}
    if xla:
        row["xla"] = 1e3 * min(compiled("cpu", source, ())[1] for _ in range(rounds))
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line a file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile_time", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--operations", metavar="REGEX")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--xla", action="store_true", help="and XLA:CPU's time")
    options = parser.parse_args(arguments)
    for path in options.files:
        if not path.is_file():
            parser.error(f"no file {path}")
    sources = {path.stem: path.read_bytes() for path in options.files}
    if options.operations is not None:
        warm_devices()  # JAX knows no lowerings for tiny before
        chosen = [name for name in OPERATIONS if re.search(options.operations, name)]
        sources |= {name: operation(name) for name in chosen}
    if not sources:
        parser.error("name files, or --operations")
    columns = ("lines", *COLUMNS, *(("xla", "ratio") if options.xla else ()))
    print(f"{'program':28}", *(f"{column:>8}" for column in columns))
    for line in lines(sources, options.rounds, options.xla, columns):
        print(line, flush=True)
    return 0


def lines(
    sources: dict[str, bytes], rounds: int, xla: bool, columns: Sequence[str]
) -> Iterator[str]:
    """The table; the sums of all columns last, and the geometric mean of the ratios."""
    # What the first program of a process pays is not the program's.
    measure(next(iter(sources.values())), 1, xla)
    sums = dict.fromkeys(columns, 0.0)
    ratios: list[float] = []
    for name, source in sources.items():
        row = measure(source, rounds, xla)
        if xla:
            row["ratio"] = row["xla"] / row["wall"]
            ratios.append(row["ratio"])
        sums = {column: sums[column] + row[column] for column in columns}
        yield line(name, row, columns)
    if xla:
        sums["ratio"] = geometric_mean(ratios)
    yield line("all", sums, columns)


def line(name: str, row: Row, columns: Sequence[str]) -> str:
    cells = (f"{row[c]:8.2f}" if c == "ratio" else f"{row[c]:8.1f}" for c in columns)
    return " ".join([f"{name:28}", *cells])


if __name__ == "__main__":
    sys.exit(main())
