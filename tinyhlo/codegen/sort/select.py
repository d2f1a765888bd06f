"""The first few of a sorted row without sorting it (`top_k`): skip blocks that cannot matter.

    for b in blocks:  lows[b] = least key of the block                 # in vectors
    best = the `limit` least of lows                                   # so many elements are there
    for b in blocks:  if lows[b] <= worst of best:
      for e in block:  if (key, e) < worst of best: insert it

The key is made one with the position, `key << 32 | position`: no two are equal, and of equal keys
the first wins. `best` descends: its first element is the worst, which an insertion drops. So each
block is read once in vectors, and about `limit` blocks are read again.
"""

from __future__ import annotations

from collections.abc import Callable

from tinyhlo.codegen.expressions import (
    Expression,
    IndexValue,
    Load,
    Memory,
    Read,
    as_index,
    identity,
    literal,
)
from tinyhlo.codegen.loops import (
    Accumulate,
    Allocate,
    Axis,
    Declare,
    If,
    Loop,
    Statement,
    Store,
    holding,
)
from tinyhlo.ir.dtypes import I32, I64
from tinyhlo.ir.index import ZERO, Index, Var, constant, index
from tinyhlo.ir.ops import Op
from tinyhlo.numbers import ceil_div, power_of_two, round_up

LARGEST_BLOCK, SMALLEST_BLOCK = 128, 16  # elements
BLOCKS = 4  # times the number of elements wanted: then few blocks are read again
CHAINS = 2
LONG = 1 << 17  # elements of a single row that are worth all threads
LEAST = literal(-(1 << 63), I64)
MOST = literal((1 << 63) - 1, I64)
LOW = Read("low", I32)
FOUND = Read("found", I64)
TOP = 32  # bits of the position in a combined key

KeyAt = Callable[[Index], Expression]  # the signed 32-bit key of an element of the row


def select(
    key: KeyAt, length: int, limit: int, lanes: int, alone: bool
) -> tuple[list[Statement], Memory]:
    """Statements that leave the `limit` least combined keys in the memory, in descending order.
    `alone`: no other row keeps the threads busy."""
    pairs = max(1, lanes // 2)
    best = Memory("best", I64, round_up(limit, pairs) + pairs, local=True)
    block = block_length(length, limit)
    if length <= 2 * block:
        everything = scan(key, best, ZERO, length, length, pairs)
        return [Allocate(best), *cleared(best, limit, MOST), everything], best
    blocks = Var("block", ceil_div(length, block))
    lows = Memory("lows", I32, blocks.extent, local=True)
    element = Var("element", length)
    start = index(blocks) * block
    least = Accumulate(LOW.name, Op.MIN, key(index(element)))
    find_low = (
        Declare(LOW.name, identity(Op.MIN, I32)),
        Loop(element, Axis.REDUCE, (least,), lanes * CHAINS, start, block),
        Store(lows, index(blocks), LOW),
    )
    statements: list[Statement] = [
        Allocate(best),
        Allocate(lows),
        Loop(blocks, Axis.PARALLEL if alone and length >= LONG else Axis.ORDERED, find_low),
        *cleared(best, limit, MOST),
    ]
    if blocks.extent > limit:
        bound = Load(best, ZERO) | ((1 << TOP) - 1)
        statements += [
            scan(lambda at: Load(lows, at), best, ZERO, blocks.extent, blocks.extent, pairs),
            Declare("bound", bound),
            *cleared(best, limit, Read("bound", I64)),
        ]
    here = combined(Load(lows, index(blocks)), start)
    again = scan(key, best, start, block, length, pairs)
    statements.append(Loop(blocks, Axis.ORDERED, (If(holding(here < Load(best, ZERO)), (again,)),)))
    return statements, best


def block_length(length: int, limit: int) -> int:
    """A power of two."""
    return max(SMALLEST_BLOCK, min(LARGEST_BLOCK, power_of_two(length // (BLOCKS * limit))))


def cleared(best: Memory, limit: int, worst: Expression) -> list[Statement]:
    """Nothing found yet: `limit` slots that any key beats, then slots that none reaches."""
    slot, rest = Var("slot", limit), Var("rest", best.size - limit)
    return [
        Loop(slot, Axis.ORDERED, (Store(best, index(slot), worst),)),
        Loop(rest, Axis.ORDERED, (Store(best, index(rest) + limit, LEAST),)),
    ]


def scan(key: KeyAt, best: Memory, start: Index, count: int, length: int, pairs: int) -> Loop:
    """Insert what is better than the worst, of the elements from `start` on."""
    element, slot = Var("element", length), Var("slot", best.size - pairs)
    kept = Load(best, index(slot)).at_most(Load(best, index(slot) + 1).at_least(FOUND))
    insert = Loop(slot, Axis.VECTOR, (Store(best, index(slot), kept),), pairs)
    body = (
        Declare(FOUND.name, combined(key(index(element)), index(element))),
        If(holding(Load(best, ZERO) > FOUND), (insert,)),
    )
    return Loop(element, Axis.ORDERED, body, 1, start, count)


def combined(key: Expression, position: Index) -> Expression:
    """key << 32 | position."""
    return (key.cast(I64) << TOP) | IndexValue(position, I64)


def position_of(best: Memory, limit: int, rank: Index, length: int) -> Index:
    """Where the element of that rank lies in its row."""
    low = Load(best, constant(limit - 1) - rank) & ((1 << (TOP - 1)) - 1)
    return as_index(low, (0, length - 1))
