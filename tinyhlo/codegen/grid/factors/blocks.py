"""Blocks of matrices in memory that a group shares, and products of two of them.

A line of a block is BLOCK numbers side by side:

    staged(block, 64, ..)    # block[r*pitch + k] = matrix[first + r, k], each by an item
    taken_off(..)            # memory[..] -= sum of left[y*pitch + k] * right[x*pitch + k]
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

from tinyhlo.codegen.expressions import Apply, Expression, Guard, Load, Memory, Read, literal
from tinyhlo.codegen.grid.factors.calls import BLOCK, TILE
from tinyhlo.codegen.grid.statements import Fetch
from tinyhlo.codegen.loops import Assign, Axis, Body, Declare, Loop, Statement, Store, guarded
from tinyhlo.codegen.lowering.fused import Lowering, Position
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import F32, I32
from tinyhlo.ir.graph import LibraryCall, Output
from tinyhlo.ir.index import Index, Var, index, unravel
from tinyhlo.ir.ops import Op
from tinyhlo.numbers import ceil_div
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import WIDE_LOADS, Target

RUN = 4  # numbers of one load
SIDE = 16  # items along each side of a product
SUMS = TILE // SIDE  # of an item, along each side


class Element(NamedTuple):
    """Where it is in memory, if it is there at all."""

    at: Index
    held: tuple[Condition, ...]


class Blocked:
    """What is known of a call: `batch` matrices of `rows`, worked on in `count` blocks."""

    def __init__(self, kernel: Kernel, call: LibraryCall, target: Target) -> None:
        self.lowering, self.call = Lowering(kernel), call
        matrix = call.inputs[0]
        self.dtype, self.rows = matrix.dtype, matrix.shape[-1]
        self.batch_shape, self.batch = matrix.shape[:-2], prod(matrix.shape[:-2])
        self.count = ceil_div(self.rows, BLOCK)
        self.turn = Var("turn", self.count)
        self.first = index(self.turn) * BLOCK  # row and column of a turn's block
        self.behind = self.first + BLOCK
        self.numbers = Memory("numbers", I32, self.count, local=True)
        self.by_fours = self.dtype is F32 and target.has(WIDE_LOADS)
        # Lines begin in different banks, at multiples of four where they are loaded so.
        self.pitch = BLOCK + (RUN if self.by_fours else 1)

    def left_behind(self, turn: int) -> int:
        """Rows behind a turn's block."""
        return max(0, self.rows - (turn + 1) * BLOCK)

    def tiles(self, turn: int) -> int:
        """Tiles of those rows."""
        return ceil_div(self.left_behind(turn), TILE)

    def shared(self, name: str, size: int) -> Memory:
        return Memory(name, self.dtype, size, local=True)

    def lines(self, name: str, count: int) -> Memory:
        """A block of so many lines."""
        return self.shared(name, count * self.pitch)

    def result(self, position: int) -> Memory | None:
        """Where a result of the call lies, if somebody reads it."""
        results = self.lowering.kernel.graph.results
        for memory, node in zip(self.lowering.writes, results, strict=True):
            if isinstance(node, Output) and node.position == position:
                return memory
        return None

    def operand(self, number: int, matrix: Index, at: Position) -> Expression:
        """An element of an operand, where its buffer has it."""
        where = (*unravel(matrix, self.batch_shape), *at)
        return self.lowering.value(self.call.inputs[number], where)

    def each(
        self, lines: int, item: Var, items: int, across: bool, body: Callable[[Index, Index], Body]
    ) -> Statement:
        """`body` of (line, place in it) for all of a block, dealt to the items of a group, whose
        neighbours have neighbours of a line, or those `across` lines."""
        part = Var("part", lines * BLOCK // items)
        number = index(part) * items + index(item)
        if across:
            place, line = unravel(number, (BLOCK, lines))
        else:
            line, place = unravel(number, (lines, BLOCK))
        return Loop(part, Axis.SERIAL, body(line, place))

    def taken_off(
        self, left: Memory, right: Memory, item: Var, memory: Memory, of: Callable[..., Element]
    ) -> tuple[Body, Body]:
        """What is behind a turn's block, less the product of two blocks: `of` says where the
        element of a line of the left one and one of the right one is. First what may be done before
        the blocks are there: loads. Sums begin at zero, so that what is rounded is small."""
        before: list[Statement] = []
        stores: list[Statement] = []
        for number, (y, x) in enumerate(self.places(item)):
            element, name, zero = of(y, x), f"old{number}", literal(0, self.dtype)
            value = Guard(element.held, Load(memory, element.at), zero)
            before += [Declare(name, value), Declare(f"sum{number}", zero)]
            new = Read(name, self.dtype) - Read(f"sum{number}", self.dtype)
            stores += guarded((Store(memory, element.at, new),), *element.held)
        return tuple(before), (self.product(left, right, item), *stores)

    def product(self, left: Memory, right: Memory, item: Var) -> Statement:
        """Added to an item's sums."""
        run = RUN if self.by_fours else 1
        y, x = unravel(index(item), (SIDE, SIDE))
        k = Var("k", BLOCK // run)
        body: list[Statement] = []
        for name, memory, own in (("a", left, y), ("b", right, x)):
            for n in range(SUMS):
                start = (own + n * SIDE) * self.pitch + index(k) * run
                names = tuple(f"{name}{n}_{part}" for part in range(run))
                body += loads(names, memory, start, self.by_fours)
        for part in range(run):
            for number in range(SUMS**2):
                r, c = divmod(number, SUMS)
                a, b = Read(f"a{r}_{part}", self.dtype), Read(f"b{c}_{part}", self.dtype)
                body.append(multiply_add(f"sum{number}", a, b, f"sum{number}"))
        return Loop(k, Axis.ORDERED, tuple(body))

    def places(self, item: Var) -> list[tuple[Index, Index]]:
        """Line of the left block and of the right one, of each of an item's sums."""
        y, x = unravel(index(item), (SIDE, SIDE))
        return [(y + r * SIDE, x + c * SIDE) for r in range(SUMS) for c in range(SUMS)]


def loads(names: tuple[str, ...], memory: Memory, start: Index, by_fours: bool) -> list[Statement]:
    """New registers for what lies side by side."""
    found: list[Statement] = [
        Declare(name, Load(memory, start + part)) for part, name in enumerate(names)
    ]
    if not by_fours:
        return found
    fetched = (Fetch(names[k : k + RUN], memory, start + k) for k in range(0, len(names), RUN))
    return [*(Declare(name, literal(0, memory.dtype)) for name in names), *fetched]


def multiply_add(name: str, a: Expression, b: Expression, addend: str) -> Assign:
    """name = a * b + addend"""
    return Assign((name,), (Apply(Op.FMA, (a, b, Read(addend, a.dtype)), a.dtype),))
