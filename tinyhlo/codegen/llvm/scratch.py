"""How much scratch loops need: large private memory, which is no stack slot.

In: the bodies of a program's kernels. Out: bytes for the thread that calls them, and for each
thread of their parallel loops.

    scratch_of([sort.body]).total(threads=2)
"""

from __future__ import annotations

from collections.abc import Iterable

from tinyhlo.codegen.expressions import Memory
from tinyhlo.codegen.loops import Allocate, Axis, Body, If, Loop
from tinyhlo.numbers import round_up
from tinyhlo.records import dataclass

STACK_BYTES = 16 << 10  # larger scratch would endanger the stack of a worker thread
ALIGNMENT = 64
MOST_BYTES = 1 << 51  # more than any machine has; times all threads it fits 64 bits


@dataclass(frozen=True, slots=True)
class Scratch:
    """Bytes at once: `shared` of the caller's thread, `each` of every thread of a parallel loop."""

    shared: int = 0
    each: int = 0

    def total(self, threads: int) -> int:
        return self.shared + self.each * threads

    def __or__(self, other: Scratch) -> Scratch:
        """Enough for either."""
        return Scratch(max(self.shared, other.shared), max(self.each, other.each))


NO_SCRATCH = Scratch()


def is_large(memory: Memory) -> bool:
    """Whether private memory is scratch."""
    return memory.nbytes > STACK_BYTES


def scratch_of(bodies: Iterable[Body]) -> Scratch:
    """Of bodies that run one after the other."""
    found = NO_SCRATCH
    for body in bodies:
        found |= scratch_of_body(body)
    return found


def scratch_of_body(body: Body) -> Scratch:
    """What a body allocates is there until its end; a parallel loop in another one is serial."""
    own, inner = 0, NO_SCRATCH
    for statement in body:
        match statement:
            case Allocate(memory=memory) if is_large(memory):
                own += round_up(memory.nbytes, ALIGNMENT)
            case Loop(body=parts, axis=Axis.PARALLEL):
                inner |= Scratch(0, scratch_of_body(parts).total(1))
            case Loop(body=parts) | If(body=parts):
                inner |= scratch_of_body(parts)
            case _:
                pass
    return Scratch(min(own + inner.shared, MOST_BYTES), min(inner.each, MOST_BYTES))
