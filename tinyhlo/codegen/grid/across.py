"""Arrays that are read across, as tiles in memory that a group shares:

    for i in 4096: for j in 4096: y[i*4096 + j] = f(x[j*4096 + i])

    for group in 16384 grid:
      local tile: f32[1056]
      for item in 256 item:
        tile[..] = x[..]         # neighbours along i, 4 times
        synchronize
        y[..] = f(tile[..])      # neighbours along j, 4 times

Neighbouring items read neighbours and write neighbours; a row of a tile has some room behind it, so
that a column of it lies in other banks. The last tile along an axis begins so that it ends there:
what it shares with the one before is computed twice, alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod

from tinyhlo.codegen.bodies import all_indices, memories_read, rewritten, substituted, values_in
from tinyhlo.codegen.expressions import (
    Expression,
    IndexValue,
    Load,
    Memory,
    apply,
    as_index,
    exchanged,
    literal,
)
from tinyhlo.codegen.grid.mapping import ITEMS, collapsed, is_independent
from tinyhlo.codegen.grid.several import WORK
from tinyhlo.codegen.grid.sizes import WORD, shared_bytes, shared_itemsize
from tinyhlo.codegen.grid.statements import Synchronize
from tinyhlo.codegen.loops import Allocate, Axis, Bind, Body, Loop, LoopProgram, Statement, Store
from tinyhlo.codegen.walks import plain_loads, work_of
from tinyhlo.ir.dtypes import I32, DType
from tinyhlo.ir.index import Index, Var, constant, index, substitute, unravel
from tinyhlo.ir.ops import Op
from tinyhlo.numbers import ceil_div
from tinyhlo.target import Target

SIDE = 32  # of a tile, of elements of a word or more
LEAST = 1 << 16  # elements from which on it pays
MOST_BYTES = 16 << 10  # of a group's tiles, so that a unit has room for many groups


def turned(program: LoopProgram, target: Target) -> LoopProgram:
    """The same, with what it reads across in tiles."""
    if target.is_processor:
        return program
    items, in_place = min(ITEMS, target.group_items), bool(program.in_place)
    body = tuple(tiled(s, items, in_place, target) or s for s in program.body)
    return replace(program, body=body)


def tiled(statement: Statement, items: int, in_place: bool, target: Target) -> Loop | None:
    """A loop over tiles instead of a loop over elements, where some are read across."""
    if not is_independent(statement):
        return None
    assert isinstance(statement, Loop)
    variables, body = merged(*collapsed(statement))
    stores = [s for s in body if isinstance(s, Store)]
    if len(stores) < len(body) or prod(var.extent for var in variables) < LEAST:
        return None
    if not memories_read(body).isdisjoint({s.memory for s in stores}):
        return None
    for along in variables:
        if all(s.index.coefficient(along) == 1 for s in stores):
            loads = [
                load for load in plain_loads(s.value for s in stores) if is_across(load, along)
            ]
            inner = [u for u in variables for load in loads if load.index.coefficient(u) == 1]
            tiles = Tiles(variables, inner[0], along, loads, items, target) if inner else None
            return tiles.loop(body) if tiles and tiles.pay(in_place) else None
    return None


def merged(variables: list[Var], body: Body) -> tuple[list[Var], Body]:
    """The same with one loop for two around each other that no index tells from one."""
    indices = list(all_indices(body))
    for k, (outer, inner) in enumerate(pairwise(variables)):
        if all(is_one(where, outer, inner) for where in indices):
            both = Var(f"{outer.name}{inner.name}", outer.extent * inner.extent)
            places = (index(both) // inner.extent, index(both) % inner.extent)
            body = substituted(body, dict(zip((outer, inner), places, strict=True)))
            return merged([*variables[:k], both, *variables[k + 2 :]], body)
    return variables, body


def is_one(where: Index, outer: Var, inner: Var) -> bool:
    """Whether an index counts on through the iterations of two loops."""
    step = where.coefficient(inner)
    return step is not None and where.coefficient(outer) == step * inner.extent


def is_across(load: Load, var: Var) -> bool:
    """Whether neighbours along `var` lie apart, in memory that nobody writes."""
    return load.memory.constant and load.index.coefficient(var) not in (None, 0, 1)


class Tiles:
    """Tiles of `side` elements along `inner`, which is what is read as it lies, and as many along
    `along`, which is what is written as it lies."""

    def __init__(
        self, variables: Sequence[Var], inner: Var, along: Var, loads: Sequence[Load], items: int,
        target: Target,
    ) -> None:  # fmt: skip
        self.inner, self.along, self.items, self.target = inner, along, items, target
        self.others = [v for v in variables if v not in (inner, along)]
        loads = [load for load in loads if load.index.coefficient(inner) == 1]
        widest = max(shared_itemsize(load.dtype, target) for load in loads)
        shortest = min(inner.extent, along.extent)
        self.side = 2 * SIDE if widest < WORD and shortest >= 2 * SIDE else SIDE
        self.memories: dict[Load, Memory] = {}
        for load in sorted(loads, key=lambda load: load.serial):
            size = self.side * self.row(load.dtype)
            memory = Memory(f"tile{len(self.memories)}", load.dtype, size, local=True)
            tiles = (*self.memories.values(), memory)
            if sum(shared_bytes(each, target) for each in tiles) <= MOST_BYTES:
                self.memories[load] = memory

    def row(self, dtype: DType) -> int:
        """Elements from one row of a tile to the next."""
        return self.side + max(1, WORD // shared_itemsize(dtype, self.target))

    def pay(self, in_place: bool) -> bool:
        """Whether few elements are computed twice, and none where elements are overwritten."""
        extents = (self.inner.extent, self.along.extent)
        if min(extents) < self.side or self.items % self.side:
            return False
        computed = prod(ceil_div(extent, self.side) * self.side for extent in extents)
        return computed == prod(extents) or not (in_place or 2 * computed > 3 * prod(extents))

    def loop(self, body: Body) -> Loop:
        counts = [ceil_div(var.extent, self.side) for var in (self.inner, self.along)]
        extents = (*(var.extent for var in self.others), *counts)
        group, item = Var("group", prod(extents)), Var("item", self.items)
        *places, down, right = unravel(index(group), extents)
        first, start = (
            Var(f"{var.name}_first", var.extent - self.side + 1) for var in (self.inner, self.along)
        )
        head = [
            *(Bind(var, at) for var, at in zip(self.others, places, strict=True)),
            Bind(first, self.begin(down, self.inner)),
            Bind(start, self.begin(right, self.along)),
            *map(Allocate, self.memories.values()),
        ]
        lane, row = index(item) % self.side, index(item) // self.side

        def staged(turn: Index) -> Body:
            at = row + turn * (self.items // self.side)
            to = {self.inner: index(first) + lane, self.along: index(start) + at}
            return tuple(
                Store(memory, self.place(memory, at, lane), moved(load, to))
                for load, memory in self.memories.items()
            )

        def written(turn: Index) -> Body:
            at = row + turn * (self.items // self.side)
            to = {self.inner: index(first) + at, self.along: index(start) + lane}
            known: dict[Expression, Expression] = {
                load: Load(memory, self.place(memory, lane, at))
                for load, memory in self.memories.items()
            }
            return tuple(
                rewritten(s, lambda e: exchanged(e, known, to), lambda i: substitute(i, to))
                for s in body
            )

        turns = self.side**2 // self.items
        light = turns * work_of(value for s in body for value in values_in(s)) <= WORK
        inner = (*in_turns(turns, staged, True), Synchronize(), *in_turns(turns, written, light))
        return Loop(group, Axis.GRID, (*head, Loop(item, Axis.ITEM, inner)))

    def begin(self, tile: Index, var: Var) -> Index:
        """Where a tile begins along a variable, so that it ends where the variable does."""
        last = var.extent - self.side
        start = tile * self.side
        if start.bounds[1] <= last:
            return start
        value = apply(Op.MIN, (IndexValue(start, I32), literal(last, I32)), I32)
        return as_index(value, (0, last))

    def place(self, memory: Memory, row: Index, column: Index) -> Index:
        return row * self.row(memory.dtype) + column


def in_turns(turns: int, body: Callable[[Index], Body], light: bool) -> Body:
    """A body in so many turns. A light one is written out: loads then come before stores."""
    if light:
        return tuple(s for k in range(turns) for s in body(constant(k)))
    turn = Var("turn", turns)
    return (Loop(turn, Axis.SERIAL, body(index(turn))),)


def moved(load: Load, to: dict[Var, Index]) -> Load:
    return Load(load.memory, substitute(load.index, to))
