"""The NumPy meaning of every elementwise primitive: interpreter, constant folder and oracle.

    meaning(Op.ADD, F32)(a, b)  ->  array

bf16 and f16 are computed in f32 and rounded once; transcendental functions of f32 are computed in
f64 and rounded, so they are the oracle for the polynomials of `codegen/math/expand.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.ops import MULTIPLICATIONS, TRANSCENDENTAL, Op

Array = np.ndarray


def shift_logical(shift: np.ufunc, a: Array, b: Array) -> Array:
    """Of the bits; by the width or more gives 0."""
    width = a.dtype.itemsize * 8
    amount = unsigned(b)
    shifted = shift(unsigned(a), np.minimum(amount, width - 1).astype(amount.dtype))
    return np.where(amount < width, shifted, 0).astype(shifted.dtype).view(a.dtype)


def shift_right_arithmetic(a: Array, b: Array) -> Array:
    width = a.dtype.itemsize * 8
    amount = np.minimum(unsigned(b), width - 1).astype(a.dtype)
    signed = a.view(f"i{a.dtype.itemsize}")
    return np.right_shift(signed, amount.view(signed.dtype)).view(a.dtype)


def unsigned(a: Array) -> Array:
    return np.ascontiguousarray(a).reshape(a.shape).view(f"u{a.dtype.itemsize}")


def divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.divide(a, b)
    quotient = np.abs(a.astype(object)) // np.abs(np.where(b == 0, 1, b).astype(object))
    quotient = np.asarray(quotient, object)  # of scalars it is a Python number
    signed = np.where((a < 0) != (b < 0), -quotient, quotient)
    wrapped = np.where(b == 0, -1, signed) & ((1 << 8 * a.dtype.itemsize) - 1)
    return np.asarray(wrapped).astype(f"u{a.dtype.itemsize}").view(a.dtype)


def remainder(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.fmod(a, b)
    safe = np.where((b == 0) | ((a.dtype.kind == "i") & (b == -1)), 1, b).astype(a.dtype)
    result = np.fmod(a, safe)
    return np.where(b == 0, a, result).astype(a.dtype)


def extreme(choose: np.ufunc, a: Array, b: Array) -> Array:
    """Maximum or minimum; of zeros the maximum is +0 if either is, the minimum -0."""
    result = choose(a, b)
    if a.dtype.kind != "f":
        return result
    takes_other = np.signbit(a) == (choose is np.maximum)
    return np.where((a == 0) & (b == 0), np.where(takes_other, b, a), result)


def negate(a: Array) -> Array:
    return np.negative(a) if a.dtype.kind != "u" else (0 - a).astype(a.dtype)


def popcount(a: Array) -> Array:
    return np.bitwise_count(unsigned(a)).astype(a.dtype)


def count_leading_zeros(a: Array) -> Array:
    width = a.dtype.itemsize * 8
    rest = unsigned(a).astype(np.uint64)
    count = np.full(a.shape, width, np.int64)
    for bit in range(width):
        count = np.where((rest >> np.uint64(bit)) & np.uint64(1) == 1, width - 1 - bit, count)
    return count.astype(a.dtype)


def by_element(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function that NumPy lacks. SciPy has it, after 75 ms of imports, which the initial weights
    of most networks would wait for: bounds of their normal numbers are folded."""
    over_objects = np.frompyfunc(function, 1, 1)
    return lambda a: np.asarray(over_objects(a), a.dtype)


