"""Elementwise ops, by tables: the ones that are primitives, and the expansions of the others.

    stablehlo.add   ->  ADD (OR on booleans)
    stablehlo.rsqrt ->  DIV(1, SQRT(x))

Expansions of several steps on bf16 and f16 run in f32 and round once, as one op would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any

from tinyhlo.import_stablehlo.in_turn import mapped
from tinyhlo.import_stablehlo.operands import (
    arithmetic,
    is_half,
    is_infinite,
    is_nan,
    known_scalar,
)
from tinyhlo.import_stablehlo.records import Operation
from tinyhlo.import_stablehlo.walker import Rule, Scope, UnsupportedError, on_values
from tinyhlo.ir.build import bitcast, broadcast, cast, elementwise, exp, log, sqrt, where
from tinyhlo.ir.dtypes import BOOL, F32, unsigned_of
from tinyhlo.ir.graph import Elementwise, Node
from tinyhlo.ir.ops import Op

Written = Callable[..., "Node | Sequence[Node]"]  # what an op is, of several nodes

PRIMITIVES = {
    "stablehlo.negate": Op.NEG,
    "stablehlo.floor": Op.FLOOR,
    "stablehlo.ceil": Op.CEIL,
    "stablehlo.round_nearest_even": Op.RINT,
    "stablehlo.sqrt": Op.SQRT,
    "stablehlo.exponential": Op.EXP,
    "stablehlo.exponential_minus_one": Op.EXPM1,
    "stablehlo.log": Op.LOG,
    "stablehlo.log_plus_one": Op.LOG1P,
    "stablehlo.sine": Op.SIN,
    "stablehlo.cosine": Op.COS,
    "stablehlo.tan": Op.TAN,
    "chlo.tan": Op.TAN,
    "stablehlo.tanh": Op.TANH,
    "chlo.erf": Op.ERF,
    "chlo.erfc": Op.ERFC,
    "stablehlo.not": Op.NOT,
    "stablehlo.popcnt": Op.POPCOUNT,
    "stablehlo.count_leading_zeros": Op.CLZ,
    "stablehlo.add": Op.ADD,
    "stablehlo.subtract": Op.SUB,
    "stablehlo.divide": Op.DIV,
    "stablehlo.remainder": Op.REM,
    "stablehlo.maximum": Op.MAX,
    "stablehlo.minimum": Op.MIN,
    "stablehlo.atan2": Op.ATAN2,
    "stablehlo.and": Op.AND,
    "stablehlo.or": Op.OR,
    "stablehlo.xor": Op.XOR,
    "stablehlo.shift_left": Op.SHL,
    "stablehlo.shift_right_logical": Op.SHR,
    "stablehlo.shift_right_arithmetic": Op.SAR,
}


def in_wide(function: Written) -> Written:
    """The function, computed in f32 and rounded once for halves."""

    def widened(*values: Any) -> Node | Sequence[Node]:
        dtype = values[0].dtype
        if not is_half(dtype):
            return function(*values)
        found = function(*(cast(v, F32) if isinstance(v, Node) else v for v in values))
        return cast(found, dtype) if isinstance(found, Node) else [cast(f, dtype) for f in found]

    return widened


def expansion(expand: Callable[..., Node]) -> Rule:
    """The rule of an op that `expand(*nodes)` writes with several nodes."""
    return on_values(in_wide(expand))


def multiply(x: Node, y: Node) -> Node:
    """A product with a converted boolean is a select: 0 * inf is NaN, but programs mask infinities
    this way because XLA:CPU makes a select of it too."""
    if x.dtype is BOOL:
        return x & y
    if is_mask(x):
        return where(x.inputs[0], y, 0)
    return where(y.inputs[0], x, 0) if is_mask(y) else x * y


def is_mask(x: Node) -> bool:
    """Whether a number is 0 or 1 because it was a boolean."""
    return isinstance(x, Elementwise) and x.op is Op.CAST and x.inputs[0].dtype is BOOL


def logistic(x: Node) -> Node:
    """1 / (1 + e**-x); for negative x e**x / (1 + e**x), which is right down to denormals."""
    shrunk = exp(-abs(x))
    return where(x < 0, shrunk, 1) / (1 + shrunk)


def cbrt(x: Node) -> Node:
    """exp(log|x| / 3), sharpened by a Newton step; 0, inf and NaN are their own roots."""
    size = abs(x)
    root = exp(log(size) * (1 / 3))
    root = root - (root - size / (root * root)) * (1 / 3)
    return where(is_finite(x) & x.differs(0), where(x < 0, -root, root), x)


def sign(x: Node) -> Node:
    """-1, 0 or 1; zeros keep their sign and NaN stays NaN."""
    positive = where(x > 0, 1, x if x.dtype.is_float else x.constant(0))
    return positive if x.dtype.kind == "unsigned" else where(x < 0, -1, positive)


def is_finite(x: Node) -> Node:
    return abs(x) < inf


def round_half_away(x: Node) -> Node:
    """trunc(x), one further from zero when the part cut off (exact) is at least a half."""
    whole = x.trunc()
    unit = where(x < 0, x.constant(-1), 1)
    return where(abs(x - whole) >= 0.5, whole + unit, whole)


def square(x: Node) -> Node:
    return x * x


def next_after(x: Node, y: Node) -> Node:
    """The neighbour of x towards y, by stepping the bits of x as a sign and magnitude number."""
    top = 1 << (x.dtype.bits - 1)
    bits, target = (bitcast(node, unsigned_of(x.dtype)) for node in (x, y))
    sign_bit, target_sign = bits & top, target & top
    shrink = ((target ^ target_sign) < (bits ^ sign_bit)) | sign_bit.differs(target_sign)
    stepped = where(shrink, bits - 1, bits + 1)
    result = bitcast(where(x.equals(0), target_sign | 1, stepped), x.dtype)
    unordered = is_nan(x) | is_nan(y)  # x + y is then NaN
    return where(unordered, x + y, where(x.equals(y), y, result))


def power(base: Node, exponent: Node) -> Node:
    if base.dtype.is_float:
        known = known_scalar(exponent)
        match None if known is None else float(known):
            case 1.0:
                return base
            case 2.0:
                return square(base)
            case -1.0:
                return 1 / base
            case _:
                return elementwise(Op.POW, base, exponent)
    if base.dtype is BOOL:
        raise UnsupportedError("power of booleans: use logical operations")
    return integer_power(base, exponent)


def integer_power(base: Node, exponent: Node) -> Node:
    """Square and multiply over the exponent's bits; a negative exponent leaves 1, -1 or 0."""
    one = base.constant(1)
    result, factor = one, base
    for bit in range(exponent.dtype.bits - (exponent.dtype.kind == "signed")):
        result = result * where((exponent & (1 << bit)).differs(0), factor, one)
        factor = square(factor)
    if exponent.dtype.kind == "unsigned":
        return result
    odd = (exponent & 1).differs(0)
    reciprocal = where(base.equals(1), one, 0)
    reciprocal = where(base.equals(-1), where(odd, -1, one), reciprocal)
    return where(exponent < 0, reciprocal, result)


