"""Scan on grids: rows in blocks, each scanned by a group in memory that it shares.

    for block in 4 grid:
      local data: f32[2304]; local totals: f32[256]
      for item in 256 item:
        data[..] = x[..]                      # neighbours load neighbours
        synchronize
        total = sum of the item's 9 elements  # next to each other in `data`
        totals[item] = total                  # prefixes of these in 8 steps
        data[..] = prefixes from there        # each item its own again
        synchronize
        y[..] = data[..]

A row of several blocks takes three pieces: the sum of each block, where each begins, the blocks.
Where there are many rows, side by side, each is an item's own.

Source: Hillis and Steele, Data Parallel Algorithms, 1986 (`of_items`).
"""

from __future__ import annotations

from collections.abc import Callable

from tinyhlo.codegen.expressions import Expression, Guard, Load, Memory, Read, apply, identity
from tinyhlo.codegen.grid.mapping import ITEMS, by_item
from tinyhlo.codegen.grid.sizes import shared_itemsize
from tinyhlo.codegen.grid.statements import Synchronize
from tinyhlo.codegen.loops import (
    Accumulate,
    Allocate,
    Axis,
    Body,
    Declare,
    Loop,
    LoopProgram,
    Statement,
    Store,
    guarded,
)
from tinyhlo.codegen.lowering.fused import Conditions, Lowering
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.graph import Scan
from tinyhlo.ir.index import Index, Var, constant, index, linear, unravel
from tinyhlo.ir.ops import Op
from tinyhlo.numbers import ceil_div
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

EACH = 9  # elements of an item: odd, so that items side by side use different banks of memory
SHORT = 32  # elements of a row that an item scans as fast as a group
ROWS = 512  # for each unit of a device, which then has work without blocks
RUNNING = "scan0"

Source = Callable[[Index, Index, Conditions], Expression]  # of a row, at a place known to be in it
Result = Callable[[Index, Index, Expression], Store]
Inside = Callable[[Index, Index], Expression]  # the same at any place
Stored = Callable[[Index, Index, Expression], Body]


def lower_scan(kernel: Kernel, target: Target) -> LoopProgram:
    """Prefixes of every row."""
    (root,) = kernel.graph.results
    assert isinstance(root, Scan)
    lowering = Lowering(kernel)
    if not root.type.size:
        return lowering.program(())
    return lowering.program(Rows(root, lowering, target).body())


