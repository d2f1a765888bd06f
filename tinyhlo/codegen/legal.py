"""What ops mean by what all languages print: written once, for LLVM, C and WGSL.

In: an op and its operands, values with operators, each printed as it is. Out: the op's value. Plain
division is open for zero, a plain shift for the width or more, a plain conversion of a float
for what the integer has no room for; StableHLO's meaning is put around them:

    legalised(Op.DIV, (x, y), U32, native)   # where(y == 0, -1, x / where(y == 0, 1, y))

Half precision floats compute in f32 and round after every op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeVar

import numpy as np

from tinyhlo.ir.dtypes import BF16, BOOL, F16, F32, F64, I16, I32, U32, DType, unsigned_of
from tinyhlo.ir.operators import Operators, alike, apply
from tinyhlo.ir.ops import COMPARISONS, Op

T = TypeVar("T", bound=Any)  # Operators[T] with a `dtype`
Rule = Callable[..., Any]
Native = Callable[[Op, DType, DType], bool]  # whether op of a type, to a type, is printed as it is

SMALL_FLOATS = (BF16, F16)
MOVES = (Op.WHERE, Op.BITCAST)
EXACT = (Op.MAX, Op.MIN, Op.FLOOR, Op.CEIL, Op.TRUNC, Op.RINT)  # results are numbers of the type
# bits of a type: (low bits that become one, least power of two for that), largest numbers first
STICKY = {32: ((8, 24),), 64: ((40, 50), (26, 36), (12, 24))}
# low bits of an f64 that become one: 15 are left, which f32 holds down to half of the least bf16
BEHIND = 37


@cache
def has_rule(op: Op, operand: DType, result: DType) -> bool:
    """Whether `op` of a type, to a type, may be more than is printed for it."""
    if op is Op.CAST:
        parts = operand.is_float and not result.is_float
        return parts or result is BOOL or operand in SMALL_FLOATS or result in SMALL_FLOATS
    return op in RULES[operand.kind] or is_in_single(op, operand)


def is_in_single(op: Op, operand: DType) -> bool:
    return operand in SMALL_FLOATS and op not in MOVES


def legalised(
    op: Op, operands: Sequence[T], dtype: DType, native: Native, short_nans: bool = False
) -> T:
    """`op` by plain ops. `short_nans`: those that arithmetic makes have no low bits set."""
    operand = operands[-1].dtype
    if op is Op.CAST:
        return cast(operands[0], dtype, native)
    if is_in_single(op, operand):
        return in_single(op, operands, native, short_nans)
    rule = RULES[operand.kind].get(op)
    if rule is None or native(op, operand, dtype):
        return operands[0].combined(op, operands, dtype)
    return rule(*operands)


def where(condition: T, then: T | float, other: T | float) -> T:
    """One of the two, of which one may be a number like the other."""
    like: Any = then if isinstance(then, Operators) else other
    parts = (condition, alike(like, then), alike(like, other))
    return like.combined(Op.WHERE, parts, like.dtype)


def same_bits(x: T, dtype: DType) -> T:
    return x if x.dtype is dtype else x.combined(Op.BITCAST, (x,), dtype)


def as_unsigned(x: T) -> T:
    return same_bits(x, unsigned_of(x.dtype))


# --- half precision ------------------------------------------------------------------------------


def in_single(op: Op, operands: Sequence[T], native: Native, short_nans: bool) -> T:
    """Exactly to f32, computed, rounded back."""
    x = operands[0]
    if op is Op.NEG:
        return x.flip_sign(-(1 << 15))
    if op is Op.ABS:
        return (x.as_integer() & 0x7FFF).as_float(x.dtype)
    wide = [cast(operand, F32, native) for operand in operands]
    value = legalised(op, wide, BOOL if op in COMPARISONS else F32, native)
    if op in COMPARISONS:
        return value
    if x.dtype is BF16 and op in EXACT:
        return high_half(value.as_integer())
    if x.dtype is BF16 and short_nans and not native(Op.CAST, F32, BF16):
        return high_half(rounded_up(value.as_integer()))
    return narrowed(value, x.dtype, native)


def widened(x: T, native: Native) -> T:
    """bf16 or f16 as f32, exactly."""
    bits = as_unsigned(x)
    if x.dtype is BF16:
        return (bits.cast(U32) << 16).as_float(F32)
    if native(Op.CAST, F16, F32):
        return x.cast(F32)
    bits = bits.cast(I32)
    size = bits & 0x7FFF
    moved = size << 13
    normal = where(size < 0x7C00, moved + 0x38000000, moved + 0x70000000)
    denormal = (size.cast(F32) * 2.0**-24).as_integer()
    return (where(size < 0x400, denormal, normal) | (bits & 0x8000) << 16).as_float(F32)


def narrowed(x: T, target: DType, native: Native) -> T:
    """f32 as bf16 or f16, to nearest even."""
    if native(Op.CAST, F32, target):
        return x.cast(target)
    bits = x.as_integer()
    if target is BF16:
        quiet = bits | 0x400000
        return high_half(where(x.differs(x), quiet, rounded_up(bits)))
    size = bits & 0x7FFFFFFF
    normal = (size - 0x37FFF001 + (size >> 13 & 1)) >> 13
    denormal = (size.as_float(F32) + 0.5).as_integer() - 0x3F000000  # rounded at the last place
    finite = where(size < 0x38800000, denormal, normal)
    special = where(size > 0x7F800000, size >> 13 & 0x3FF | 0x7E00, 0x7C00)
    value = where(size < 0x47800000, finite, special) | bits >> 16 & 0x8000
    return value.cast(I16).as_float(F16)


def rounded_up(bits: T) -> T:
    """The bits of an f32 and half of a bf16's last place, or a little less where that is even."""
    return bits + ((bits >> 16 & 1) + 0x7FFF)


