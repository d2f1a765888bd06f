"""Elementwise ops, by tables: the ones that are primitives, and the expansions of the others.

    stablehlo.add   ->  ADD (OR on booleans)
    stablehlo.rsqrt ->  DIV(1, SQRT(x))

Expansions of several steps on bf16 and f16 run in f32 and round once, as one op would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinyhlo.import_stablehlo.operands import is_half, known_scalar, like, map_region, type_range
from tinyhlo.import_stablehlo.records import Operation
from tinyhlo.import_stablehlo.walker import Rule, Scope, UnsupportedError
from tinyhlo.ir.build import (
    bitcast,
    broadcast,
    cast,
    elementwise,
    exp,
    log,
    sqrt,
    where,
)
from tinyhlo.ir.dtypes import BOOL, F32, unsigned_of
from tinyhlo.ir.graph import Node
from tinyhlo.ir.ops import Op

PRIMITIVES = {
    "stablehlo.negate": Op.NEG,
    "stablehlo.abs": Op.ABS,
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
    "stablehlo.not": Op.NOT,
    "stablehlo.popcnt": Op.POPCOUNT,
    "stablehlo.count_leading_zeros": Op.CLZ,
    "stablehlo.add": Op.ADD,
    "stablehlo.subtract": Op.SUB,
    "stablehlo.multiply": Op.MUL,
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
# arithmetic on booleans is logic
ON_BOOLEANS = {Op.ADD: Op.OR, Op.SUB: Op.XOR, Op.MUL: Op.AND, Op.MAX: Op.OR, Op.MIN: Op.AND}


def primitive(op: Op) -> Rule:
    """The rule of an op that is one node."""
    logical = ON_BOOLEANS.get(op, op)

    def rule(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
        return elementwise(logical if inputs[0].dtype is BOOL else op, *inputs)

    return rule


def expansion(expand: Callable[..., Node]) -> Rule:
    """The rule of an op that `expand(*nodes)` writes with several nodes."""

    def rule(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
        dtype = inputs[0].dtype
        if not is_half(dtype):
            return expand(*inputs)
        return cast(expand(*(cast(node, F32) for node in inputs)), operation.type.dtype)

    return rule


def direct(expand: Callable[..., Node]) -> Rule:
    """The same, for expansions that are exact in the operand's own type."""
    return lambda operation, inputs, scope: expand(*inputs)


def rsqrt(x: Node) -> Node:
    return 1 / sqrt(x)


def logistic(x: Node) -> Node:
    """1 / (1 + e**-x); for negative x e**x / (1 + e**x), which is right down to denormals."""
    one, size = like(1, x), abs(x)
    shrunk = exp(-size)
    top = where(x < 0, shrunk, one)
    return top / (one + shrunk)


def cbrt(x: Node) -> Node:
    """exp(log|x| / 3), sharpened by a Newton step; 0, inf and NaN are their own roots."""
    third, size = like(1 / 3, x), abs(x)
    root = exp(log(size) * third)
    square = root * root
    error = root - size / square
    root = root - error * third
    root = where(x < 0, -root, root)
    ordinary = is_finite(x) & x.differs(0)
    return where(ordinary, root, x)


def sign(x: Node) -> Node:
    """-1, 0 or 1; zeros keep their sign and NaN stays NaN."""
    zero = like(0, x)
    positive = where(zero < x, 1, x if x.dtype.is_float else zero)
    if x.dtype.kind == "unsigned":
        return positive
    return where(x < zero, -1, positive)


def is_finite(x: Node) -> Node:
    return abs(x) < float("inf")


def is_inf(x: Node) -> Node:
    return abs(x).equals(float("inf"))


def is_positive_inf(x: Node) -> Node:
    return x.equals(float("inf"))


def is_negative_inf(x: Node) -> Node:
    return x.equals(float("-inf"))


def round_half_away(x: Node) -> Node:
    """trunc(x), one further from zero when the part cut off (exact) is at least a half."""
    whole = elementwise(Op.TRUNC, x)
    cut = abs(x - whole)
    unit = where(x < 0, like(-1, x), like(1, x))
    away = cut >= 0.5
    return where(away, whole + unit, whole)


def square(x: Node) -> Node:
    return x * x


