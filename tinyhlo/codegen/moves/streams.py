"""Which results go around the cache.

In: a LoopProgram, its moves chosen. Out: the memories that it writes past the cache:

    y[i] = x[i] + 1, 64 MB each, 32 MB of cache   ->   y

A store usually reads the line it writes to, which is a third of what a sum of two arrays moves,
and puts out of the cache what somebody may still want. A kernel that touches more than the last
cache holds leaves little of its results there anyway.
"""

from __future__ import annotations

from collections.abc import Iterable

from tinyhlo.codegen.expressions import Memory
from tinyhlo.codegen.loops import Axis, Body, If, Loop, LoopProgram, Store
from tinyhlo.target import Target

SHARE = 8  # of the cache: smaller results may well stay in it
RUN_BYTES = 256  # written in order: lines that are written in parts wait for the rest too long


def streamed(program: LoopProgram, body: Body, target: Target) -> tuple[Memory, ...]:
    """Results written once, whole lines at a time, by a kernel that overflows the cache."""
    if program.in_place or sum(m.nbytes for m in program.reads + program.writes) < target.l3_bytes:
        return ()
    large = [m for m in program.writes if m.nbytes * SHARE >= target.l3_bytes]
    written = list(stores(body, None))
    return tuple(m for m in large if (m, True) in written and (m, False) not in written)


def stores(body: Body, in_lanes: Loop | None) -> Iterable[tuple[Memory, bool]]:
    """Each store: to which memory, and whether long runs of neighbours are written in order, by the
    outermost loop in lanes around it."""
    for statement in body:
        match statement:
            case Store(memory=memory, index=where):
                in_order = (
                    in_lanes is not None
                    and in_lanes.trip_count * memory.dtype.itemsize >= RUN_BYTES
                    and where.coefficient(in_lanes.var) == 1
                )
                yield memory, in_order
            case Loop(axis=axis, body=inner):
                own = statement if axis is Axis.VECTOR else None
                yield from stores(inner, in_lanes or own)
            case If(body=inner):
                yield from stores(inner, in_lanes)
            case _:
                pass
