"""Merge sort of one row, bottom up, for any comparator: inlined, no branch on data.

The row is merged back and forth between two scratch rows in runs of 1, 2, 4, and so on. One pass
is one loop over the row: at the start of a pair of runs the cursors `left` and `right` are set;
then the smaller element (the left one of equals: the sort is stable) moves.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyhlo.codegen.expressions import IndexValue, Load, Memory, Read, as_index, literal, where
from tinyhlo.codegen.loops import Allocate, Assign, Axis, Declare, Loop, Statement, Store
from tinyhlo.codegen.regions import inline
from tinyhlo.ir.dtypes import BOOL, I64
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.index import Var, index

RUN = Read("run", I64)
LEFT, RIGHT = Read("left", I64), Read("right", I64)
MIDDLE, END = Read("middle", I64), Read("end", I64)
TAKE_RIGHT = Read("take_right", BOOL)


def merge_sort(
    comparator: Graph, front: Sequence[Memory], back: Sequence[Memory], length: int
) -> tuple[Statement, ...]:
    """Sort the row of two elements or more in `front`. Two passes a round end where they began."""
    var = Var("place", length)
    rounds = 0
    while 4**rounds < length:
        rounds += 1
    zero = literal(0, I64)
    body: list[Statement] = []
    for source, target in ((front, back), (back, front)):
        body.append(Loop(var, Axis.ORDERED, merge_step(comparator, source, target, var)))
        body.append(Assign((RUN.name,), (RUN + RUN,)))
    cursors = [Declare(r.name, zero) for r in (LEFT, RIGHT, MIDDLE, END)]
    return (
        *(Allocate(memory) for memory in back),
        Declare(RUN.name, literal(1, I64)),
        *cursors,
        Loop(Var("round", rounds), Axis.ORDERED, tuple(body)),
    )


def merge_step(
    comparator: Graph, source: Sequence[Memory], target: Sequence[Memory], var: Var
) -> tuple[Statement, ...]:
    """Move one element to position `var` of `target`."""
    here = IndexValue(index(var), I64)
    last = var.extent - 1
    pair = RUN + RUN
    starts = (here & (pair + -1)).equals(0)
    cursors = {
        LEFT: here,
        RIGHT: here + RUN,
        MIDDLE: (here + RUN).at_most(var.extent),
        END: (here + pair).at_most(var.extent),
    }
    at_left = as_index(LEFT.at_most(last), (0, last))
    at_right = as_index(RIGHT.at_most(last), (0, last))
    lefts = [Load(memory, at_left) for memory in source]
    rights = [Load(memory, at_right) for memory in source]
    pairs = [value for both in zip(rights, lefts, strict=True) for value in both]
    (right_first,) = inline(comparator, pairs)
    decision = (RIGHT < END) & ((MIDDLE <= LEFT) | right_first)
    stores = [
        Store(memory, index(var), where(TAKE_RIGHT, r, q))
        for memory, r, q in zip(target, rights, lefts, strict=True)
    ]
    moved = TAKE_RIGHT.cast(I64)
    return (
        Assign(
            tuple(cursor.name for cursor in cursors),
            tuple(where(starts, first, cursor) for cursor, first in cursors.items()),
        ),
        Declare(TAKE_RIGHT.name, decision),
        *stores,
        Assign((LEFT.name, RIGHT.name), (LEFT + (1 - moved), RIGHT + moved)),
    )