def next_after(x: Node, y: Node) -> Node:
    """The neighbour of x towards y, by stepping the bits of x as a sign and magnitude number."""
    unsigned = unsigned_of(x.dtype)
    bits, target = bitcast(x, unsigned), bitcast(y, unsigned)
    one, top = like(1, bits), like(1 << (x.dtype.bits - 1), bits)
    sign_bit = bits & top
    zero = x.equals(0)
    from_zero = (target & top) | one
    magnitude_x = bits ^ sign_bit
    target_sign = target & top
    magnitude_y = target ^ target_sign
    shrink = (magnitude_y < magnitude_x) | sign_bit.differs(target_sign)
    stepped = where(shrink, bits - one, bits + one)
    result = bitcast(where(zero, from_zero, stepped), x.dtype)
    unordered = x.differs(x) | y.differs(y)  # x + y is then NaN
    result = where(x.equals(y), y, result)
    return where(unordered, x + y, result)


def power(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    base, exponent = inputs
    known = known_scalar(exponent)
    if base.dtype.is_float:
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
    if known is not None and 0 <= int(known) <= 64:
        return known_power(base, int(known))
    return integer_power(base, exponent)


def known_power(base: Node, exponent: int) -> Node:
    """Square and multiply for an exponent known now."""
    result: Node | None = None
    while exponent:
        if exponent & 1:
            result = base if result is None else result * base
        exponent >>= 1
        if exponent:
            base = square(base)
    return like(1, base) if result is None else result


def integer_power(base: Node, exponent: Node) -> Node:
    """Square and multiply over the exponent's bits; a negative exponent leaves 1, -1 or 0."""
    one, zero = like(1, base), like(0, base)
    result, factor = one, base
    for bit in range(type_range(exponent.dtype)[1].bit_length()):
        chosen = exponent & (1 << bit)
        take = chosen.differs(0)
        result = result * where(take, factor, one)
        factor = square(factor)
    if exponent.dtype.kind == "unsigned":
        return result
    odd = (exponent & 1).differs(0)
    minus_one = base.equals(-1)
    reciprocal = where(base.equals(one), one, zero)
    reciprocal = where(minus_one, where(odd, -1, one), reciprocal)
    return where(exponent < 0, reciprocal, result)


def clamp(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    low, x, high = inputs
    low, high = (broadcast(bound, x.shape) if not bound.shape else bound for bound in (low, high))
    larger, smaller = (Op.OR, Op.AND) if x.dtype is BOOL else (Op.MAX, Op.MIN)
    return elementwise(smaller, elementwise(larger, x, low), high)


def select(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    condition, then, other = inputs
    if condition.shape != then.shape:
        condition = broadcast(condition, then.shape)
    return where(condition, then, other)


def absolute(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    (x,) = inputs
    return x if x.dtype.kind in ("unsigned", "bool") else abs(x)


def map_op(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    mapped = map_region(scope.graph(operation.regions[0]), inputs, operation.type.shape)
    if mapped is None:
        raise UnsupportedError("its region is not elementwise")
    return mapped[0]


def reduce_precision(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    """Round the bits to fewer mantissa bits (half to even), then force the exponent's range."""
    (x,) = inputs
    exponent_bits = operation.attributes["exponent_bits"]
    mantissa_bits = operation.attributes["mantissa_bits"]
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
    return where(x.differs(x), x, bitcast(bits, x.dtype))


RULES: dict[str, Rule] = {
    **{name: primitive(op) for name, op in PRIMITIVES.items()},
    "stablehlo.abs": absolute,
    "stablehlo.rsqrt": expansion(rsqrt),
    "stablehlo.logistic": expansion(logistic),
    "stablehlo.cbrt": expansion(cbrt),
    "stablehlo.sign": direct(sign),
    "stablehlo.is_finite": direct(is_finite),
    "stablehlo.real": direct(lambda x: x),
    "stablehlo.imag": direct(lambda x: like(0, x)),
    "chlo.is_inf": direct(is_inf),
    "chlo.is_pos_inf": direct(is_positive_inf),
    "chlo.is_neg_inf": direct(is_negative_inf),
    "chlo.next_after": direct(next_after),
    "chlo.square": direct(square),
    "stablehlo.round_nearest_afz": expansion(round_half_away),
    "stablehlo.power": power,
    "stablehlo.clamp": clamp,
    "stablehlo.select": select,
    "stablehlo.map": map_op,
    "stablehlo.reduce_precision": reduce_precision,
}
