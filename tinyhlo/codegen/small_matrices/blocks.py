"""Rows and columns of small matrices in blocks, the first as narrow as it must be.

    Blocks(10, 4)                   2, 4 and 4 rows
    blocks.all("j", step)           `step` for each Block
    blocks.after(block, "i", step)  for those that follow one; `before`: that it follows

An element of all lanes is a vector. A step of an elimination, one column at a time, would read two
of them for each multiply-add and write one; what is done by blocks waits in registers.
"""

from __future__ import annotations

from collections.abc import Callable

from tinyhlo.codegen.loops import Axis, Body, Loop, guarded
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.index import ZERO, Index, Var, constant, index
from tinyhlo.records import dataclass


@dataclass(frozen=True, slots=True)
class Block:
    """`size` rows or columns from `start` on; number `number` of those of full width."""

    start: Index
    size: int
    number: Index

    def __getitem__(self, k: int) -> Index:
        return self.start + k


@dataclass(frozen=True, slots=True)
class Blocks:
    """`extent` rows or columns: a first block, as narrow as it must be, and `count` of `width`."""

    extent: int
    width: int

    @property
    def first(self) -> Block:
        return Block(ZERO, (self.extent - 1) % self.width + 1, constant(-1))

    @property
    def count(self) -> int:
        return (self.extent - 1) // self.width

    def numbered(self, number: Index) -> Block:
        return Block(number * self.width + self.first.size, self.width, number)

    def all(self, name: str, step: Callable[[Block], Body]) -> Body:
        return (*step(self.first), *self.after(self.first, name, step))

    def after(self, block: Block, name: str, step: Callable[[Block], Body]) -> Body:
        """For those that follow a block."""
        if self.count == 0:
            return ()
        var = Var(name, self.count)
        loop = Loop(var, Axis.ORDERED, step(self.numbered(index(var))), 1, block.number + 1)
        return guarded((loop,), Condition(block.number, -1, self.count - 1))

    def before(self, block: Block, name: str, step: Callable[[Block], Body]) -> Body:
        """For those that a block follows."""
        if block.start is ZERO:
            return ()
        var = Var(name, self.count)
        skipped = block.number * -1 + self.count
        loop = Loop(var, Axis.ORDERED, step(self.numbered(index(var) - skipped)), 1, skipped)
        return (*step(self.first), *guarded((loop,), Condition(block.number, 1, self.count)))
