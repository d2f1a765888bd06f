"""Damage files of every form and load them: no crash, no hang, always one clear error.

    python -m tools.fuzz_import --count 20000 --state build/fuzz.json

Mutation K of a file depends on K alone, so a run can be stopped, resumed, and any finding repeated
with --only K. Each file goes the way of `tinyhlo.load`: through the quarantine, the importer, and
the compiler; it is not run. A worker process loads one file after another; what ends it, or takes
longer than SECONDS, is a finding.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import select
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tools.fuzz_mutations import mutated
from tools.fuzz_programs import sources

SECONDS = 120
MEMORY_BYTES = 12 << 30
CHECKPOINT = 1000  # mutations between two writes of the state
FINE = ("compiled", "refused")


@dataclass(frozen=True)
class State:
    """`fine`: form -> outcome -> how many. `findings`: what is not fine, with its number."""

    done: int = 0
    fine: dict[str, dict[str, int]] = field(default_factory=dict)
    findings: list[tuple[int, str]] = field(default_factory=list)

    def with_outcome(self, number: int, outcome: str) -> State:
        """After mutation `number`, the first time or again."""
        done = max(self.done, number + 1)
        findings = [found for found in self.findings if found[0] != number]
        if outcome not in FINE:
            return State(done, self.fine, [*findings, (number, outcome)])
        kinds = self.fine.get(form_of(number), {})
        more = {**kinds, outcome: kinds.get(outcome, 0) + 1}
        return State(done, {**self.fine, form_of(number): more}, findings)

    def counts(self) -> dict[str, dict[str, int]]:
        """form -> outcome -> how many."""
        counts = {form: collections.Counter(kinds) for form, kinds in self.fine.items()}
        for number, outcome in self.findings:
            counts.setdefault(form_of(number), collections.Counter())[outcome.split(":")[0]] += 1
        return {form: dict(kinds) for form, kinds in sorted(counts.items())}


def name_of(number: int) -> str:
    names = sorted(sources())
    return names[number % len(names)]


def form_of(number: int) -> str:
    return name_of(number).split()[-1]


def mutant(number: int) -> bytes:
    """The damaged file `number`."""
    name = name_of(number)
    form = form_of(number)
    others = [source for other, source in sources().items() if other.endswith(form)]
    return mutated(random.Random(number), sources()[name], others, form == "text")


def outcome_of(source: bytes) -> str:
    """`compiled`, `refused`, or `defect: ...`."""
    from tinyhlo.compiler import compile_module
    from tinyhlo.config import Config
    from tinyhlo.errors import TinyhloError, VerificationError
    from tinyhlo.import_stablehlo.quarantine import admit
    from tinyhlo.import_stablehlo.refine import DynamicShapes, refine_source
    from tinyhlo.ir.graph import TensorType

    config = replace(Config(), cache=0)
    try:
        clean = admit(source)
        try:
            compile_module(clean, config)
        except DynamicShapes as found:
            types = [
                TensorType(tuple(2 if size is None else size for size in type_.shape), type_.dtype)
                for type_ in found.arguments
            ]
            compile_module(refine_source(clean, types), config)
    except VerificationError:
        return f"defect: {traceback.format_exc(limit=-3)}"
    except TinyhloError:
        return "refused"
    except BaseException:
        return f"defect: {traceback.format_exc(limit=-3)}"
    return "compiled"


def work(numbers: Sequence[int], reply: int) -> None:
    """A worker's life: number and outcome of each mutation, as lines of JSON."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 2)
    limit_resources()
    for number in numbers:
        os.write(reply, json.dumps([number, outcome_of(mutant(number))]).encode() + b"\n")


def limit_resources() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


