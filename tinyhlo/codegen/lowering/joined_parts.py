"""Which parts of a result are computed by different formulas, because it was joined from pieces.

    concatenate((a[10, 4], b[20, 4]))  ->  axis 0: 0..10, 10..30; axis 1 whole

Joined values are `where(iota < end, ...)` over the axis. A loop over one part needs no test, and
the parts of a stack (re and im of a complex result) are stored from one loop over the other axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from tinyhlo.ir.graph import VIEWS, Elementwise, Node
from tinyhlo.ir.index import Index, Var, index
from tinyhlo.ir.ops import Op
from tinyhlo.ir.steps import joined_at
from tinyhlo.ir.views import through
from tinyhlo.ir.walks import reachable

MAX_VISITS = 2048  # values looked at; what lies deeper is left as it is
MAX_PIECES = 128
MAX_TEXT = 12_000  # values in all pieces together; LLVM takes a second for twice as many
LONG = 64  # elements of a piece, with the axes inside, that make a loop of its own worth while

Bounds = tuple[int, int]


def find_pieces(node: Node) -> tuple[tuple[Bounds, ...], ...]:
    """For each axis the bounds of its parts, in order; one part where nothing is joined."""
    if not is_joined(node):
        return tuple(((0, n),) for n in node.shape)
    variables = [Var(f"o{k}", n) for k, n in enumerate(node.shape)]
    cuts: list[set[int]] = [{0, n} for n in node.shape]
    for position, end in find_ends(node, tuple(map(index, variables)))[0]:
        for k, variable in enumerate(variables):
            cut = end - position.offset
            if position.terms == ((variable, 1),) and 0 < cut < variable.extent:
                cuts[k].add(cut)
    parts = [tuple(pairwise(sorted(found))) for found in cuts]
    for k, extent in enumerate(node.shape):
        if not pays(parts[k], prod(node.shape[k + 1 :])):
            parts[k] = ((0, extent),)
    for chosen in (parts, list(map(around_longest, parts))):
        pieces = prod(map(len, chosen))
        if pieces <= MAX_PIECES and pieces * values_in(node, chosen) <= MAX_TEXT:
            return tuple(chosen)
    return tuple(((0, n),) for n in node.shape)


def values_in(node: Node, parts: Sequence[tuple[Bounds, ...]]) -> int:
    """How many values the largest piece is computed from."""
    at: list[Index] = []
    for k, axis in enumerate(parts):
        start, stop = longest(axis)
        at.append(index(Var(f"o{k}", stop - start)) + start)
    return find_ends(node, tuple(at))[1]


def longest(parts: tuple[Bounds, ...]) -> Bounds:
    return max(parts, key=lambda part: part[1] - part[0])


def around_longest(parts: tuple[Bounds, ...]) -> tuple[Bounds, ...]:
    """The longest part and the two sides of it: windows at many offsets over one border."""
    start, stop = longest(parts)
    sides = ((0, start), (start, stop), (stop, parts[-1][1]))
    return tuple((low, high) for low, high in sides if low < high)


def pays(parts: tuple[Bounds, ...], inside: int) -> bool:
    """Whether parts whose positions hold so many elements each get loops of their own."""
    most = max((stop - start for start, stop in parts), default=0)
    return len(parts) <= MAX_PIECES and (most <= 1 or most * inside >= LONG)


def is_joined(node: Node) -> bool:
    """Whether there may be a choice by position on the way down from `node`: most kernels have
    none, and are not followed index by index."""
    inside = reachable([node], lambda n: n.inputs if isinstance(n, (Elementwise, *VIEWS)) else ())
    choices = (n for n in inside if isinstance(n, Elementwise) and n.op is Op.WHERE)
    tests = (choice.inputs[0] for choice in choices)
    return any(isinstance(test, Elementwise) and test.op is Op.LT for test in tests)


def find_ends(node: Node, at: tuple[Index, ...]) -> tuple[list[tuple[Index, int]], int]:
    """(position, end) of every choice by `position < end` on the way down from `node` that is open,
    and how many values lie there."""
    found: list[tuple[Index, int]] = []
    seen: set[tuple[Node, tuple[Index, ...]]] = set()
    pending = [(node, at)]
    while pending and len(seen) < MAX_VISITS:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        value, where = current
        if isinstance(value, VIEWS):
            pending.append((value.inputs[0], through(value, where)[0]))
        elif isinstance(value, Elementwise):
            sources = value.inputs
            end = joined_at(value.inputs[0]) if value.op is Op.WHERE else None
            if end is not None:
                position, stop = where[end[0]], end[1]
                first, last = position.bounds
                if first < stop <= last:
                    found.append((position, stop))
                else:
                    sources = sources[1:2] if last < stop else sources[2:]
            pending.extend((source, where) for source in sources)
    return found, len(seen)
