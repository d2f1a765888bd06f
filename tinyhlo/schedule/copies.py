"""Copies that are left when all blocks are planned: fewer, and large ones by all threads.

In: the statements of a program over unplaced buffers. Out: the same where the state of a loop lies
in the result that it ends as, and what is large is copied by a kernel.
"""

from __future__ import annotations

from collections import Counter

from tinyhlo.ir.build import param
from tinyhlo.ir.graph import Reshape, intern
from tinyhlo.schedule.kernels import KernelTable
from tinyhlo.schedule.memory import everything, rename
from tinyhlo.schedule.program import (
    Block,
    Copy,
    Launch,
    Place,
    Statement,
    Swap,
    rewritten,
    statements,
)

LARGE_BYTES = 1 << 20  # bytes: one thread reaches half of what memory gives


def results_in_place(body: Block) -> Block:
    """A temporary that is copied to a result at last is that result, if nothing else touches its
    memory and the temporary does not change places with another."""
    closing: list[Copy] = []
    for statement in reversed(body):
        if not isinstance(statement, Copy):
            break
        closing.append(statement)
    rest = body[: len(body) - len(closing)]
    touched = Counter(everything(body))
    fixed = {b for s in statements(body) if isinstance(s, Swap) for b in (s.first, s.second)}
    moved = {
        copy.source: copy.target
        for copy in closing
        if copy.source.place is Place.ARENA
        and copy.source not in fixed
        and touched[copy.target] == 1
    }
    kept = [copy for copy in reversed(closing) if moved.get(copy.source) is not copy.target]
    return rename((*rest, *kept), moved)


def shared_copies(block: Block, kernels: KernelTable) -> Block:
    """Large copies as kernels, which run on all threads."""

    def shared(statement: Statement) -> Statement:
        if not isinstance(statement, Copy) or statement.target.type.nbytes < LARGE_BYTES:
            return statement
        target = statement.target
        value = param(0, target.type.shape, target.type.dtype)
        whole = intern(Reshape, value.type, (value,))  # `build` would leave it out
        kernel = kernels.kernel([whole], {value: value}, [], {}, {})[0]
        return Launch(kernel, (statement.source,), (target,))

    return rewritten(block, shared)
