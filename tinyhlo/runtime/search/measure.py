"""A kernel under one schedule after another, on the same arguments: results and times.

bench = Bench(kernel, runs, target)
plain, other = bench.code({}), bench.code({"tile": "6x4"})
bench.results(other)
seconds = bench.race([plain, other])         # the shortest time of each, taken in turns
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tinyhlo.codegen.choices import Moves, Schedule
from tinyhlo.codegen.render import loops_of, render_program
from tinyhlo.ir.graph import Gather, Scatter, TensorType, UpdateSlice
from tinyhlo.recursion import deep_recursion
from tinyhlo.runtime.arrays import aligned_copy, aligned_empty, pointers
from tinyhlo.runtime.executable import ENTRY, Arrays
from tinyhlo.runtime.jit import Linked, compile_text, link
from tinyhlo.schedule.program import Kernel, Launch, Program, arguments_and_results
from tinyhlo.target import Target

RACE_SECONDS = 0.03  # of one schedule in a race
FEWEST, MOST = 5, 100  # turns of each, one of what takes longer than a race
HOPELESS = 1.4  # times the best time so far: no turn beyond the fewest
BATCH_SECONDS = 50e-6  # of calls between two looks at the clock


class Bench:
    """`runs` is how often a call of the whole program runs the kernel."""

    def __init__(self, kernel: Kernel, runs: float, target: Target) -> None:
        self.kernel, self.runs, self.target = kernel, runs, target
        self.program = alone(kernel)

    @cached_property
    def arguments(self) -> Arrays:
        """Floats around one, that no function of theirs is undefined for; positions that exist."""
        random = np.random.default_rng(0)
        most = least_extent(self.kernel)
        return tuple(example(random, buffer.type, most) for buffer in self.program.inputs)

    @cached_property
    def outputs(self) -> Arrays:
        return tuple(aligned_empty(buffer.type) for buffer in self.program.outputs)

    @cached_property
    def inputs(self) -> Arrays:
        """The arguments, in the memory of results where the kernel works in place."""
        shared = {param: self.outputs[result] for result, param in self.program.aliases}
        return tuple(shared.get(k, array) for k, array in enumerate(self.arguments))

    def loops(self, schedule: Schedule) -> tuple[str, dict[str, tuple[str, ...]]]:
        """The loops as text, and the decisions that are open with that schedule."""
        moves = Moves(schedule)
        return str(loops_of(self.kernel, self.target, self.runs, moves)), moves.open

    @deep_recursion()
    def code(self, schedule: Schedule) -> Linked:
        """Several threads may compile at once."""
        texts: list[str] = []
        schedules = {self.kernel: schedule}
        _, last = render_program(
            self.program, {self.kernel: self.runs}, self.target, texts.append, schedules=schedules
        )
        return link([compile_text(text, self.target) for text in (*texts, last)], self.program.name)

    def results(self, code: Linked) -> Arrays:
        """Of one call."""
        self.call(code, 1)
        return tuple(array.copy() for array in self.outputs)

    def call(self, code: Linked, count: int) -> float:
        """Seconds of a call, so many one after the other."""
        for result, param in self.program.aliases:
            np.copyto(self.outputs[result], self.arguments[param])
        entry, given = ENTRY(code.entry), (pointers(self.inputs), pointers(self.outputs))
        arena, constants = ctypes.c_void_p(), pointers(())
        started = time.perf_counter()
        for _ in range(count):
            entry(*given, arena, constants)
        return (time.perf_counter() - started) / count

    def race(self, codes: Sequence[Linked]) -> list[float]:
        """The shortest time of each, all taken in turns: what else runs meets all of them."""
        best = [self.call(code, 1) for code in codes]  # memory is there then, and threads awake
        count = max(1, int(BATCH_SECONDS / min(best)))
        turns = int(RACE_SECONDS / (count * min(best)))
        fewest = FEWEST if turns else 1
        for turn in range(min(max(turns, fewest), MOST)):
            limit = HOPELESS * min(best)
            for k, code in enumerate(codes):
                if turn < fewest or best[k] <= limit:
                    best[k] = min(best[k], self.call(code, count))
        return best


def alone(kernel: Kernel) -> Program:
    """A Program of one kernel. Results computed in place share the buffer of their param."""
    shared = {param: result for result, param in kernel.in_place}
    inputs, outputs = arguments_and_results(kernel.graph, shared)
    body = (Launch(kernel, inputs, outputs),)
    return Program(kernel.name, inputs, outputs, (), body, 0, kernel.in_place)


def least_extent(kernel: Kernel) -> int:
    """Integers below half of it are positions along every axis that the kernel looks into, next to
    them too."""
    looks = (Gather, Scatter, UpdateSlice)
    nodes = [node for node in kernel.graph.nodes() if isinstance(node, looks)]
    return min((extent for node in nodes for extent in node.inputs[0].shape), default=128)


def example(random: np.random.Generator, type_: TensorType, most: int) -> np.ndarray:
    dtype = type_.dtype.numpy
    if dtype.kind == "b":
        return aligned_copy(random.random(type_.shape) < 0.5)
    if dtype.kind in "iu":
        most = max(min(most // 2, np.iinfo(dtype).max), 1)
        return aligned_copy(random.integers(0, most, type_.shape).astype(dtype))
    return aligned_copy(random.uniform(0.5, 1.5, type_.shape).astype(dtype))
