"""What each pass earns: programs compiled with all passes and without one, run by turns.

    python -m benchmarks.passes [PASS ...] [--only REGEX]

Every program is lowered without the pass; those whose kernels change are compiled both ways, called
by turns in one process, and the least times compared. The programs are those of
`benchmarks/operations.py`, `benchmarks/workloads.py`, and the saved ones of `suites/corpus` where
they are found. *Factor* is the time without the pass over the time with it: above 1 it earns.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import jax
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.compile_time import operation
from benchmarks.corpus import programs
from benchmarks.operations import OPERATIONS
from benchmarks.runner import first_line, warm_devices
from benchmarks.sweep import array
from benchmarks.workloads import WORKLOADS
from tests.conformance.suites import suites_folder
from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.loops import Body
from tinyhlo.compiler import compile_stages, stages
from tinyhlo.config import Config
from tinyhlo.errors import TinyhloError
from tinyhlo.ir.dtypes import U8
from tinyhlo.ir.graph import TensorType
from tinyhlo.runtime.arrays import aligned_copy, aligned_empty, pointers
from tinyhlo.runtime.executable import ENTRY, Executable
from tinyhlo.schedule.plan import PASSES

PLAIN = Config(cache=0)
TURN_SECONDS, TURNS = 0.02, 7  # of calls of one kind, and how often they take turns
MOVES = (
    *("split", "remainders", "interchange", "windows", "margins", "flat", "few lanes", "tree"),
    *("tiles", "write out", "turn", "rows", "rows together", "jam", "before", "blocks", "stage"),
    *("phases", "borders", "pieces", "unroll", "jumps", "keep", "sums"),
)
# (module where a name is used, name, what takes its place)
OTHERS: dict[str, tuple[str, str, Callable[..., Any]]] = {
    "row chains": ("tinyhlo.schedule.fusion", "join_row_chain", lambda *_: None),
    "transform chains": ("tinyhlo.schedule.fusion", "join_transform_chain", lambda *_: None),
    "shared columns": ("tinyhlo.schedule.apart", "share_columns", lambda *_: False),
    "covered": ("tinyhlo.schedule.blocks", "covered", lambda _: frozenset()),
    "early": ("tinyhlo.schedule.blocks", "makes_little", lambda *_: False),
    "repeated": ("tinyhlo.schedule.items", "repeated_across", lambda *_: ()),
    "across": ("tinyhlo.schedule.items", "across_others", lambda *_: ()),
    "joined": ("tinyhlo.schedule.items", "read_by_windows", lambda *_: set()),
    "copies": ("tinyhlo.schedule.plan", "shared_copies", lambda body, _: body),
    "results": ("tinyhlo.schedule.plan", "results_in_place", lambda body: body),
    "shared": ("tinyhlo.schedule.plan", "share_kernels", lambda body, _: body),
    "short sorts": ("tinyhlo.ir.simplify", "limit_sorts", lambda graph: graph),
    "choices": ("tinyhlo.ir.simplify", "choose_operands", lambda graph: graph),
    "commuted": ("tinyhlo.ir.simplify", "merge_commuted", lambda graph: graph),
    "streams": ("tinyhlo.codegen.moves.heuristics", "streamed", lambda *_: ()),
    "long sums": ("tinyhlo.codegen.moves.heuristics", "in_blocks", lambda body, _: body),
}
NAMES = (*PASSES, *MOVES, *OTHERS)


@contextlib.contextmanager
def without(name: str) -> Iterator[None]:
    """The compiler without one of the `NAMES`; with "" as it is."""
    forget()
    if name in PASSES:
        others = {other: change for other, change in PASSES.items() if other != name}
        change = mock.patch.dict("tinyhlo.schedule.plan.PASSES", others, clear=True)
    elif name in MOVES:
        usual = Moves.optional

        def optional(self: Moves, decision: str, body: Body, move: Callable[[Body], Body]) -> Body:
            return body if decision == name else usual(self, decision, body, move)

        change = mock.patch.object(Moves, "optional", optional)
    elif name in OTHERS:
        module, function, instead = OTHERS[name]
        change = mock.patch.object(importlib.import_module(module), function, instead)
    else:
        change = contextlib.nullcontext()
    with change:
        yield
    forget()


def forget() -> None:
    """What simplification keeps of graphs that it has seen."""
    importlib.import_module("tinyhlo.ir.simplify")._simplified.clear()


@dataclass(frozen=True, eq=False, slots=True)
class Source:
    """A program as MLIR, and its arguments."""

    name: str
    code: bytes
    arguments: tuple[np.ndarray, ...] = field(repr=False)


def sources(only: str) -> Iterator[Source]:
    """The programs whose names match."""
    chosen = [name for name in OPERATIONS if re.search(only, name)]
    for name in chosen:
        given = tuple(map(array, OPERATIONS[name][1].split()))
        yield Source(name, operation(name), given)
    for name, workload in WORKLOADS.items():
        if re.search(only, name):
            given = workload.arguments()
            traced = jax.jit(workload.function).trace(*given)
            code = traced.lower(lowering_platforms=("tiny",)).as_text().encode()
            yield Source(name, code, tuple(map(np.asarray, jax.tree.leaves(given))))
    folder = suites_folder()
    for name, code, inputs in programs(folder, only) if folder else ():
        yield Source(name, code, tuple(inputs))


def loops_of(source: Source) -> str:
    """The loops of its kernels as text; its schedule where none are."""
    forms = dict(stages(source.code, PLAIN))
    return f"{forms['schedule']}\n" + "\n".join(map(str, forms["codegen"].loops))


class Caller:
    """An executable on buffers of its own."""

    def __init__(self, executable: Executable, arguments: Sequence[np.ndarray]) -> None:
        given = [aligned_copy(np.asarray(x)) for x in arguments]
        self.results = [aligned_empty(type_) for type_ in executable.signature.outputs]
        for output, position in executable.aliases:
            given[position] = self.results[output]
        arena = aligned_empty(TensorType((executable.arena_bytes,), U8))
        place, constants = arena.ctypes.data, pointers(executable.constants)
        self.tables = pointers(given), pointers(self.results), place, constants
        self.entry = ENTRY(executable.entry)
        self.keepalive = executable, given, arena
        self.least = min(self.seconds(1) for _ in range(2))
        self.count = max(1, int(TURN_SECONDS / TURNS / self.least))

    def seconds(self, count: int) -> float:
        """Of a call, so many one after the other."""
        start = time.perf_counter()
        for _ in range(count):
            if self.entry(*self.tables):
                raise TinyhloError("the program failed")
        return (time.perf_counter() - start) / count

    def turn(self) -> None:
        self.least = min(self.least, self.seconds(self.count))


def factor(source: Source, name: str) -> float:
    """The time without a pass over the time with it."""
    callers: list[Caller] = []
    for each in (name, ""):
        with without(each):
            callers.append(Caller(compile_stages(source.code, PLAIN)[1], source.arguments))
    for _ in range(TURNS):
        for caller in callers:
            caller.turn()
    return callers[0].least / callers[1].least


def earned(name: str, usual: Mapping[Source, str]) -> dict[str, float]:
    """The factor of each program whose loops are other ones without the pass."""
    found: dict[str, float] = {}
    for source, loops in usual.items():
        try:
            with without(name):
                changed = loops_of(source) != loops
            if changed:
                found[source.name] = factor(source, name)
        except Exception as error:  # a program that needs the pass is a finding too
            print(f"without {name}, {source.name}: {first_line(error)}", file=sys.stderr)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line a pass."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.passes", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PASS", help=", ".join(NAMES))
    parser.add_argument("--only", default="", help="a regular expression on the programs' names")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"no pass is called {', '.join(unknown)}; there are {', '.join(NAMES)}")
    warm_devices()
    console = Console(stderr=True)
    all_sources = list(sources(options.only))
    usual = {source: loops_of(source) for source in track(all_sources, console=console)}
    table = Table("pass", "programs", "mean factor", "least", "most")
    for name in track(options.names or NAMES, console=console, description="passes"):
        found = sorted(earned(name, usual).items(), key=lambda item: item[1])
        shown = [f"{program} {value:.2f}" for program, value in found]
        mean = f"{statistics.geometric_mean(dict(found).values()):.2f}" if found else "-"
        table.add_row(name, str(len(found)), mean, ", ".join(shown[:3]), ", ".join(shown[:-5:-1]))
    Console().print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
