"""Build Apply expressions, keeping index arithmetic affine and dropping what ranges decide.

    apply(ADD, (IndexValue(i), 3), I32)  ->  IndexValue(i + 3)      # cannot wrap: i < 2^31 - 3
    apply(MAX, (IndexValue(i), 0), I32)  ->  IndexValue(i)

A dynamic_slice whose start is a loop variable, or a roll written with iota, so becomes a plain
strided load.
"""

from __future__ import annotations

from tinyhlo.codegen.expressions import Apply, Expression, IndexValue, Literal
from tinyhlo.ir.dtypes import BOOL, DType
from tinyhlo.ir.index import Index, constant
from tinyhlo.ir.ops import Op


def apply(op: Op, arguments: tuple[Expression, ...], dtype: DType) -> Expression:
    """`op` applied, folded where index ranges allow it."""
    if op is Op.WHERE and isinstance(arguments[0], Literal):
        return arguments[1] if arguments[0].bits else arguments[2]
    if IndexValue in map(type, arguments):
        folded = fold(op, arguments, dtype)
        if folded is not None:
            return folded
    return Apply(op, arguments, dtype)


def where(condition: Expression, then: Expression, other: Expression) -> Expression:
    """`then` where `condition` holds."""
    return apply(Op.WHERE, (condition, then, other), then.dtype)


def fold(op: Op, arguments: tuple[Expression, ...], dtype: DType) -> Expression | None:
    indices = [as_affine(argument) for argument in arguments]
    match op, indices:
        case Op.CAST, [Index() as x] if dtype.is_integer:
            return within(x, dtype)
        case Op.ADD, [Index() as x, Index() as y]:
            return within(x + y, dtype)
        case Op.SUB, [Index() as x, Index() as y]:
            return within(x - y, dtype)
        case Op.MUL, [Index() as x, Index() as y] if y.is_constant:
            return within(x * y.offset, dtype)
        case Op.MUL, [Index() as x, Index() as y] if x.is_constant:
            return within(y * x.offset, dtype)
        case ((Op.MAX | Op.MIN), [Index() as x, Index() as y]):
            return choose(op, x, y, dtype)
        case ((Op.LT | Op.LE), [Index() as x, Index() as y]):
            return compare(op, x, y)
    return None


def as_affine(value: Expression) -> Index | None:
    match value:
        case IndexValue(index=index, dtype=dtype) if dtype.is_integer and fits(index, dtype):
            return index
        case Literal(bits=bits, dtype=dtype) if dtype.is_integer:
            negative = dtype.kind == "signed" and bits >> (dtype.bits - 1)
            return constant(bits - (1 << dtype.bits) if negative else bits)
    return None


def fits(index: Index, dtype: DType) -> bool:
    low, high = index.bounds
    if dtype.kind == "signed":
        return -(1 << (dtype.bits - 1)) <= low and high < 1 << (dtype.bits - 1)
    return low >= 0 and high < 1 << dtype.bits


def within(index: Index, dtype: DType) -> Expression | None:
    return IndexValue(index, dtype) if fits(index, dtype) else None


def choose(op: Op, x: Index, y: Index, dtype: DType) -> Expression | None:
    """max or min, when the ranges do not overlap."""
    low, high = (x - y).bounds
    if high <= 0:
        return IndexValue(y if op is Op.MAX else x, dtype)
    if low >= 0:
        return IndexValue(x if op is Op.MAX else y, dtype)
    return None


def compare(op: Op, x: Index, y: Index) -> Expression | None:
    low, high = (x - y).bounds
    if high < 0 or (high == 0 and op is Op.LE):
        return Literal(1, BOOL)
    if low > 0 or (low == 0 and op is Op.LT):
        return Literal(0, BOOL)
    return None