def high_half(bits: T) -> T:
    """The bf16 that begins an f32."""
    return (bits >> 16).cast(I16).as_float(BF16)


# --- conversions ---------------------------------------------------------------------------------


def cast(x: T, target: DType, native: Native) -> T:
    """Float to int truncates, saturates, and takes NaN to 0; narrower floats round to nearest
    even."""
    source = x.dtype
    if source is target:
        return x
    if source in SMALL_FLOATS:
        return cast(widened(x, native), target, native)
    if target is BOOL:
        return x.differs(0)
    if target in SMALL_FLOATS:
        return to_small(x, target, native)
    if source.is_float and target.is_integer and not native(Op.CAST, source, target):
        return truncated(x, target)
    return x.cast(target)


def to_small(x: T, target: DType, native: Native) -> T:
    """Rounded once: what f32 may round before is brought there with one bit for all that follow."""
    source = x.dtype
    if source is BOOL:
        one = int(np.asarray(1, target.numpy).view(np.int16))
        return (0 - x.cast(I16) & one).as_float(target)
    if source is F64:
        x = odd_single(x)
    elif source is not F32:  # an integer that f32 rounds is infinite in f16
        exact = target is F16 or source.bits < 32
        x = (x if exact else few_digits(x)).cast(F32)
    return narrowed(x, target, native)


def odd_single(x: T) -> T:
    """f64 as f32 that rounding once more to 16 bits rounds right: a bit says whether any of those
    behind it was set (to odd; Boldo and Melquiond, Emulation of FMA and correctly rounded sums)."""
    bits = x.as_integer()
    rest = (1 << BEHIND) - 1
    some = (bits & rest) + rest  # carries into the last bit that stays
    return ((bits | some) & ~rest).as_float(F64).cast(F32)


def few_digits(x: T) -> T:
    """An integer as one that f32 holds exactly and bf16 rounds alike: a bit says whether any of
    those behind it was set."""
    bits = x.dtype.bits
    for digits, least in STICKY[bits]:
        some = (x & (1 << digits) - 1).at_most(1)
        rounded = (x & -(1 << digits)) | some << digits
        exact = as_unsigned(x + (1 << least if x.dtype.kind == "signed" else 0))
        limit = 1 << least + (x.dtype.kind == "signed")
        x = where(exact < limit, x, rounded)
    return x


