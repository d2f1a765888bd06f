"""The LoopProgram: a small statement grammar, printed like code, that every renderer reads.

Statements run in order and hold expressions (`codegen/expressions.py`):

    for i in 96 parallel: body      | acc = 0.0         | acc += value     | (a, b) = (x, y)
    y[i*4 + j] = value              | if condition: ... | local t: f32[64]

An axis has a kind; moves (`codegen/moves`) rewrite axes, renderers honour kinds. Sibling loops
may use the same variable again: each loop binds it anew. What only devices have is in
`grid/statements.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import Union

import numpy as np

from tinyhlo.codegen.expressions import Expression, Memory, as_index
from tinyhlo.codegen.grid.statements import (
    Copy,
    EndCopies,
    Fetch,
    FragmentProduct,
    Put,
    ReadTexel,
    Synchronize,
    WarpgroupProducts,
    WriteTexel,
)
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import I32
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.index import ZERO, Index, Var
from tinyhlo.ir.ops import Op
from tinyhlo.records import dataclass


class Axis(Enum):
    """How the iterations of a loop run."""

    PARALLEL = "parallel"  # over workers of the pool
    SERIAL = "serial"  # one after another; independent, so a move may run them otherwise
    ORDERED = "ordered"  # each iteration needs the one before; with lanes, sums are prefixes
    UNROLL = "unroll"  # written out, one iteration after another: few and cheap
    VECTOR = "vector"  # SIMD lanes; the renderer adds the remainder
    GRID = "grid"  # over the work-items of a device, or over their groups
    GROUP = "group"  # dealt to the items of a group; what they accumulate is put together
    ITEM = "item"  # once in every item of a group, whose number is the variable
    REDUCE = "reduce"  # only accumulates: any order; `width` > 1 keeps one accumulator a lane


@dataclass(frozen=True, eq=False, slots=True)
class Loop:
    """Run `body` for `var` in `start` .. min(start + count, var.extent), `width` lanes at a time.

    `count` None means up to the extent. A strip (start = p*B, count = B) is how a split looks:
    `var` keeps its meaning, so no index has to be rewritten, and the last strip is just shorter.
    The lanes are `chains` vectors side by side.
    """

    var: Var
    axis: Axis
    body: Body
    width: int = 1
    start: Index = ZERO
    count: int | None = None
    chains: int = 1

    @property
    def trip_count(self) -> int:
        """Iterations, at most: the last strip may have fewer."""
        return min(self.count or self.var.extent, self.var.extent)


@dataclass(frozen=True, eq=False, slots=True)
class Bind:
    """Give `var` a value: how a collapsed loop recovers its former variables."""

    var: Var
    index: Index


@dataclass(frozen=True, eq=False, slots=True)
class Declare:
    """A new register with its first value."""

    name: str
    value: Expression


@dataclass(frozen=True, eq=False, slots=True)
class Accumulate:
    """name = op(name, value), `op` a monoid."""

    name: str
    op: Op
    value: Expression


@dataclass(frozen=True, eq=False, slots=True)
class Assign:
    """Set several registers at once; every value is computed first. With a `combiner` the values
    are its results for the registers and `elements`, and parts of a loop may be combined by it."""

    names: tuple[str, ...]
    values: tuple[Expression, ...]
    combiner: Graph | None = None
    elements: tuple[Expression, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Store:
    """memory[index] = value. Values of consecutive Stores are all computed before any is stored."""

    memory: Memory
    index: Index
    value: Expression


@dataclass(frozen=True, eq=False, slots=True)
class If:
    """Run `body` when all conditions hold."""

    conditions: tuple[Condition, ...]
    body: Body


@dataclass(frozen=True, eq=False, slots=True)
class Allocate:
    """Private scratch for the rest of the enclosing body."""

    memory: Memory


PACKED = 8  # lanes of a filter, on a Target that `packs`


@dataclass(frozen=True, eq=False, slots=True)
class Keep:
    """Where the condition holds, the values (i32) become the next elements of lists:

        memories[k][count] = values[k]; count += 1

    In a loop of PACKED lanes they stay in order. A list has room for PACKED elements more."""

    memories: tuple[Memory, ...]
    values: tuple[Expression, ...]
    condition: Expression
    count: str  # a register (i64)


Place = tuple[Memory, Index]


@dataclass(frozen=True, eq=False, slots=True)
class TileProduct:
    """A register tile of a matrix product: for every row r and every vector v of `lanes` columns,

        tile[tile_vectors[v] + r*tile_row + lane] (+)=
            sum over `depth` of left[left_rows[r] + left_step]
                              * right[right_vectors[v] + right_step + lane]

    The two steps are indices over the variables in `depth`, the last of which runs fastest.
    `accumulate` adds to what the tile holds. With a `group` of 2, a lane sums the products of two
    neighbours on the left and two on the right: lane l's lie at right + 2*l. `bias` is what every
    number on the left is too large by. What lies `ahead` is fetched into the cache meanwhile, for
    whoever takes the tile; so is, with each vector on the right, the one `fetched` elements further
    on. With `values` the lanes of each vector are computed as they are read,
    over `lane` and the variables in `depth`; `right` then is no memory of its own. More than one
    group `deep`, it is made of products of matrices: rows on the left lie at even distances, and
    the last loop of the depth runs over a multiple of so many groups."""

    left: Memory
    left_rows: tuple[Index, ...]
    left_step: Index
    right: Memory | None
    right_vectors: tuple[Index, ...]
    right_step: Index
    depth: tuple[Var, ...]
    tile: Memory
    tile_vectors: tuple[Index, ...]
    tile_row: int
    lanes: int
    accumulate: bool
    group: int = 1
    bias: int = 0
    deep: int = 1
    ahead: tuple[Place, ...] = ()
    fetched: int = 0
    values: tuple[Expression, ...] = ()
    lane: Var | None = None

    @property
    def vectors(self) -> int:
        return len(self.values) or len(self.right_vectors)


@dataclass(frozen=True, eq=False, slots=True)
class HoldMatrices:
    """From here on the processor's registers for matrices serve TileProducts of so many rows and
    vectors of columns; of none, it has no use for them any more."""

    rows: int
    vectors: int


Statement = Union[
    *(Loop, Bind, Declare, Accumulate, Assign, Store, If, Allocate, Keep),
    *(TileProduct, HoldMatrices),
    # of devices
    *(Synchronize, Copy, EndCopies, FragmentProduct, WarpgroupProducts, Fetch, Put),
    *(ReadTexel, WriteTexel),
]
Body = tuple[Statement, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Turns:
    """The GRID loops of `body` one after another, again for each value of `turn`: of each the first
    groups, so many as `groups` says of every turn. `numbers` (i32) is memory in which each turn
    finds its number; what is before has put it there."""

    turn: Var
    numbers: Memory
    body: tuple[Loop, ...]
    groups: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False, slots=True)
class LoopProgram:
    """The loops of one kernel. `arguments` are its reads, then its writes, as in `Launch`;
    `in_place` lists (write, read) positions that are the same memory; `tables` are small constant
    arrays; `moves` is the schedule that was applied, for people to read; of what is `planned` the
    lowering has chosen it all."""

    name: str
    reads: tuple[Memory, ...]
    writes: tuple[Memory, ...]
    body: Body
    in_place: tuple[tuple[int, int], ...] = ()
    tables: tuple[tuple[Memory, np.ndarray], ...] = ()
    moves: tuple[str, ...] = ()
    planned: bool = False
    streamed: tuple[Memory, ...] = ()  # written around the cache
    views: tuple[tuple[Memory, Memory], ...] = ()  # of a read, as another type
    together: int = 0  # groups of a grid that share a multiprocessor's registers; 0: any number
    turns: Turns | None = None  # of a device, behind the body

    def __str__(self) -> str:
        from tinyhlo.codegen.printer import format_program

        return format_program(self)


def needed(*conditions: Condition) -> tuple[Condition, ...]:
    """The conditions that do not always hold."""
    return tuple(condition for condition in conditions if not condition.always)


def holding(value: Expression) -> tuple[Condition, ...]:
    """That a boolean is true."""
    return (Condition(as_index(value.cast(I32), (0, 1)), 1, 2),)


def guarded(body: Body, *conditions: Condition) -> Body:
    """`body` where all conditions hold; nothing where one of them never does."""
    left = needed(*conditions)
    if any(condition.never for condition in left):
        return ()
    return (If(left, body),) if left else body


def around(loops: Sequence[Loop], body: Body) -> Body:
    """`body` in these loops, the last of them innermost."""
    for loop in reversed(loops):
        body = (replace(loop, body=body),)
    return body


def nested(variables: Sequence[Var], body: Body) -> Body:
    """Loops around `body`, the last variable innermost."""
    for var in reversed(variables):
        body = (Loop(var, Axis.SERIAL, body),) if var.extent > 1 else body
    return body