def clamp(low: Node, x: Node, high: Node) -> Node:
    low, high = (broadcast(bound, x.shape) if not bound.shape else bound for bound in (low, high))
    return arithmetic(Op.MIN, arithmetic(Op.MAX, x, low), high)


def select(condition: Node, then: Node, other: Node) -> Node:
    if condition.shape != then.shape:
        condition = broadcast(condition, then.shape)
    return where(condition, then, other)


def absolute(x: Node) -> Node:
    return x if x.dtype.kind in ("unsigned", "bool") else abs(x)


def map_op(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Node]:
    """One array, or both planes of one."""
    return mapped(scope.graph(operation.regions[0]), inputs, operation.type.shape)


def reduce_precision(x: Node, exponent_bits: int, mantissa_bits: int) -> Node:
    """Round the bits to fewer mantissa bits (half to even), then force the exponent's range."""
    bits, mantissa = bitcast(x, unsigned_of(x.dtype)), x.dtype.mantissa_bits
    dropped = mantissa - mantissa_bits
    if dropped > 0:
        last = (bits >> dropped) & 1
        bits = (bits + (last + ((1 << (dropped - 1)) - 1))) & -(1 << dropped)
    if exponent_bits < x.dtype.exponent_bits:
        bias, reduced = x.dtype.exponent_bias, (1 << (exponent_bits - 1)) - 1
        infinity = ((1 << x.dtype.exponent_bits) - 1) << mantissa
        exponent, signed_zero = bits & infinity, bits & (1 << (x.dtype.bits - 1))
        bits = where(exponent > (bias + reduced) << mantissa, signed_zero | infinity, bits)
        bits = where(exponent <= (bias - reduced) << mantissa, signed_zero, bits)
    return where(is_nan(x), x, bitcast(bits, x.dtype))


RULES: dict[str, Rule] = {
    **{name: on_values(partial(arithmetic, op)) for name, op in PRIMITIVES.items()},
    "stablehlo.multiply": on_values(multiply),
    "stablehlo.abs": on_values(absolute),
    "stablehlo.rsqrt": expansion(lambda x: 1 / sqrt(x)),
    "stablehlo.logistic": expansion(logistic),
    "stablehlo.cbrt": expansion(cbrt),
    "stablehlo.sign": on_values(sign),
    "stablehlo.is_finite": on_values(is_finite),
    "stablehlo.real": on_values(lambda x: x),
    "stablehlo.imag": on_values(lambda x: x.constant(0)),
    "chlo.is_inf": on_values(is_infinite),
    "chlo.is_pos_inf": on_values(lambda x: x.equals(inf)),
    "chlo.is_neg_inf": on_values(lambda x: x.equals(-inf)),
    "chlo.next_after": on_values(next_after),
    "chlo.square": on_values(square),
    "stablehlo.round_nearest_afz": expansion(round_half_away),
    "stablehlo.power": on_values(power),
    "stablehlo.clamp": on_values(clamp),
    "stablehlo.select": on_values(select),
    "stablehlo.map": map_op,
    "stablehlo.reduce_precision": on_values(reduce_precision, "exponent_bits", "mantissa_bits"),
}
