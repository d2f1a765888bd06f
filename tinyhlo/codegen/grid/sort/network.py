"""Sort on grids by a bitonic network, for any comparator, stable.

Blocks are sorted in memory that a group shares; then runs of 2, 4, 8 .. blocks are merged. A merge
compares each element with its mirror image in the run, then with those at half the distance and so
on: from a distance within a block on in shared memory again (Batcher, Sorting networks and their
applications). All comparisons put the smaller element first, so what would be behind the end of a
row may be left out. Equal elements are told apart by where they came from.

    for group in 64 grid: for item in 256 item:
      a0 = data0[i]; b0 = data0[j]; a = places[i]; b = places[j]
      if b0 < a0, or b0 is not greater and b < a: exchange
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
    where,
)
from tinyhlo.codegen.grid.mapping import ITEMS
from tinyhlo.codegen.grid.sizes import shared_itemsize
from tinyhlo.codegen.grid.sort.rows import Elements, Rows, Save, loaded, saved
from tinyhlo.codegen.grid.statements import Synchronize
from tinyhlo.codegen.loops import (
    Allocate,
    Axis,
    Body,
    Declare,
    If,
    Loop,
    Statement,
    Store,
    guarded,
    holding,
    needed,
)
from tinyhlo.codegen.lowering.fused import Conditions
from tinyhlo.codegen.regions import inline
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import BOOL, I32
from tinyhlo.ir.index import Index, Var, index, unravel
from tinyhlo.numbers import ceil_div, power_of_two
from tinyhlo.target import Target

MOST = 2048  # elements of a block


class Network:
    """The pieces that sort rows; places in them, which come last, tell equal elements apart."""

    def __init__(self, rows: Rows, target: Target) -> None:
        self.rows, self.length, self.comparator = rows, rows.length, rows.root.comparator
        self.types = [node.dtype for node in rows.root.inputs]
        each = sum(shared_itemsize(dtype, target) for dtype in (*self.types, I32))
        room = min(MOST, power_of_two(target.group_bytes // each))
        padded = 1 << (self.length - 1).bit_length()
        self.run = min(room, max(padded, 2))  # of a row in a block
        self.blocks = ceil_div(self.length, self.run)
        several = 1 if self.blocks > 1 else min(room // self.run, rows.count)
        self.together = power_of_two(several)
        self.block = self.run * self.together  # so that items take equal parts of it
        self.items = power_of_two(min(ITEMS, target.group_items, self.block // 2))

    def memories(self, name: str, size: int) -> tuple[Memory, ...]:
        """One an operand, and one of places."""
        types = enumerate((*self.types, I32))
        return tuple(Memory(f"{name}{k}", dtype, size, local=True) for k, dtype in types)

    def elements(self, row: Index, along: Index, guards: Conditions) -> list[Expression]:
        return [*self.rows.elements(row, along, guards), IndexValue(along, I32)]

    def body(self) -> Body:
        if self.blocks == 1:
            return (self.in_blocks(self.rows.results),)
        row = self.memories("row", self.rows.count * self.length)
        kept, keep = loaded(row, self.length), saved(row, self.length)
        first = self.of_blocks(self.elements, keep, True)
        steps: list[Statement] = [*map(Allocate, row), first]
        distance = self.run
        while distance < self.length:
            steps.append(self.step(row, distance, True))
            apart = distance // 2
            while apart >= self.run:
                steps.append(self.step(row, apart, False))
                apart //= 2
            distance *= 2
            save = keep if distance < self.length else self.rows.results
            steps.append(self.of_blocks(kept, save, False))
        return tuple(steps)

    # --- pieces ------------------------------------------------------------------------------

    def in_blocks(self, save: Save, _: int = 0) -> Statement:
        """Sort each block; its elements are saved without their places."""
        return self.of_blocks(self.elements, lambda row, along, v: save(row, along, v[:-1]), True)

    def of_blocks(self, load: Elements, save: Save, whole: bool) -> Statement:
        """Sort each block (`whole`), or merge its halves."""
        several = ceil_div(self.rows.count, self.together)
        group, item = Var("group", several * self.blocks), Var("item", self.items)
        first, block = unravel(index(group), (several, self.blocks))
        turn = Var("turn", self.block // self.items)
        number = index(turn) * self.items + index(item)
        inside, place = unravel(number, (self.together, self.run))
        row, along = first * self.together + inside, block * self.run + place
        data = self.memories("data", self.block)
        conditions = (Condition(row, 0, self.rows.count), Condition(along, 0, self.length))
        values = load(row, along, needed(*conditions))
        loaded: Body = tuple(Store(m, number, v) for m, v in zip(data, values, strict=True))
        saved = save(row, along, [Load(memory, number) for memory in data])
        body = (
            Loop(turn, Axis.SERIAL, guarded(loaded, *conditions)),
            Synchronize(),
            self.network(data, item, block * self.run, whole),
            Loop(turn, Axis.SERIAL, guarded(saved, *conditions)),
        )
        return Loop(group, Axis.GRID, (*map(Allocate, data), Loop(item, Axis.ITEM, body)))

    def network(self, data: Sequence[Memory], item: Var, start: Index, whole: bool) -> Statement:
        """All steps within a block: of every level, or the last ones of a merge."""
        levels = self.run.bit_length() - 1
        level, step = Var("level", levels), Var("step", levels)
        turn = Var("pair", self.block // 2 // self.items)
        pair = IndexValue(index(turn) * self.items + index(item), I32)
        distance = literal(1, I32) << IndexValue(index(step) * -1 + (levels - 1), I32)
        low = pair & (distance - 1)
        one, apart = pair + pair - low, distance
        if whole:  # the first step of a level compares with the mirror image
            mirrored = IndexValue(index(step) + index(level), I32).equals(levels - 1)
            apart = where(mirrored, distance + distance - 1 - low - low, distance)
        other = one + apart
        along = (other & (self.run - 1)) + IndexValue(start, I32)
        ends = (0, self.block - 1)
        compared = self.compared(
            data, as_index(one, ends), as_index(other, ends), along < self.length
        )
        body = (Loop(turn, Axis.SERIAL, compared), Synchronize())
        if not whole:
            return Loop(step, Axis.ORDERED, body)
        inner = Loop(step, Axis.ORDERED, body, 1, index(level) * -1 + (levels - 1))
        return Loop(level, Axis.ORDERED, (inner,))

    def step(self, memories: Sequence[Memory], distance: int, mirrored: bool) -> Statement:
        """One step of a merge, over memory of all: an item for each pair."""
        pairs = ceil_div(self.length, 2 * distance) * distance
        items = min(ITEMS, self.items)
        blocks = ceil_div(pairs, items)
        group, item = Var("group", self.rows.count * blocks), Var("item", items)
        row, block = unravel(index(group), (self.rows.count, blocks))
        high, low = unravel(block * items + index(item), (pairs // distance, distance))
        one = high * (2 * distance) + low
        other = one + (low * -2 + (2 * distance - 1) if mirrored else distance)
        inside = Condition(other, 0, self.length)
        first = row * self.length
        body = self.compared(memories, first + one, first + other, literal(True, BOOL))
        return Loop(group, Axis.GRID, (Loop(item, Axis.ITEM, guarded(body, inside)),))

    def compared(
        self, memories: Sequence[Memory], one: Index, other: Index, inside: Expression
    ) -> Body:
        """Two elements in order, where the other one is `inside` the row."""
        first = [Read(f"a{k}", memory.dtype) for k, memory in enumerate(memories)]
        second = [Read(f"b{k}", memory.dtype) for k, memory in enumerate(memories)]
        *left, here = first
        *right, there = second
        later = here < there  # whether the second one was later at first
        pairs = [
            where(later, *two) for a, b in zip(left, right, strict=True) for two in ((b, a), (a, b))
        ]
        (objects,) = inline(self.comparator, pairs)  # the later one goes before the earlier
        exchanged = inside & where(objects, later, there < here)
        stores = [
            Store(memory, place, value)
            for memory, a, b in zip(memories, first, second, strict=True)
            for place, value in ((one, b), (other, a))
        ]
        return (
            *(Declare(r.name, Load(m, one)) for r, m in zip(first, memories, strict=True)),
            *(Declare(r.name, Load(m, other)) for r, m in zip(second, memories, strict=True)),
            If(holding(exchanged), tuple(stores)),
        )