def truncated(x: T, target: DType) -> T:
    """Clamped first, so that the plain conversion is defined. What lies above the last float below
    the limit is the limit."""
    low, high = (int(bound) for bound in target.bounds)
    number = x.dtype.numpy.type
    last = number(high)
    last = last if int(last) <= high else np.nextafter(last, number(0))
    inside = where(x.equals(x), x, 0)
    inside = where(inside > low, inside, low)
    inside = where(inside < last, inside, last)
    result = inside.cast(target if target is U32 or target.bits > 32 else I32)
    if int(last) < high:
        result = where(x > last, high, result)
    return result if result.dtype is target else result.cast(target)


# --- floats --------------------------------------------------------------------------------------


def extreme(better: Callable[[T, T], T], joined: Callable[[T, T], T], x: T, y: T) -> T:
    """NaN if either is NaN, and max(-0, +0) = +0: the same twice, but for zeros of either sign."""
    either = (where(better(one, two), one, two).as_integer() for one, two in ((x, y), (y, x)))
    number = joined(*either).as_float(x.dtype)
    return where(x.ordered(y), number, x + y)


# --- integers ------------------------------------------------------------------------------------


def absolute(x: T) -> T:
    return x if x.dtype.kind == "unsigned" else where(x < 0, 0 - x, x)


def counted(op: Op, x: T) -> T:
    """Ones, or zeros in front, by words of 32 or 64 bits."""
    bits = as_unsigned(x)
    word = bits.cast(U32) if x.dtype.bits < 32 else bits
    count = word.combined(op, (word,), word.dtype)
    if op is Op.CLZ and x.dtype.bits < 32:
        count = count - (32 - x.dtype.bits)
    return count if count.dtype is x.dtype else count.cast(x.dtype)


def divided(op: Op, x: T, y: T) -> T:
    """x/0 = -1, x%0 = x, INT_MIN/-1 = INT_MIN, INT_MIN%-1 = 0."""
    if y.known not in (None, 0, -1):
        return apply(op, x, y)
    unsafe = is_zero = y.equals(0)
    is_minus_one = None
    if x.dtype.kind == "signed":
        is_minus_one = y.equals(-1)
        unsafe = is_zero | is_minus_one
    value = apply(op, x, where(unsafe, 1, y))
    if op is Op.REM:  # x%1 = 0 is also x%-1
        return where(is_zero, x, value)
    if is_minus_one is not None:
        value = where(is_minus_one, 0 - x, value)
    return where(is_zero, -1, value)


def shifted(op: Op, x: T, y: T) -> T:
    """Shifts by the width or more give 0, or the sign for SAR."""
    last = x.dtype.bits - 1
    if y.known in range(last + 1):
        return apply(op, x, y)
    count = as_unsigned(y)
    if op is Op.SAR:
        return apply(op, x, same_bits(count.at_most(last), y.dtype))
    return where(count <= last, apply(op, x, y), 0)


FLOATS: Mapping[Op, Rule] = {
    Op.MAX: partial(extreme, lambda x, y: x > y, lambda x, y: x & y),
    Op.MIN: partial(extreme, lambda x, y: x < y, lambda x, y: x | y),
}
INTEGERS: Mapping[Op, Rule] = {
    Op.NEG: lambda x: 0 - x,
    Op.NOT: lambda x: x ^ -1,
    Op.ABS: absolute,
    **{op: partial(counted, op) for op in (Op.CLZ, Op.POPCOUNT)},
    **{op: partial(divided, op) for op in (Op.DIV, Op.REM)},
    **{op: partial(shifted, op) for op in (Op.SHL, Op.SHR, Op.SAR)},
}
BOOLEANS: Mapping[Op, Rule] = {
    Op.ADD: lambda x, y: x | y,
    Op.MUL: lambda x, y: x & y,
    Op.MAX: lambda x, y: x | y,
    Op.MIN: lambda x, y: x & y,
    Op.NOT: lambda x: x ^ True,
}
RULES = {"float": FLOATS, "signed": INTEGERS, "unsigned": INTEGERS, "bool": BOOLEANS}
