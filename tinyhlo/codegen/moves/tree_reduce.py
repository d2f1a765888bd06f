"""Tree reduction by functions of several values: neighbours are combined two by two, in vectors.

    for j in 1000 reduce:                      for pair0 in 500 vector 16:
      re, im = times(re, im, x[j], y[j])  ->     pairs0_0[pair0] = re of x[pair0*2] times its next
                                                 pairs0_1[pair0] = im of the same
                                               for pair1 in 250 vector 16:
                                                 pairs1_0[pair1] = ... of pairs0_0, pairs0_1
                                               ...
                                               re, im = times(re, im, a tree of the last few)

One element after another, each waits for the function of all before it. What a reduce combines is
associative, so a tree gives the same and fills vectors, level by level. Elements stay in order, as
the function need not commute, and the initial value comes in once, as it need not be neutral.

Long rows are cut into blocks that stay in the first cache, which threads share; short ones go
through their levels many at a time. Where vectors run along results anyway, nothing changes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tinyhlo.codegen.bodies import inside, names_set, substituted
from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.expressions import (
    Expression,
    Load,
    Memory,
    has_registers,
    substitute_expression,
)
from tinyhlo.codegen.loops import (
    Allocate,
    Assign,
    Axis,
    Body,
    Declare,
    Loop,
    Statement,
    Store,
    nested,
)
from tinyhlo.codegen.moves.basic import collapse
from tinyhlo.codegen.moves.turned import Block
from tinyhlo.codegen.moves.vectors import gain, score
from tinyhlo.codegen.moves.work import cost_of_all
from tinyhlo.codegen.regions import combine, inline
from tinyhlo.codegen.walks import operands
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.index import ZERO, Index, Var, constant, index
from tinyhlo.numbers import ceil_div
from tinyhlo.records import dataclass
from tinyhlo.target import Target

ALONE = Var("row", 1)
BLOCK = 1024  # elements of a row, or of several, at a time, if they fit half of the first cache
UNIT = 64  # elements of which blocks are multiples: few turns of their loops are no whole vectors
FEWEST = 4  # elements of a row
WRITTEN_OUT = 128.0  # operations of the last levels, at most, which are one expression
WIDEST = 16  # elements of them, at most
Values = tuple[Expression, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Row:
    """What is combined: `count` elements, each of as many values as the combiner has results."""

    combiner: Graph
    at: Callable[[Index], Values]
    count: int

    def pair(self, place: Index) -> Values:
        """An element and the next one combined."""
        return inline(self.combiner, (*self.at(place), *self.at(place + 1)))

    def part(self, first: Index | int, count: int) -> Row:
        return Row(self.combiner, lambda place: self.at(place + first), count)

    def tree(self) -> Values:
        """All elements combined."""
        if self.count == 1:
            return self.at(ZERO)
        half = self.count // 2
        first, second = self.part(0, half), self.part(half, self.count - half)
        return inline(self.combiner, (*first.tree(), *second.tree()))

    def is_short(self) -> bool:
        """Whether the tree of all elements may be written out."""
        cost = max(1.0, cost_of_all(self.pair(ZERO), operands))
        return self.count == 1 or self.count <= min(WRITTEN_OUT / cost, WIDEST)


def as_trees(body: Body, target: Target, moves: Moves, once: bool) -> Body:
    """Every such reduce below a body. `once`: no row may be computed twice."""
    numbers = itertools.count()

    def of_loop(loop: Loop, around: Sequence[Loop]) -> Body:
        """A loop, or what takes its place."""
        if steps := combining(loop):
            if not pays(loop, target, around):
                return (loop,)
            most = block_of(loop, target)
            rows = ((step, row_of(step, loop.var)) for step in steps)
            return tuple(s for step, row in rows for s in whole(step, row, most, moves, numbers))
        around = (*around, loop)
        row = None if once else only_reduce(loop)
        if row is not None and pays(row, target, around):
            most = block_of(row, target) // row.var.extent
            if most > 1:
                return rows_together(loop, row, most, moves, numbers)
        return (replace(loop, body=below(loop.body, around)),)

    def below(body: Body, around: Sequence[Loop]) -> Body:
        result: list[Statement] = []
        for statement in body:
            if isinstance(statement, Loop):
                result += of_loop(statement, around)
            else:
                result.append(inside(statement, lambda inner: below(inner, around)))
        return tuple(result)

    return below(body, ())


def combining(loop: Loop) -> list[Assign]:
    """What a loop does that takes elements into registers by combiners, and does nothing else."""
    plain = loop.axis is Axis.REDUCE and loop.width == 1 and loop.count is None
    steps = [s for s in loop.body if isinstance(s, Assign) and s.combiner]
    return steps if plain and len(steps) == len(loop.body) else []


def pays(loop: Loop, target: Target, around: Sequence[Loop]) -> bool:
    """Whether vectors run along what is reduced, and not better along a loop around it."""
    own = gain(loop, target) if loop.var.extent >= FEWEST else 0.0
    serial = (each for each in around if each.axis is Axis.SERIAL)
    return own > 0 and all(score(each, target).value <= own for each in serial)


def block_of(loop: Loop, target: Target) -> int:
    """How many elements to take at a time."""
    nbytes = sum(e.dtype.itemsize for step in combining(loop) for e in step.elements)
    return min(BLOCK, max(UNIT, target.l1_bytes // (2 * nbytes) // UNIT * UNIT))


def only_reduce(loop: Loop) -> Loop | None:
    """The reduce that is all that a loop over rows does."""
    declares = [s for s in loop.body if isinstance(s, Declare)]
    stores = [s for s in loop.body if isinstance(s, Store)]
    plain = loop.axis is Axis.SERIAL and loop.width == 1 and loop.count is None
    match loop.body[len(declares) : len(loop.body) - len(stores)]:
        case (Loop() as row,) if plain:
            steps = combining(row)
            own = bool(steps) and frozenset(d.name for d in declares) == names_set(row.body)
            apart = not any(has_registers(e.free) for s in steps for e in s.elements)
            return row if own and apart else None
        case _:
            return None


def row_of(step: Assign, var: Var) -> Row:
    """The elements that a step takes in along `var`."""
    assert step.combiner is not None

    def at(place: Index) -> Values:
        done: dict[Expression, Expression] = {}
        return tuple(substitute_expression(e, {var: place}, done) for e in step.elements)

    return Row(step.combiner, at, var.extent)


# --- how rows run ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scratch:
    """Where results of combinations lie: an array for each value that a combiner has."""

    memories: tuple[Memory, ...]

    def at(self, place: Index) -> Values:
        return tuple(Load(memory, place) for memory in self.memories)

    def stores(self, place: Index, values: Values) -> Body:
        pairs = zip(self.memories, values, strict=True)
        return tuple(Store(memory, place, value) for memory, value in pairs)


def scratch_for(values: Values, size: int, number: int) -> Scratch:
    return Scratch(
        tuple(
            Memory(f"pairs{number}_{k}", value.dtype, size, local=True)
            for k, value in enumerate(values)
        )
    )


def rows_together(loop: Loop, row: Loop, most: int, moves: Moves, numbers: Iterator[int]) -> Body:
    """A loop over short rows: those of a block, at most so many, are reduced together."""
    extent, var = loop.var.extent, row.var
    size = next((n for n in range(most, most // 2, -1) if extent % n == 0), min(most, extent))
    written_out = all(row_of(step, var).is_short() for step in combining(row))
    block = Block(loop.var, 1 if written_out else size)
    moves.append(f"tree {block.size} x {var.extent}")
    before: list[Statement] = []
    body: list[Statement] = []
    for statement in substituted(loop.body, {loop.var: block.at(index(block.inner))}):
        if isinstance(statement, Loop):
            for step in combining(statement):
                levels, rest = shortened(row_of(step, var), block.inner, numbers)
                before += levels
                body.append(combine(step.names, rest.combiner, rest.tree()))
        else:
            body.append(statement)
    return nested([block.outer], (*before, *nested([block.inner], tuple(body))))


def whole(step: Assign, row: Row, most: int, moves: Moves, numbers: Iterator[int]) -> Body:
    """One row by itself, `most` elements at a time. The results of the blocks of a long one are the
    elements of another row."""
    if row.count <= most:
        moves.append(f"tree {row.count}")
        levels, rest = shortened(row, ALONE, numbers)
        return (*levels, combine(step.names, rest.combiner, rest.tree()))
    sizes = range(most, most // 2, -UNIT)
    size = min(sizes, key=lambda size: row.count % size)
    blocks, left = divmod(row.count, size)
    moves.append(f"tree {blocks} x {size}")
    number = next(numbers)
    block = Var(f"block{number}", blocks)
    levels, rest = shortened(row.part(index(block) * size, size), ALONE, numbers)
    values = rest.tree()
    scratch = scratch_for(values, blocks, number)
    each = Loop(block, Axis.SERIAL, (*levels, *scratch.stores(index(block), values)))
    results = Row(row.combiner, scratch.at, blocks)
    body = (*map(Allocate, scratch.memories), each, *whole(step, results, most, moves, numbers))
    if not left:
        return body
    return (*body, *whole(step, row.part(blocks * size, left), most, moves, numbers))


def shortened(row: Row, rows: Var, numbers: Iterator[int]) -> tuple[Body, Row]:
    """The levels that halve a row, and each of `rows` alike, until it is short; what is left."""
    body: list[Statement] = []
    while not row.is_short():
        number, half = next(numbers), row.count // 2
        pair, size = Var(f"pair{number}", half), ceil_div(row.count, 2)
        first, values = index(rows) * size, row.pair(index(pair) * 2)
        scratch = scratch_for(values, rows.extent * size, number)
        stores = scratch.stores(first + index(pair), values)
        body += (*map(Allocate, scratch.memories), *collapse(nested([rows, pair], stores)))
        if half < size:
            body += nested([rows], scratch.stores(first + half, row.at(constant(row.count - 1))))
        row = Row(row.combiner, scratch.at, row.count).part(first, size)
    return tuple(body), row
