"""Index arithmetic that stays affine, and comparisons that ranges decide.

    fold(ADD, (i, 3), I32)  ->  i + 3      # cannot wrap: i < 2^31 - 3
    fold(MAX, (i, 0), I32)  ->  i
    fold(LT, (i, -1), I32)  ->  False

A dynamic_slice whose start is a loop variable, or a roll written with iota, so becomes a plain
strided load.
"""

from __future__ import annotations

from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.index import Index
from tinyhlo.ir.ops import Op


def fold(op: Op, operands: tuple[Index | None, ...], dtype: DType) -> Index | bool | None:
    """`op` on integers of a type, of which None stands for any that is no index. None where nothing
    is known of the result."""
    match op, operands:
        case Op.CAST, (Index() as x,) if dtype.is_integer:
            return within(x, dtype)
        case Op.ADD, (Index() as x, Index() as y):
            return within(x + y, dtype)
        case Op.SUB, (Index() as x, Index() as y):
            return within(x - y, dtype)
        case Op.MUL, (Index() as x, Index() as y) if y.is_constant:
            return within(x * y.offset, dtype)
        case Op.MUL, (Index() as x, Index() as y) if x.is_constant:
            return within(y * x.offset, dtype)
        case ((Op.MAX | Op.MIN), (Index() as x, Index() as y)):
            return choose(op, x, y)
        case ((Op.LT | Op.LE), (Index() as x, Index() as y)):
            return compare(op, x, y)
    return None


def fits(index: Index, dtype: DType) -> bool:
    """Whether a type has all values of an index."""
    low, high = index.bounds
    least, most = dtype.bounds
    return least <= low and high <= most


def within(index: Index, dtype: DType) -> Index | None:
    return index if fits(index, dtype) else None


def choose(op: Op, x: Index, y: Index) -> Index | None:
    """max or min, when the ranges do not overlap."""
    low, high = (x - y).bounds
    if high <= 0:
        return y if op is Op.MAX else x
    if low >= 0:
        return x if op is Op.MAX else y
    return None


def compare(op: Op, x: Index, y: Index) -> bool | None:
    low, high = (x - y).bounds
    if high < 0 or (high == 0 and op is Op.LE):
        return True
    if low > 0 or (low == 0 and op is Op.LT):
        return False
    return None
