"""Sort of one short row by counting: the place of an element is the number of those before it.

    for i in n vector: for j in n: rank[i] += j goes before i
    for i in n: sorted[rank[i]] = row[i]

Quadratic, but in vectors and without a branch: `j` goes before `i` when its key is smaller, or
equal and `j` is the earlier one.
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
from tinyhlo.codegen.loops import Accumulate, Allocate, Axis, Declare, Loop, Statement, Store
from tinyhlo.codegen.regions import inline
from tinyhlo.ir.dtypes import I32, signed_of
from tinyhlo.ir.index import Index, Var, index
from tinyhlo.ir.ops import Op
from tinyhlo.ir.order import Key

RANK = "rank"


def rank_sort(
    order: Sequence[Key], columns: Sequence[Memory], length: int, lanes: int
) -> list[Statement]:
    """Statements that sort the first `length` elements of the columns into the next `length`."""
    here, other = Var("here", length), Var("other", length)
    ranks = Memory("ranks", I32, length, local=True)
    keys = [key_memory(k, key, length) for k, key in enumerate(order)]
    elements = [Load(column, index(here)) for column in columns]
    fill = [
        Store(memory, index(here), signed_key(key, elements))
        for memory, key in zip(keys, order, strict=True)
    ]
    statements: list[Statement] = [
        *map(Allocate, (ranks, *keys)),
        Loop(here, Axis.VECTOR, tuple(fill), min(lanes, length)),
    ]
    before = by_keys(keys, index(other), index(here))
    more = Accumulate(RANK, Op.ADD, before.cast(I32))
    counting = (
        Declare(RANK, literal(0, I32)),
        Loop(other, Axis.ORDERED, (more,)),
        Store(ranks, index(here), Read(RANK, I32)),
    )
    place = as_index(Load(ranks, index(here)), (0, length - 1)) + length
    moves = [Store(column, place, Load(column, index(here))) for column in columns]
    return [
        *statements,
        Loop(here, Axis.VECTOR, counting, min(lanes, length)),
        Loop(here, Axis.ORDERED, tuple(moves)),
    ]


def key_memory(number: int, key: Key, length: int) -> Memory:
    dtype = key.graph.results[0].dtype
    return Memory(f"key{number}", signed_of(dtype) if dtype.bits >= 32 else I32, length, local=True)


def signed_key(key: Key, elements: Sequence[Expression]) -> Expression:
    """As a signed number: vector units compare those."""
    (value,) = inline(key.graph, elements)
    if value.dtype.bits < 32:
        return value.cast(I32)
    return (value ^ (1 << (value.dtype.bits - 1))).as_integer()


def by_keys(keys: Sequence[Memory], other: Index, here: Index) -> Expression:
    """Whether element `other` goes before `here`, which is not it."""
    before = earlier(other, here)
    for key in reversed(keys):
        its, own = Load(key, other), Load(key, here)
        before = (its < own) | (its.equals(own) & before)
    return before


def earlier(other: Index, here: Index) -> Expression:
    return IndexValue(other, I32) < IndexValue(here, I32)
