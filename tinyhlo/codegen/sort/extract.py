"""The first few of a short sorted row without sorting it: the least, then the least of the rest.

    for e in row:  keys[e] = (key of e, e + 1)                         # in vectors
    for r in limit:  best[r] = least of the keys greater than best[r - 1]

No two keys are equal, as in `select`, so nothing has to be taken out of the row; and none is the
least number there is, from which the first round begins.
"""

from __future__ import annotations

from tinyhlo.codegen.expressions import Load, Memory, Read, as_index, identity, where
from tinyhlo.codegen.loops import Accumulate, Allocate, Axis, Declare, Loop, Statement, Store
from tinyhlo.codegen.sort.select import LEAST, MOST, TOP, KeyAt, combined
from tinyhlo.ir.dtypes import I64
from tinyhlo.ir.index import ZERO, Index, Var, index
from tinyhlo.ir.ops import Op

NEXT = Read("next", I64)


def extract(key: KeyAt, length: int, limit: int, lanes: int) -> tuple[list[Statement], Memory]:
    """Statements that leave the `limit` least combined keys in the memory, behind one element that
    is less than all."""
    pairs = min(max(1, lanes // 2), length)
    keys = Memory("keys", I64, length, local=True)
    best = Memory("best", I64, limit + 1, local=True)
    element, rank = Var("element", length), Var("rank", limit)
    each = Load(keys, index(element))
    later = where(each > Load(best, index(rank)), each, MOST)
    find = (
        Declare(NEXT.name, identity(Op.MIN, I64)),
        Loop(element, Axis.REDUCE, (Accumulate(NEXT.name, Op.MIN, later),), pairs),
        Store(best, index(rank) + 1, NEXT),
    )
    made = Store(keys, index(element), combined(key(index(element)), index(element) + 1))
    return [
        Allocate(keys),
        Allocate(best),
        Loop(element, Axis.VECTOR, (made,), pairs),
        Store(best, ZERO, LEAST),
        Loop(rank, Axis.ORDERED, find),
    ], best


def place_of(best: Memory, rank: Index, length: int) -> Index:
    """Where the element of that rank lies in its row."""
    low = Load(best, rank + 1) & ((1 << (TOP - 1)) - 1)
    return as_index(low - 1, (0, length - 1))