class Rows:
    """The rows of a Scan."""

    def __init__(self, root: Scan, lowering: Lowering, target: Target) -> None:
        self.root, self.lowering, self.target = root, lowering, target
        shape, axis = root.shape, root.axis
        self.length = shape[axis]
        self.others = (*shape[:axis], *shape[axis + 1 :])
        self.rows = root.type.size // self.length
        self.side_by_side = any(n > 1 for n in shape[axis + 1 :])
        self.neutral = identity(root.op, root.dtype)
        self.items = min(ITEMS, target.group_items)

    def body(self) -> Body:
        many = self.rows >= ROWS * self.target.threads
        if self.length <= SHORT or (many and self.side_by_side):
            return (self.by_items(),)
        return self.prefixes(self.length, self.source, self.result)

    def prefixes(self, length: int, source: Source, result: Result) -> Body:
        """Those of the first `length` elements of every row."""
        size = self.items * shared_itemsize(self.root.dtype, self.target)
        room = self.target.group_bytes // size - 1  # beside the totals
        each = min(EACH, (room - 1) | 1, ceil_div(length, self.items) | 1)
        blocks = ceil_div(length, each * self.items)

        def inside(row: Index, along: Index) -> Expression:
            condition = Condition(along, 0, length)
            value = source(row, along, () if condition.always else (condition,))
            return value if condition.always else Guard((condition,), value, self.neutral)

        def stored(row: Index, along: Index, value: Expression) -> Body:
            return guarded((result(row, along, value),), Condition(along, 0, length))

        if blocks == 1:
            return (self.in_blocks(each, blocks, inside, stored, None),)
        totals = Memory(f"totals{length}", self.root.dtype, self.rows * blocks, local=True)

        def total(row: Index, block: Index, _: Conditions = ()) -> Expression:
            return Load(totals, row * blocks + block)

        def summed(row: Index, block: Index, value: Expression) -> Store:
            return Store(totals, row * blocks + block, value)

        return (
            Allocate(totals),
            self.totals(each, blocks, inside, totals),
            *self.prefixes(blocks, total, summed),
            self.in_blocks(each, blocks, inside, stored, totals),
        )

    # --- places ------------------------------------------------------------------------------

    def place(self, row: Index, along: Index) -> tuple[Index, ...]:
        """Element number `along` of a row, in the order of the scan."""
        axis, others = self.root.axis, unravel(row, self.others)
        if self.root.reverse:
            along = constant(self.length - 1) - along
        return (*others[:axis], along, *others[axis:])

    def source(self, row: Index, along: Index, guards: Conditions = ()) -> Expression:
        held = self.lowering.guards.setdefault(guards, guards)
        at = self.lowering.position(self.place(row, along))
        return self.lowering.emit(self.root.inputs[0], at, self.lowering.root, held)

    def result(self, row: Index, along: Index, value: Expression) -> Store:
        place = linear(self.place(row, along), self.root.shape)
        return Store(self.lowering.writes[0], place, value)

    # --- pieces ------------------------------------------------------------------------------

    def by_items(self) -> Statement:
        """A row for each item."""
        step = Var("step", self.length)

        def prefixes(row: Index) -> Body:
            each = (
                Accumulate(RUNNING, self.root.op, self.source(row, index(step))),
                self.result(row, index(step), Read(RUNNING, self.root.dtype)),
            )
            return (Declare(RUNNING, self.neutral), Loop(step, Axis.ORDERED, each))

        return by_item(self.rows, self.items, prefixes)

    def totals(self, each: int, blocks: int, source: Inside, totals: Memory) -> Statement:
        """The sum of each block."""
        size = each * self.items
        group, element = Var("group", self.rows * blocks), Var("element", size)
        row, block = unravel(index(group), (self.rows, blocks))
        value = source(row, block * size + index(element))
        body = (
            Declare(RUNNING, self.neutral),
            Loop(element, Axis.GROUP, (Accumulate(RUNNING, self.root.op, value),)),
            Store(totals, index(group), Read(RUNNING, self.root.dtype)),
        )
        return Loop(group, Axis.GRID, body)

    def in_blocks(
        self, each: int, blocks: int, source: Inside, result: Stored, sums: Memory | None
    ) -> Statement:
        """The prefixes of each block of `each` elements an item; `sums` are those up to the end of
        each block."""
        dtype, op, items = self.root.dtype, self.root.op, self.items
        group, item = Var("group", self.rows * blocks), Var("item", items)
        row, block = unravel(index(group), (self.rows, blocks))
        first = block * (each * items)
        data = Memory("data", dtype, each * items, local=True)
        totals = Memory("totals", dtype, items, local=True)
        turn, own = Var("turn", each), Var("own", each)
        side = index(turn) * items + index(item)
        mine = index(item) * each + index(own)
        running = Read(RUNNING, dtype)
        body: list[Statement] = [
            Loop(turn, Axis.SERIAL, (Store(data, side, source(row, first + side)),)),
            Synchronize(),
            Declare(RUNNING, self.neutral),
            Loop(own, Axis.ORDERED, (Accumulate(RUNNING, op, Load(data, mine)),)),
        ]
        prefixes, before = of_items(totals, item, op, running)
        body += prefixes
        if sums is not None:
            begun = Guard(
                (Condition(block, 1, blocks),), Load(sums, index(group) - 1), self.neutral
            )
            before = apply(op, (begun, before), dtype)
        body += [
            Declare("scan1", before),
            Loop(
                own,
                Axis.ORDERED,
                (
                    Accumulate("scan1", op, Load(data, mine)),
                    Store(data, mine, Read("scan1", dtype)),
                ),
            ),
            Synchronize(),
            Loop(turn, Axis.SERIAL, result(row, first + side, Load(data, side))),
        ]
        inner = (Allocate(data), Allocate(totals), Loop(item, Axis.ITEM, tuple(body)))
        return Loop(group, Axis.GRID, inner)


def of_items(totals: Memory, item: Var, op: Op, own: Expression) -> tuple[Body, Expression]:
    """What each item of a group has of its `own` becomes, in `totals`, that of all up to it; and
    what that is of those before it. All items wait at the end."""
    at, neutral, left = index(item), identity(op, own.dtype), Read("left", own.dtype)

    def before(step: int) -> Expression:
        return Guard((Condition(at, step, item.extent),), Load(totals, at - step), neutral)

    body: list[Statement] = [Store(totals, at, own), Synchronize()]
    step = 1
    while step < item.extent:
        both = apply(op, (left, Load(totals, at)), own.dtype)
        body += [Declare(left.name, before(step)), Synchronize()]
        body += [Store(totals, at, both), Synchronize()]
        step *= 2
    return tuple(body), before(1)
