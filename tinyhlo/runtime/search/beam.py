"""Beam search over the schedules of a kernel, by measured time.

In: kernels of a Program, and how wide the beam is. Out: for each the schedule that is to be asked
for (`codegen/choices.py`), found now or in an earlier process:

    found = search(kernels, target, config)
    render_program(..., schedules={kernel: each.schedule for kernel, each in found.items()})

A kernel starts with the heuristics' schedule. Each round changes one decision of each schedule in
the beam, in every way that is open, drops those that come to the same loops, compiles the others,
holds their results against the heuristics' code, and lets them race; the fastest few are the next
beam. The last one runs against the heuristics' once more, and must win.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from tinyhlo.check import scaled_error, tolerance
from tinyhlo.codegen.choices import NONE, Schedule
from tinyhlo.config import Config, schedules_file
from tinyhlo.records import dataclass
from tinyhlo.runtime.executable import Arrays
from tinyhlo.runtime.jit import Linked
from tinyhlo.runtime.search.measure import Bench
from tinyhlo.runtime.search.store import Found, Schedules, key_of_kernel
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

WORTH_SECONDS = 5e-6  # of a call: below it the clock and the call are what one measures
KERNEL_SECONDS = 10.0  # for one kernel: what has begun then races to its end
GAIN = 1.03  # times as fast, or a schedule is no better than the one it comes from
MICRO = 1e6


@dataclass(frozen=True, eq=False, slots=True)
class Candidate:
    schedule: Schedule
    open: Mapping[str, tuple[str, ...]]  # decisions, and what they could be
    code: Linked


def search(kernels: Mapping[Kernel, float], target: Target, config: Config) -> dict[Kernel, Found]:
    """A schedule for each kernel, given how often each runs; with a beam of 0 only what is known.
    Says on stderr what it finds.

    Raises TinyhloError when the file of schedules cannot be read."""
    known = Schedules(schedules_file(config), needed=not config.beam)
    result: dict[Kernel, Found] = {}
    for number, (kernel, runs) in enumerate(kernels.items(), 1):
        key = key_of_kernel(kernel, runs, target)
        found = known.found.get(key)
        if found is None and config.beam:
            found = search_kernel(Bench(kernel, runs, target), config.beam)
            known.add(key, found)
            print(f"tinyhlo: kernel {number} of {len(kernels)}: {found}", file=sys.stderr)
        if found is not None:
            result[kernel] = found
    return result


def search_kernel(bench: Bench, width: int) -> Found:
    """The best schedule that `width` candidates a round lead to."""
    deadline = time.monotonic() + KERNEL_SECONDS
    text, answers = bench.loops(NONE)
    plain = Candidate(NONE, answers, bench.code(NONE))
    expected = bench.results(plain.code)
    (best_seconds,) = bench.race([plain.code])
    beam, best, seen = [plain], plain, {text}
    while best_seconds >= WORTH_SECONDS and time.monotonic() < deadline:
        found = [
            candidate
            for candidate in compiled(bench, beam, seen)
            if time.monotonic() < deadline and agree(bench.results(candidate.code), expected)
        ]
        seconds = bench.race([best.code, *(candidate.code for candidate in found)])
        ranked = sorted(zip(seconds, (best, *found), strict=True), key=lambda pair: pair[0])
        beam = [candidate for _, candidate in ranked[:width]]
        if seconds[0] < GAIN * ranked[0][0]:
            break
        best_seconds, best = ranked[0]
    before, after = bench.race([plain.code, best.code])
    if best is plain or before < GAIN * after:
        return Found(bench.kernel.name, {}, MICRO * before, MICRO * before)
    # A decision may leave none to be made where an earlier round made another one.
    schedule = {
        name: each for name, each in best.schedule.items() if each in best.open.get(name, ())
    }
    return Found(bench.kernel.name, schedule, MICRO * before, MICRO * after)


def compiled(bench: Bench, beam: list[Candidate], seen: set[str]) -> list[Candidate]:
    """What one decision more leads to, where its loops are new."""
    fresh: list[tuple[Schedule, Mapping[str, tuple[str, ...]]]] = []
    for schedule in (schedule for candidate in beam for schedule in steps(candidate)):
        text, answers = bench.loops(schedule)
        if text not in seen:
            seen.add(text)
            fresh.append((schedule, answers))
    with ThreadPoolExecutor(bench.target.threads, "tinyhlo-search") as threads:
        codes = threads.map(lambda item: bench.code(item[0]), fresh)
        return [Candidate(*item, code) for item, code in zip(fresh, codes, strict=True)]


def steps(candidate: Candidate) -> Iterator[Schedule]:
    """Every schedule that differs in one decision."""
    for decision, answers in candidate.open.items():
        taken = candidate.schedule.get(decision, answers[0])
        for answer in answers:
            if answer != taken:
                yield {**candidate.schedule, decision: answer}


def agree(ours: Arrays, expected: Arrays) -> bool:
    """Whether results are the same but for the order of sums."""
    return all(
        scaled_error(a, b) <= tolerance(a.dtype) for a, b in zip(ours, expected, strict=True)
    )