class Worker:
    """A process that goes through mutations; a new one takes over when it dies or hangs."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = numbers
        self.start()

    def start(self) -> None:
        self.pending = b""
        self.heard = time.monotonic()
        self.receive, reply = os.pipe()
        self.process = os.fork()
        if self.process == 0:
            try:
                work(self.numbers, reply)
            finally:
                os._exit(0)
        os.close(reply)

    def answers(self) -> list[tuple[int, str]]:
        """Outcomes that have arrived; `numbers` are those that have not."""
        data = os.read(self.receive, 1 << 16)
        if not data:
            return self.ended("crash")
        self.heard = time.monotonic()
        *lines, self.pending = (self.pending + data).split(b"\n")
        self.numbers = self.numbers[len(lines) :]
        return [tuple(json.loads(line)) for line in lines]

    def ended(self, how: str) -> list[tuple[int, str]]:
        """The mutation that ended the process; the next process goes on behind it."""
        found = [(self.numbers[0], f"{how}: signal {self.reap() & 127}")]
        self.numbers = self.numbers[1:]
        if self.numbers:
            self.start()
        return found

    def reap(self) -> int:
        """The status with which the process ended."""
        os.close(self.receive)
        _, status = os.waitpid(self.process, 0)
        self.process = 0
        return status

    def is_done(self) -> bool:
        if not self.numbers and self.process:
            self.reap()
        return not self.numbers

    def hangs(self) -> list[tuple[int, str]]:
        """The mutation that takes too long, if one does."""
        if time.monotonic() - self.heard < SECONDS:
            return []
        os.kill(self.process, signal.SIGKILL)
        return self.ended("hang")


def outcomes(numbers: Sequence[int], processes: int) -> Iterator[tuple[int, str]]:
    """(number, outcome) of every mutation, in no particular order."""
    shares = [numbers[k::processes] for k in range(processes)]
    workers = [Worker(share) for share in shares if share]
    while workers:
        for receive in select.select([worker.receive for worker in workers], [], [], 1.0)[0]:
            yield from next(worker for worker in workers if worker.receive == receive).answers()
        for worker in workers:
            yield from worker.hangs() if worker.numbers else ()
        workers = [worker for worker in workers if not worker.is_done()]


def fuzz(count: int, path: Path | None, processes: int) -> State:
    """Mutations 0 to `count`, from where the state at `path` stops; its findings first, again."""
    state = State()
    if path and path.exists():
        state = State(**json.loads(path.read_text()))
    again = [number for number, _ in state.findings]
    todo = [*again, *range(state.done, count)]
    outcome_of(sources()["dense text"])  # what it imports is then shared by all workers
    started = time.monotonic()
    for first in range(0, len(todo), CHECKPOINT):
        for number, outcome in sorted(outcomes(todo[first : first + CHECKPOINT], processes)):
            state = state.with_outcome(number, outcome)
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(asdict(state)))
        rate = min(first + CHECKPOINT, len(todo)) / (time.monotonic() - started)
        print(
            f"{state.done} of {count}, {rate:.0f} a second, {len(state.findings)} findings",
            flush=True,
        )
    return state


def section(state: State) -> str:
    """The section of docs/conformance.md."""
    counts = state.counts()
    kinds = sorted({kind for kinds in counts.values() for kind in kinds} | set(FINE))
    lines = [
        f"{state.done} damaged files (bits flipped, bytes replaced, moved and spliced, files cut, "
        "words of text exchanged) were loaded as `tinyhlo.load` does it, and compiled when they "
        f"still were programs: {len(state.findings)} findings. *refused*: one clear error.",
        "",
        "| form | " + " | ".join(kinds) + " |",
        "|---|" + "---:|" * len(kinds),
    ]
    for form, found in counts.items():
        cells = [form, *(str(found.get(kind, 0)) for kind in kinds)]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [""] if state.findings else []
    lines += [f"* mutation {n}: {text.strip().splitlines()[-1]}" for n, text in state.findings]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Load damaged files of every form.")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--state", type=Path, help="where to keep the state, to go on from there")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--only", type=int, metavar="K", help="one mutation, in this process")
    parser.add_argument("--record", action="store_true", help="write docs/conformance.md")
    options = parser.parse_args()
    if options.only is not None:
        print(name_of(options.only), outcome_of(mutant(options.only)))
        return 0
    state = fuzz(options.count, options.state, options.processes)
    print(section(state))
    if options.record:
        from tests.conformance.sections import circumstances, write_section

        write_section("fuzz", f"## Damaged files\n\n{circumstances()}\n\n{section(state)}")
    return 1 if state.findings else 0


if __name__ == "__main__":
    sys.exit(main())
