"""Merge sort of one row, bottom up, for any comparator: inlined, no branch on data.

The row is merged back and forth between two scratch rows in runs of 1, 2, 4, and so on. One pass
is one loop over the row: at the start of a pair of runs the cursors `left` and `right` are set;
then the smaller element (the left one of equals: the sort is stable) moves.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyhlo.codegen.expressions import (
    Expression,
    IndexValue,
    Load,
    Memory,
    Read,
    as_index,
    literal,
)
from tinyhlo.codegen.folding import apply
from tinyhlo.codegen.loops import Allocate, Assign, Axis, Declare, Loop, Statement, Store
from tinyhlo.codegen.lowering.fused import inline
from tinyhlo.ir.dtypes import BOOL, I64
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.index import Var, index
from tinyhlo.ir.ops import Op

RUN = Read("run", I64)
LEFT, RIGHT = Read("left", I64), Read("right", I64)
MIDDLE, END = Read("middle", I64), Read("end", I64)
TAKE_RIGHT = Read("take_right", BOOL)


def merge_sort(
    comparator: Graph, front: Sequence[Memory], back: Sequence[Memory], length: int
) -> tuple[Statement, ...]:
    """Sort the row that lies in `front`. Two passes a round, so that it ends where it began."""
    var = Var("place", length)
    rounds = 0
    while 4**rounds < length:
        rounds += 1
    if not rounds:
        return tuple(Allocate(memory) for memory in back)
    zero = literal(0, I64)
    body: list[Statement] = []
    for source, target in ((front, back), (back, front)):
        body.append(Loop(var, Axis.ORDERED, merge_step(comparator, source, target, var)))
        body.append(Assign((RUN.name,), (apply(Op.ADD, (RUN, RUN), I64),)))
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
    length = literal(var.extent, I64)
    last = var.extent - 1
    pair = add(RUN, RUN)
    starts = compare(
        Op.EQ, apply(Op.AND, (here, add(pair, literal(-1, I64))), I64), literal(0, I64)
    )
    cursors = (
        apply(Op.WHERE, (starts, here, LEFT), I64),
        apply(Op.WHERE, (starts, add(here, RUN), RIGHT), I64),
        apply(Op.WHERE, (starts, least(add(here, RUN), length), MIDDLE), I64),
        apply(Op.WHERE, (starts, least(add(here, pair), length), END), I64),
    )
    names = (LEFT.name, RIGHT.name, MIDDLE.name, END.name)
    at_left = as_index(least(LEFT, literal(last, I64)), (0, last))
    at_right = as_index(least(RIGHT, literal(last, I64)), (0, last))
    lefts = [Load(memory, at_left) for memory in source]
    rights = [Load(memory, at_right) for memory in source]
    pairs = [value for both in zip(rights, lefts, strict=True) for value in both]
    (right_first,) = inline(comparator, pairs)
    left_empty = compare(Op.LE, MIDDLE, LEFT)
    right_left = compare(Op.LT, RIGHT, END)
    decision = apply(Op.AND, (right_left, apply(Op.OR, (left_empty, right_first), BOOL)), BOOL)
    stores = [
        Store(memory, index(var), apply(Op.WHERE, (TAKE_RIGHT, r, q), memory.dtype))
        for memory, r, q in zip(target, rights, lefts, strict=True)
    ]
    moved = apply(Op.CAST, (TAKE_RIGHT,), I64)
    stayed = apply(Op.SUB, (literal(1, I64), moved), I64)
    return (
        Assign(names, cursors),
        Declare(TAKE_RIGHT.name, decision),
        *stores,
        Assign((LEFT.name, RIGHT.name), (add(LEFT, stayed), add(RIGHT, moved))),
    )


def add(a: Expression, b: Expression) -> Expression:
    return apply(Op.ADD, (a, b), I64)


def least(a: Expression, b: Expression) -> Expression:
    return apply(Op.MIN, (a, b), I64)


def compare(op: Op, a: Expression, b: Expression) -> Expression:
    return apply(op, (a, b), BOOL)
