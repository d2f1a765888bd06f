"""Thresholds drawn at random, so that small programs take the paths of large ones.

    with drawn(7):
        ...                     # what is compiled meanwhile has others than the compiler's own

    make random-jax SMALL=1     # random programs that way

What is said of caches, and numbers from which something pays, decide how code is made and never
what it computes. Most of them are far above what random programs reach.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np

from tinyhlo import compiler
from tinyhlo.target import Target

RATES = (0.15, 0.5, 1.0)  # of the thresholds: how many are others
SHRINK = (1, 8, 64, 1 << 12, 1 << 16)  # caches are smaller by that
LEAST_BYTES = {"l1_bytes": 512, "l2_bytes": 2048, "l3_bytes": 4096}

# module below tinyhlo: name = values, one of which it gets
TABLE = """
codegen.contraction.lower: PARALLEL_SUMS=16,16384 SMALL_WORK=1,1048576
codegen.contraction.plan: PANELS_BYTES=256,16384 DEEP_BYTES=1024,262144 SAME_SETS=1,16
codegen.contraction.worth: MIN_WORK=1,1024 FILLED_WORK=1,256 ACROSS_WORK=1,48
codegen.contraction.planner: PARALLEL_WORK=16,1024,524288 MAX_DEPTH=64,1024
codegen.contraction.planner: ACROSS_DEPTH=16,256 RIGHT_BYTES=256,4096,1048576
codegen.contraction.planner: SHARED_BYTES=4096,16777216 SHARED_RIGHT_BYTES=1024,262144
codegen.contraction.planner: SHARED_WORK=1,67108864 SHARED_COLUMNS=16,512 SUMS_BYTES=256,1048576
codegen.contraction.planner: FEW_PANELS=1,4 WAYS=4,8 FEW_SUMS=64,65536
codegen.contraction.planner: PARTS_SUMS=256,524288 ROW_BYTES=128,32768 SUMS_SHARE=1,8
codegen.contraction.reading: REUSE=1,1.5 FEW_ROWS=1,18,64 FETCHED_ROWS=8,128 FETCHED_BYTES=16,128
codegen.contraction.chunks: SHARED_LINE_SLOTS=0,200,100000
codegen.contraction.reading: NEAR_ROWS=16,256
codegen.llvm.guards: FAR=0,1024
codegen.llvm.scratch: STACK_BYTES=64,16384
codegen.lowering.own_copies: SHARE=0,1,8 FEWEST_PLACES=1,8192
codegen.lowering.ranges: BLOCK=8,24,1024
codegen.lowering.scan: LONG=600,32768 STRIPS=2,5,32 BLOCK=2,16,128
codegen.lowering.strips: SHORTEST=64,1536
codegen.lowering.updates: FEWEST=1,65536
codegen.moves.borders: MANY=1,1024 LONG_ROW=1,4,32
codegen.moves.columns: ROW_STRIPS=2,3,32 MIN_ROWS=1,2,4,16
codegen.moves.tree_reduce: BLOCK=64,1024 UNIT=16,64 WRITTEN_OUT=1,20,128 WIDEST=2,5,16
codegen.moves.interchange: OUTWEIGHS=1,8 MIN_ROWS=1,16 MIN_ALONG=2,16
codegen.moves.jam: SHORTEST=2,16 SHARES=1,2
codegen.moves.long_bodies: WINDOW=8,24,160 PIECE=2,6,64 LONG=2,24 STRIP=64,128,512
codegen.moves.long_bodies: MANY=1,16384 HEAVY=1,1048576
codegen.moves.long_sums: CHAIN=2,4,16,64
codegen.moves.margins: MANY=1,1024 TO_SHARE=2,64
codegen.moves.parallel: PARALLEL_WORK=2048,8192,131072 STRIPS=2,3,5,32 SMALL_STRIP=1,16,64,512
codegen.moves.row_sums: FEWEST_TURNS=1,4 FAR_SHARE=1,6
codegen.moves.side_sums: SHORTEST=2,16
codegen.moves.staging: STORE_AND_LOAD=0.5,4
codegen.moves.streams: SHARE=1,8 RUN_BYTES=16,256
codegen.moves.term_tiles: FEWEST_ROWS=4,8 FEWEST_TERMS=1,4 FEWEST_REDUCED=1,8 HEAVIEST=16,1000
codegen.moves.term_tiles: OFTEN=4,64 MOST_ASIDE=64,16777216
codegen.moves.turned: NEAR_PAGES=1,4,256 FEW_ROWS=4,48 SHARED=2,16 OVERLAP=1.03,3
codegen.moves.write_out: MANY_ROWS=2,1024 MOST_ITERATIONS=4,32
codegen.render: BRIEF=-1,8192,1000000000
codegen.row_chain.pack: PARALLEL_WORK=16,8192 BLOCK_ROWS=4,16,64
codegen.sort.lower: BLOCK=8,64,16384 COUNTS=1,3072
codegen.sort.radix: STRIP=64,512
codegen.sort.select: LONG=16,131072
schedule.passes.accumulate: FEWER=1,2
ir.einsum: HUGE_PRODUCT=1,4194304
ir.steps.masked: FEWER=1,2
schedule.passes.narrow: FEWER=1,2
schedule.across: LARGE_SIZE=1,16384 TIMES_READ=1,8 LONG_RUN=1,16
schedule.apart: ROW_LIMIT=4,64,65536 SERIAL_LIMIT=1,16384 MIN_ROWS=1,4 MIN_APART=1,64
schedule.apart: VECTORS=1,256 WRITTEN_OUT=0,8
schedule.blocks: COPY_BYTES=0,64 MUCH_BYTES=1,1048576
schedule.columns: MIN_COLUMNS=1,16,512 BLOCK_COLUMNS=32,256
schedule.copies: LARGE_BYTES=1,1048576
schedule.passes.complex_products: ROWS_OF_GATHERED=1,4 FEW_COLUMNS=0,16 LARGE_BYTES=1024,1048576
schedule.passes.depths: STEP=8,32,1024 LONG_DEPTH=16,8192 FEW_SUMS=64,65536
schedule.passes.hoist: MIN_TRIPS=1,4 MIN_DEPTH=1,32
schedule.items: SHARED_WORK=1,8,100 MULTIPLIED_WORK=1,10,100 LARGE_SIZE=1,4096 LARGE_WORK=0,3
schedule.items: TIMES_REPEATED=1,32 MANY_ROWS=1,16384 MOST_COUNTING=1,32 LONGEST_CHAIN=3,1024
schedule.joined: MANY_SLICES=2,16 MOST_PARTS=3,128 MANY_PARTS=2,8
schedule.passes.planes: FEW_PRODUCTS=1,16384 SHORT_SUM=1,6,12
schedule.planner: SCALAR_BYTES=0,64
schedule.row_chain: MIN_KEYS=1,16 MIN_WORK=1,16384 SHALLOW=1,512
schedule.siblings: FEW_ITERATIONS=1,1024 LONG_RUN=2,16
schedule.passes.terms: LEAST_TERMS=1,2048
schedule.passes.winograd: LEAST_SAVED=1,16777216
"""


@cache
def table() -> dict[tuple[str, str], tuple[float, ...]]:
    """(module, name) -> values. Raises AttributeError for a name that the module has no more."""
    found: dict[tuple[str, str], tuple[float, ...]] = {}
    for line in TABLE.strip().splitlines():
        module, _, entries = line.partition(": ")
        for entry in entries.split():
            name, _, values = entry.partition("=")
            kind = type(getattr(import_module(f"tinyhlo.{module}"), name))
            found[f"tinyhlo.{module}", name] = tuple(kind(float(v)) for v in values.split(","))
    return found


def users(module: str, name: str) -> list[ModuleType]:
    """The module, and those that import the name from it."""
    statement = re.compile(rf"from {re.escape(module)} import (\([^)]*\b{name}\b|.*\b{name}\b)")
    found = [sys.modules[module]]
    for other in list(sys.modules.values()):
        path = getattr(other, "__file__", None)
        ours = path and other.__name__.startswith("tinyhlo.") and hasattr(other, name)
        if ours and statement.search(source_of(path)):
            found.append(other)
    return found


@cache
def source_of(path: str) -> str:
    return Path(path).read_text()


@dataclass(frozen=True, slots=True)
class Drawn:
    """What was drawn: (module, name) -> value, and by how much caches are smaller."""

    values: dict[tuple[str, str], float]
    shrink: int


@contextmanager
def drawn(number: int) -> Generator[Drawn]:
    """Others, which the number decides."""
    random = np.random.default_rng([number, 1])
    rate, shrink = random.choice(RATES), int(random.choice(SHRINK))
    chosen = {
        place: values[random.integers(len(values))]
        for place, values in table().items()
        if random.random() < rate
    }
    given: Any = compiler.cpu_target

    def target(*asked: Any) -> Target:
        return shrunk(given(*asked), shrink)

    with ExitStack() as stack:
        for (module, name), value in chosen.items():
            for user in users(module, name):
                stack.enter_context(patch.object(user, name, value))
        stack.enter_context(patch.object(compiler, "cpu_target", target))
        # programs on the disk have the compiler's own: thresholds are no part of their names
        stack.enter_context(patch.object(compiler.saved, "place_of", lambda *_: None))
        yield Drawn(chosen, shrink)


def shrunk(target: Target, shrink: int) -> Target:
    """The same processor with smaller caches."""
    sizes = {
        name: max(least, getattr(target, name) // shrink) for name, least in LEAST_BYTES.items()
    }
    return replace(target, **sizes)
