"""Place arena buffers: live ranges over the statement tree, best fit into one arena.

In: statements over unplaced buffers. Out: the same statements over placed ones, and the arena size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tinyhlo.numbers import round_up
from tinyhlo.records import dataclass
from tinyhlo.schedule.program import (
    Block,
    Buffer,
    Copy,
    Launch,
    Place,
    Statement,
    Swap,
    Switch,
    While,
    rewritten,
    statements,
)

ALIGNMENT = 64


@dataclass(slots=True)
class LiveRange:
    """First and last statement number that touches a buffer."""

    first: int
    last: int


def plan(body: Block) -> tuple[Block, int]:
    """Assign offsets to all arena buffers of `body`; returns (placed body, arena bytes)."""
    offsets, size = offsets_of(body)
    placed = {buffer: replace(buffer, position=offset) for buffer, offset in offsets.items()}
    return rename(body, placed), size


def offsets_of(body: Block) -> tuple[dict[Buffer, int], int]:
    """Where each arena buffer begins, and the arena's bytes."""
    ranges: dict[Buffer, LiveRange] = {}
    number(body, 0, ranges)
    share_swapped(body, ranges)
    return best_fit(ranges)


def touched(statement: Statement) -> tuple[Buffer, ...]:
    """Buffers that a statement names itself (not in nested blocks)."""
    match statement:
        case Launch(reads=reads, writes=writes):
            return reads + writes
        case Copy(source=a, target=b) | Swap(first=a, second=b):
            return a, b
        case While(flag=flag):
            return (flag,)
        case Switch(selector=selector):
            return (selector,)


def number(block: Block, clock: int, ranges: dict[Buffer, LiveRange]) -> int:
    """Extend live ranges by the statements of `block`, numbered from `clock`."""
    for statement in block:
        clock += 1
        for buffer in touched(statement):
            extend(ranges, buffer, clock)
        match statement:
            case While(condition=condition, body=body):
                start = clock
                clock = number(body, number(condition, clock, ranges), ranges) + 1
                for buffer in set(everything(condition)) | set(everything(body)):
                    if buffer.place is Place.ARENA and ranges[buffer].first <= start:
                        ranges[buffer].last = clock
                for buffer in carried((*condition, *body)):
                    ranges[buffer].first = min(ranges[buffer].first, start)
                    ranges[buffer].last = max(ranges[buffer].last, clock)
            case Switch(blocks=blocks):
                for inner in blocks:
                    clock = number(inner, clock, ranges) + 1
            case _:
                pass
    return clock


def extend(ranges: dict[Buffer, LiveRange], buffer: Buffer, clock: int) -> None:
    if buffer.place is not Place.ARENA:
        return
    found = ranges.setdefault(buffer, LiveRange(clock, clock))
    found.last = max(found.last, clock)


def everything(block: Block) -> Iterator[Buffer]:
    """All buffers named in a block and the blocks inside it."""
    for statement in statements(block):
        yield from touched(statement)


def carried(block: Block) -> set[Buffer]:
    """Arena buffers that hold a value from one iteration to the next: what changes hands, and what
    is read before it is written."""
    first: dict[Buffer, bool] = {}
    swapped: set[Buffer] = set()
    for statement in statements(block):
        match statement:
            case Launch(reads=reads, writes=writes):
                early, late = reads, writes
            case Copy(source=source, target=target):
                early, late = (source,), (target,)
            case Swap(first=a, second=b):
                early, late = (a, b), ()
                swapped |= {a, b}
            case While() | Switch():
                early, late = touched(statement), ()
        for buffer in early:
            first.setdefault(buffer, True)
        for buffer in late:
            first.setdefault(buffer, False)
    found = {buffer for buffer, is_read in first.items() if is_read} | swapped
    return {buffer for buffer in found if buffer.place is Place.ARENA}


def share_swapped(body: Block, ranges: dict[Buffer, LiveRange]) -> None:
    """After an odd number of swaps a value lies in its partner's memory: partners live as one."""
    swaps = [statement for statement in statements(body) if isinstance(statement, Swap)]
    changed = True
    while changed:
        changed = False
        for swap in swaps:
            a, b = ranges[swap.first], ranges[swap.second]
            first, last = min(a.first, b.first), max(a.last, b.last)
            changed |= (a.first, a.last, b.first, b.last) != (first, last, first, last)
            a.first = b.first = first
            a.last = b.last = last


def best_fit(ranges: dict[Buffer, LiveRange]) -> tuple[dict[Buffer, int], int]:
    """Big buffers first, each into the smallest gap that is free during its whole range."""
    offsets: dict[Buffer, int] = {}
    most = sum(buffer.type.nbytes + ALIGNMENT for buffer in ranges)  # `hand_over` refuses such
    # Start, end, first, last of each by start; before them nothing, that always lives.
    placed = np.empty((4, len(ranges) + 1), np.int64 if most < 1 << 63 else object)
    placed[:, 0] = 0, 0, 0, np.iinfo(np.int64).max
    size = 0
    for count, buffer in enumerate(sorted(ranges, key=lambda b: (-b.type.nbytes, ranges[b].first))):
        need = round_up(max(buffer.type.nbytes, 1), ALIGNMENT)
        live = ranges[buffer]
        start, end, first, last = placed[:, : count + 1]
        beside = ((last >= live.first) & (first <= live.last)).nonzero()[0]
        ends = np.maximum.accumulate(end[beside])
        gaps = start[beside][1:] - ends[:-1]
        fitting = (gaps >= need).nonzero()[0]
        offset = int(ends[fitting[gaps[fitting].argmin()] if fitting.size else -1])
        offsets[buffer] = offset
        at = int(start.searchsorted(offset, side="right"))
        placed[:, at + 1 : count + 2] = placed[:, at : count + 1]
        placed[:, at] = offset, offset + need, live.first, live.last
        size = max(size, offset + need)
    return offsets, size


def rename(block: Block, placed: dict[Buffer, Buffer]) -> Block:
    """The same statements over other buffers."""

    def at(buffer: Buffer) -> Buffer:
        return placed.get(buffer, buffer)

    def renamed(statement: Statement) -> Statement:
        match statement:
            case Launch(reads=reads, writes=writes):
                reads, writes = tuple(map(at, reads)), tuple(map(at, writes))
                return replace(statement, reads=reads, writes=writes)
            case Copy(source=source, target=target):
                return Copy(at(source), at(target))
            case Swap(first=first, second=second):
                return Swap(at(first), at(second))
            case While(flag=flag):
                return replace(statement, flag=at(flag))
            case Switch(selector=selector):
                return replace(statement, selector=at(selector))

    return rewritten(block, renamed)
