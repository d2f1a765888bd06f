"""Scatter on all threads: each passes over all updates and does those in its range of places.

    for r in 2 parallel:
      for b in 977 ordered:
        kept = 0
        for i in 1024 of the block b, in vectors:
          if r*50 <= where[i] < r*50 + 50: place[kept] = where[i], update[kept] = i, kept += 1
        for k in kept ordered: y[place[k]] = y[place[k]] + updates[update[k]]

Updates of one place keep their order, so the result has the same bits for any number of threads.
Nothing jumps on data, a thread touches its part of the target only (which the cache of its core
holds more often than the whole), and rows are read by the thread that needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from tinyhlo.codegen.expressions import (
    Expression,
    IndexValue,
    Load,
    Memory,
    Read,
    as_index,
    has_registers,
    index_free,
    literal,
)
from tinyhlo.codegen.loops import (
    PACKED,
    Allocate,
    Axis,
    Bind,
    Body,
    Declare,
    If,
    Keep,
    Loop,
    Statement,
)
from tinyhlo.codegen.lowering.fused import Lowering
from tinyhlo.codegen.lowering.updates import FEWEST, Updates
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import I32, I64
from tinyhlo.ir.index import ZERO, Data, Index, Var, constant, index, linear
from tinyhlo.numbers import ceil_div
from tinyhlo.records import dataclass
from tinyhlo.target import Target

NEAR = 4  # times the nearest cache: a target that small misses it too rarely to pay for the pass
BLOCK = 1024  # updates: their lists stay in the nearest cache
SMALL = 1 << 31  # what a list can hold
KEPT = Read("kept", I64)


@dataclass(frozen=True, slots=True)
class Axes:
    """How an update finds its place on each axis of the operand. `own`: axes that an axis of the
    updates runs along, with its number. `data`: axes with the place as an integer expression over
    `var`, the variable of axis `first` of the updates, their first that is longer than 1."""

    first: int
    var: Var
    own: dict[int, int]
    data: dict[int, Expression]


def by_ranges(updates: Updates, lowering: Callable[[], Lowering], target: Target) -> Body:
    """The loops; nothing where they do not pay or the updates are not of that kind."""
    size = updates.root.results[0].size
    if not target.packs or target.threads == 1 or updates.size < FEWEST:
        return ()
    if max(size, *updates.shape) >= SMALL:
        return ()
    if sum(type_.nbytes for type_ in updates.root.results) <= NEAR * target.l1_bytes:
        return ()
    axes = axes_of(updates, lowering())
    if axes is None:
        return ()
    cut = max(axes.data, key=lambda axis: updates.operand[axis])
    if updates.operand[cut] < 2 * target.threads:
        return ()
    part, block = Var("range", target.threads), Var("block", ceil_div(axes.var.extent, BLOCK))
    within = inside(axes, updates.operand, cut, part)
    lists, passing = by_lists(updates, axes, lowering(), within, block, BLOCK)
    return (Loop(part, Axis.PARALLEL, (*lists, Loop(block, Axis.ORDERED, passing))),)


def by_lists(
    updates: Updates, axes: Axes, lowering: Lowering, within: Expression, block: Var, length: int
) -> tuple[Body, Body]:
    """The lists, and what does the updates that are `within`, in order, of a block of `length`."""
    places = Memory("places", I32, length + PACKED, local=True)
    numbers = Memory("numbers", I32, length + PACKED, local=True)
    where = linear(
        [place_of(axes, updates, k) for k in range(len(updates.operand))], updates.operand
    )
    values = (IndexValue(where, I32), IndexValue(index(axes.var), I32))
    keep = Keep((places, numbers), values, within, KEPT.name)
    passing: Body = (
        Declare(KEPT.name, literal(0, I64)),
        Loop(axes.var, Axis.VECTOR, (keep,), PACKED, index(block) * length, length),
        If(
            (Condition(as_index(KEPT, (0, length)), 1, length + 1),),
            (combining(updates, axes, lowering, places, numbers, length),),
        ),
    )
    return (Allocate(places), Allocate(numbers)), passing


def axes_of(updates: Updates, lowering: Lowering) -> Axes | None:
    """None where an axis is neither own nor data, or where a value needs a reduce or reads what is
    overwritten."""
    scope, at = lowering.nest(lowering.root, updates.shape)
    first = next(k for k, extent in enumerate(updates.shape) if extent > 1)
    (var,) = index_free(at[first])
    assert isinstance(var, Var)
    own: dict[int, int] = {}
    data: dict[int, Expression] = {}
    for axis, node in enumerate(updates.indices):
        value = lowering.emit(node, at, scope, ())
        where = as_index(value, (0, updates.operand[axis] - 1))
        if where.terms and where in at and at.index(where) != first:
            own[axis] = at.index(where)
            if updates.shape[own[axis]] > updates.operand[axis]:
                return None
        elif value.free <= {var} and node.dtype.bits >= 32:
            data[axis] = value
        else:
            return None
    values = (*updates.values(lowering, at, scope), *data.values())
    if any(value.loads > 1 or has_registers(value.free) for value in values):
        return None
    return Axes(first, var, own, data) if any(value.loads for value in data.values()) else None


def place_of(axes: Axes, updates: Updates, axis: int) -> Index:
    """The place of an update on one axis; the start of an own axis."""
    if axis in axes.own:
        return ZERO
    return as_index(axes.data[axis], (0, updates.operand[axis] - 1))


def inside(axes: Axes, operand: Sequence[int], cut: int, part: Var) -> Expression:
    """Whether an update lies inside the operand, and in the part of the axis `cut`."""
    tests: list[Expression] = []
    for axis, value in axes.data.items():
        low, high, extent = ZERO, constant(operand[axis]), operand[axis]
        if axis == cut:
            length = ceil_div(extent, part.extent)
            low = index(part) * length
            if length * part.extent > extent:
                tests.append(value < IndexValue(high, value.dtype))
            high = low + length
        tests += [IndexValue(low, value.dtype) <= value, value < IndexValue(high, value.dtype)]
    return reduce(lambda one, other: one & other, tests)


def combining(
    updates: Updates,
    axes: Axes,
    lowering: Lowering,
    places: Memory,
    numbers: Memory,
    length: int,
) -> Loop:
    """The updates on the lists, in order. These fill their memory from its start; the loop ends
    where the memory does."""
    at_list = Var("k", length)
    start = as_index(literal(length, I64) - KEPT, (0, length))
    here = index(at_list) - start
    number = Var("number", axes.var.extent)
    place = Var("place", updates.root.results[0].size)
    rest = (*updates.shape[: axes.first], 1, *updates.shape[axes.first + 1 :])
    scope, inner = lowering.nest(lowering.root, rest)
    at = lowering.position((*inner[: axes.first], index(number), *inner[axes.first + 1 :]))
    along = [at[axes.own[k]] if k in axes.own else ZERO for k in range(len(updates.operand))]
    address = index(place) + linear(along, updates.operand)
    scope.statements.extend(updates.stores(address, updates.values(lowering, at, scope)))
    body: list[Statement] = [
        Bind(place, index(Data(Load(places, here), (0, place.extent - 1)))),
        Bind(number, index(Data(Load(numbers, here), (0, number.extent - 1)))),
        *lowering.root.body(),
    ]
    return Loop(at_list, Axis.ORDERED, tuple(body), start=start)
