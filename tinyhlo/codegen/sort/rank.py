"""Sort of one short row by counting: the place of an element is the number of those before it.

    for i in n vector: for j in n: rank[i] += j goes before i
    for i in n: sorted[rank[i]] = row[i]

Quadratic, but in vectors, without a branch, and for any comparator: `j` goes before `i` when the
comparator says so and it is later, or when it is earlier and the comparator does not object.
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
from tinyhlo.codegen.loops import Accumulate, Allocate, Axis, Declare, Loop, Statement, Store
from tinyhlo.codegen.lowering.fused import inline
from tinyhlo.ir.dtypes import I32, signed_of
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.index import Index, Var, index
from tinyhlo.ir.ops import Op
from tinyhlo.ir.order import Key

RANK = "rank"


def rank_sort(
    order: Graph | Sequence[Key], columns: Sequence[Memory], length: int, lanes: int
) -> list[Statement]:
    """Statements that sort the first `length` elements of the columns into the next `length`."""
    here, other = Var("here", length), Var("other", length)
    ranks = Memory("ranks", I32, length, local=True)
    statements: list[Statement] = [Allocate(ranks)]
    if isinstance(order, Graph):
        before = by_comparator(order, columns, index(other), index(here))
    else:
        keys = [key_memory(k, key, length) for k, key in enumerate(order)]
        statements += map(Allocate, keys)
        elements = [Load(column, index(here)) for column in columns]
        fill = [
            Store(memory, index(here), signed_key(key, elements))
            for memory, key in zip(keys, order, strict=True)
        ]
        statements.append(Loop(here, Axis.VECTOR, tuple(fill), min(lanes, length)))
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


def by_comparator(
    comparator: Graph, columns: Sequence[Memory], other: Index, here: Index
) -> Expression:
    """The same, asking the comparator about the pair as it would stand: of two elements always one
    goes before the other, whatever it answers."""
    pairs = [(Load(column, other), Load(column, here)) for column in columns]
    (smaller,) = inline(comparator, [value for pair in pairs for value in pair])
    (greater,) = inline(comparator, [value for pair in pairs for value in pair[::-1]])
    return where(earlier(other, here), ~greater, smaller & earlier(here, other))


def earlier(other: Index, here: Index) -> Expression:
    return IndexValue(other, I32) < IndexValue(here, I32)