MEANING: dict[Op, Callable[..., Array]] = {
    Op.NEG: negate,
    Op.ABS: np.abs,
    Op.FLOOR: np.floor,
    Op.CEIL: np.ceil,
    Op.TRUNC: np.trunc,
    Op.RINT: np.rint,
    Op.SQRT: np.sqrt,
    Op.EXP: np.exp,
    Op.EXPM1: np.expm1,
    Op.LOG: np.log,
    Op.LOG1P: np.log1p,
    Op.SIN: np.sin,
    Op.COS: np.cos,
    Op.TAN: np.tan,
    Op.TANH: np.tanh,
    Op.ERF: by_element(math.erf),
    Op.ERFC: by_element(math.erfc),
    Op.NOT: np.invert,
    Op.POPCOUNT: popcount,
    Op.CLZ: count_leading_zeros,
    Op.ROUNDED: np.positive,
    Op.ADD: np.add,
    Op.SUB: np.subtract,
    **dict.fromkeys(MULTIPLICATIONS, np.multiply),
    Op.DIV: divide,
    Op.REM: remainder,
    Op.MAX: partial(extreme, np.maximum),
    Op.MIN: partial(extreme, np.minimum),
    Op.POW: np.power,
    Op.ATAN2: np.arctan2,
    Op.AND: np.bitwise_and,
    Op.OR: np.bitwise_or,
    Op.XOR: np.bitwise_xor,
    Op.SHL: partial(shift_logical, np.left_shift),
    Op.SHR: partial(shift_logical, np.right_shift),
    Op.SAR: shift_right_arithmetic,
    Op.EQ: np.equal,
    Op.NE: np.not_equal,
    Op.LT: np.less,
    Op.LE: np.less_equal,
    Op.WHERE: np.where,
}


def identity(op: Op, dtype: DType) -> np.generic:
    """The neutral element of a monoid. Sums start at +0, which -0 must meet."""
    match op:
        case Op.MUL:
            return dtype.numpy.type(1)
        case Op.MAX | Op.MIN:
            return dtype.numpy.type(dtype.bounds[op is Op.MIN])
        case Op.AND:
            return ~dtype.numpy.type(0)
        case _:
            return dtype.numpy.type(0)


def evaluate(op: Op, arguments: list[Array], dtype: DType) -> Array:
    """`op` of arrays of one shape, as an array of `dtype`; never warns."""
    with np.errstate(all="ignore"):
        if op is Op.CAST:
            return cast(arguments[0], dtype)
        if op is Op.BITCAST:
            source = np.ascontiguousarray(arguments[0]).reshape(arguments[0].shape)
            return source.view(dtype.numpy)
        function = MEANING[op]
        wide = working_type(op, arguments[-1].dtype)
        if wide is not None:
            arguments = [a.astype(wide) if a.dtype.kind != "b" else a for a in arguments]
        return np.asarray(function(*arguments)).astype(dtype.numpy)


def working_type(op: Op, dtype: np.dtype) -> type | None:
    """The type in which a float op is computed, when it is not its own."""
    if dtype == np.float32 and op in TRANSCENDENTAL:
        return np.float64
    if dtype.itemsize == 2 and dtype.kind not in "iub":
        return np.float64 if op in TRANSCENDENTAL else np.float32
    return None


def few_digits(source: Array) -> Array:
    """As f32, of which the last digit is odd where digits were cut off: rounded again, it is what
    rounding once gives. NumPy casts to bf16 by way of the nearest f32."""
    if source.dtype.kind in "iu" and source.dtype.itemsize == 8:
        size = np.abs(source).astype(np.uint64)
        cut = np.maximum(np.frexp(size.astype(np.float64))[1] - 40, 0).astype(np.uint64)
        kept = size >> cut
        kept = (kept | (kept << cut != size)) << cut
        source = np.where(source < 0, -1.0, 1.0) * kept.astype(np.float64)
    exact = source.astype(np.float64)
    near = exact.astype(np.float32)
    past = np.where(near < exact, np.float32(np.inf), np.float32(-np.inf))
    even = (near != exact) & (near.view(np.uint32) % 2 == 0) & ~np.isnan(near)
    return np.where(even, np.nextafter(near, past), near)


def cast(source: Array, dtype: DType) -> Array:
    """Value conversion: float to int truncates, saturates, and takes NaN to 0."""
    if source.dtype.kind in "iub" or dtype.is_float:
        if dtype.kind == "bool":
            return source != 0
        if dtype.bits == 16 and dtype.is_float and source.dtype.itemsize > 2:
            source = few_digits(source)
        return source.astype(dtype.numpy)
    if dtype.kind == "bool":
        return source.astype(np.float64) != 0
    limits = np.iinfo(dtype.numpy)
    wide = np.trunc(source.astype(np.float64))
    inside = np.where((wide > limits.min) & (wide < limits.max), wide, 0)
    result = inside.astype(dtype.numpy)
    result = np.where(wide >= limits.max, limits.max, result)
    result = np.where(wide <= limits.min, limits.min, result)
    return np.where(np.isnan(wide), 0, result).astype(dtype.numpy)
