"""Every contraction of the bench workloads on one core: its shape, GFLOP/s, share of the FMA peak.

    python -m benchmarks.contractions conv3x3_nhwc cnn_train > table.md

Each distinct kernel is compiled as a program of its own and run on one thread. Its time is the
least CPU time of many calls, which a busy machine disturbs little; the peak is measured the same
way with a loop of independent multiply-adds. The table in docs/performance.md is made by this.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import numpy as np

from benchmarks.record import workloads
from tinyhlo.codegen.render import kernels_of
from tinyhlo.compiler import run_stages
from tinyhlo.config import Config
from tinyhlo.ir.contraction import Contraction, find_contraction
from tinyhlo.ir.graph import Reduce, graph_key
from tinyhlo.runtime import core
from tinyhlo.runtime.arrays import aligned_empty, pointers
from tinyhlo.runtime.compile import compile_program
from tinyhlo.runtime.executable import ENTRY
from tinyhlo.runtime.jit import compile_text, link
from tinyhlo.runtime.processors import host_target
from tinyhlo.schedule.program import Buffer, Kernel, Launch, Place, Program

CHAINS = 12  # independent accumulators of the peak loop
ROUNDS = 1_000_000
HEAD = """| workload | batch | m | n | k | µs | GFLOP/s | of peak | the generated kernel |
|---|---:|---:|---:|---|---:|---:|---:|---|"""


@dataclass(frozen=True)
class Row:
    workload: str
    contraction: Contraction
    seconds: float
    moves: tuple[str, ...]

    def text(self, peak: float) -> str:
        c = self.contraction
        depth = "×".join(str(c.left.shape[axis]) for axis in c.k)
        sizes = [c.extent(axes) for axes in (c.batch, c.m, c.n, c.k)]
        rate = 2 * prod(sizes) / self.seconds / 1e9
        shape = " | ".join(map(str, sizes[:3]))
        return (
            f"| {self.workload} | {shape} | {depth} | {self.seconds * 1e6:.0f} | {rate:.1f} "
            f"| {rate / peak:.0%} | {', '.join(self.moves[:-1])}, {self.moves[-1]} |"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="+")
    parser.add_argument("--seconds", type=float, default=0.5, help="per kernel")
    options = parser.parse_args()
    known = workloads()
    peak = fma_peak()
    print(f"FMA peak of one core: {peak:.1f} GFLOP/s\n\n{HEAD}", flush=True)
    seen: set[object] = set()
    for name in options.workloads:
        for kernel, contraction in contractions_of(known[name]):
            key = graph_key(kernel.graph)
            if key not in seen:
                seen.add(key)
                seconds, moves = measure(kernel, options.seconds)
                print(Row(name, contraction, seconds, moves).text(peak), flush=True)
    return 0


def contractions_of(workload: Any) -> list[tuple[Kernel, Contraction]]:
    """The kernels of a workload that are one contraction."""
    arguments = workload.make()
    if workload.cast:
        arguments = jax.tree.map(
            lambda a: a.astype(workload.cast) if a.dtype == np.float32 else a, arguments
        )
    text = jax.jit(workload.fn).lower(*arguments).as_text()
    program = run_stages(text, Config(cache=0, threads=1)).program
    found: list[tuple[Kernel, Contraction]] = []
    for kernel in kernels_of(program.body):
        sums = [node for node in kernel.graph.nodes() if isinstance(node, Reduce)]
        contractions = [c for c in map(find_contraction, sums) if c is not None]
        if len(contractions) == 1 and not kernel.in_place:
            found.append((kernel, contractions[0]))
    return found


def measure(kernel: Kernel, seconds: float) -> tuple[float, tuple[str, ...]]:
    """Least CPU seconds of a call, and the kernel's schedule."""
    types = [node.type for node in kernel.graph.results]
    outputs = tuple(Buffer(f"y{k}", t, Place.OUTPUT, k) for k, t in enumerate(types))
    inputs = tuple(Buffer(f"x{k}", t, Place.INPUT, k) for k, t in enumerate(kernel.graph.params))
    program = Program("contraction", inputs, outputs, (), (Launch(kernel, inputs, outputs),), 0, ())
    compiled = compile_program(program, host_target(1), Config(cache=0))
    generator = np.random.default_rng(0)
    given = [aligned_empty(buffer.type) for buffer in inputs]
    for array in given:
        if array.dtype.kind == "f":
            array[...] = generator.standard_normal(array.shape)
        else:
            array[...] = 0
    results = [aligned_empty(buffer.type) for buffer in outputs]
    core.set_threads(1)  # JAX may have started the plugin in between
    linked = link(compiled.pieces, program.name)
    entry = ENTRY(linked.entry)
    arguments = pointers(given), pointers(results), None, pointers([])
    return least(lambda: entry(*arguments), seconds), compiled.loops[0].moves


def least(call: Callable[[], object], seconds: float) -> float:
    """Least CPU time of a call among those of so many seconds, three at least."""
    best, count, end = float("inf"), 0, time.perf_counter() + seconds
    while count < 3 or time.perf_counter() < end:
        begin = time.thread_time()
        call()
        seconds_used = time.thread_time() - begin  # 0 where the clock of a virtual machine stood
        best, count = min(best, seconds_used or best), count + 1
    return best


def fma_peak() -> float:
    """GFLOP/s of one core in a loop of independent multiply-adds in registers."""
    target = host_target(1)
    lanes = target.vector_bytes // 4
    vector = f"<{lanes} x float>"
    chains = range(CHAINS)
    total = "%c0"
    sums: list[str] = []
    for k in chains[1:]:
        sums.append(f"%s{k} = fadd {vector} {total}, %c{k}")
        total = f"%s{k}"
    lines = [
        f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})",
        "define void @entry(i64 %n, ptr %p) #0 {",
        "entry:",
        f"%b = load {vector}, ptr %p",
        "br label %l",
        "l:",
        "%i = phi i64 [0, %entry], [%j, %l]",
        *(f"%a{k} = phi {vector} [zeroinitializer, %entry], [%c{k}, %l]" for k in chains),
        *(
            f"%c{k} = call {vector} @llvm.fma.v{lanes}f32({vector} %b, {vector} %b, {vector} %a{k})"
            for k in chains
        ),
        "%j = add i64 %i, 1",
        "%m = icmp ult i64 %j, %n",
        "br i1 %m, label %l, label %e",
        "e:",
        *sums,
        f"store {vector} {total}, ptr %p",
        "ret void",
        "}",
    ]
    linked = link([compile_text("\n".join(lines), target)], "timed")
    loop = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(linked.entry)
    memory = np.zeros(64, np.float32)
    address = -(-memory.ctypes.data // 64) * 64
    seconds = least(lambda: loop(ROUNDS, address), 0.5)
    return 2 * CHAINS * lanes * ROUNDS / seconds / 1e9


if __name__ == "__main__":
    raise SystemExit(main())
