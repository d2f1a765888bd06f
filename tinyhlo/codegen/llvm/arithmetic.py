"""The elementwise primitives as LLVM IR: one table, op -> how to write it.

In: operand texts of one type and lane count. Out: the text of the result. Half precision floats
compute in f32 and round after every op. Where LLVM's instruction is undefined (division by zero,
oversized shifts) StableHLO's meaning is selected around it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import gcd

from tinyhlo.codegen.llvm.builder import Builder
from tinyhlo.codegen.llvm.convert import (
    SMALL_FLOATS,
    bitcast,
    convert,
    narrow_exact,
    narrow_result,
    widen,
)
from tinyhlo.codegen.llvm.types import float_text, lanes_type, splat, suffix, value_type
from tinyhlo.codegen.math.tables import LOOKUPS
from tinyhlo.ir.dtypes import BF16, BOOL, F32, DType
from tinyhlo.ir.ops import COMPARISONS, Op

FLOAT_INSTRUCTIONS = {
    # `contract` lets the backend form fused multiply-adds
    Op.ADD: "fadd contract",
    Op.SUB: "fsub contract",
    Op.MUL: "fmul contract",
    Op.DIV: "fdiv",
    Op.NEG: "fneg",
}
FLOAT_MATH = {
    Op.ABS: "fabs",
    Op.FLOOR: "floor",
    Op.CEIL: "ceil",
    Op.TRUNC: "trunc",
    Op.RINT: "roundeven",
    Op.SQRT: "sqrt",
    Op.FMA: "fma",
}
INT_INSTRUCTIONS = {
    Op.ADD: "add",
    Op.SUB: "sub",
    Op.MUL: "mul",
    Op.AND: "and",
    Op.OR: "or",
    Op.XOR: "xor",
}
BOOL_BINARY = {Op.ADD: "or", Op.MUL: "and", Op.MAX: "or", Op.MIN: "and", Op.SUB: "xor"}
SHIFTS = {Op.SHL: "shl", Op.SHR: "lshr", Op.SAR: "ashr"}
FLOAT_COMPARE = {Op.EQ: "oeq", Op.NE: "une", Op.LT: "olt", Op.LE: "ole"}
INT_COMPARE = {Op.EQ: "eq", Op.NE: "ne", Op.LT: "lt", Op.LE: "le"}
EXACT = (Op.MAX, Op.MIN, Op.FLOOR, Op.CEIL, Op.TRUNC, Op.RINT)  # results are numbers of the type
LIBM = {
    Op.EXP: "exp",
    Op.EXPM1: "expm1",
    Op.LOG: "log",
    Op.LOG1P: "log1p",
    Op.SIN: "sin",
    Op.COS: "cos",
    Op.TAN: "tan",
    Op.TANH: "tanh",
    Op.ERF: "erf",
    Op.ERFC: "erfc",
    Op.POW: "pow",
    Op.ATAN2: "atan2",
    Op.REM: "fmod",
}


def emit(
    b: Builder, op: Op, arguments: Sequence[str], operand: DType, result: DType, lanes: int
) -> str:
    """`op` on arguments of type `operand` (for WHERE: the type of the last two)."""
    a = arguments[0]
    if op is Op.CAST:
        return convert(b, a, operand, result, lanes)
    if op is Op.BITCAST:
        return bitcast(b, a, operand, result, lanes)
    if op in LOOKUPS:
        return look_up(b, op, a, operand, result, lanes)
    if op is Op.WHERE:
        return b.select(a, arguments[1], arguments[2], value_type(result, lanes), lanes)
    if operand in SMALL_FLOATS:
        return emit_wide(b, op, arguments, operand, lanes)
    if op in COMPARISONS:
        return compare(b, op, arguments, operand, lanes)
    if operand is BOOL:
        return emit_bool(b, op, arguments, lanes)
    rules = FLOAT_RULES if operand.is_float else INT_RULES
    return rules[op](b, op, arguments, operand, lanes)


def emit_wide(b: Builder, op: Op, arguments: Sequence[str], dtype: DType, lanes: int) -> str:
    """Half precision: exactly to f32, compute, round back."""
    if op in (Op.NEG, Op.ABS):
        return sign_bits(b, op, arguments[0], dtype, lanes)
    wide = [widen(b, text, dtype, lanes) for text in arguments]
    value = emit(b, op, wide, F32, BOOL if op in COMPARISONS else F32, lanes)
    if op in COMPARISONS:
        return value
    if op in EXACT and dtype is BF16:
        return narrow_exact(b, value, lanes)
    return narrow_result(b, value, dtype, lanes)


def sign_bits(b: Builder, op: Op, text: str, dtype: DType, lanes: int) -> str:
    bits = lanes_type("i16", lanes)
    if dtype is not BF16:
        text = b.value(f"bitcast {value_type(dtype, lanes)} {text} to {bits}")
    mask = splat("-32768" if op is Op.NEG else "32767", "i16", lanes)
    text = b.value(f"{'xor' if op is Op.NEG else 'and'} {bits} {text}, {mask}")
    return (
        text if dtype is BF16 else b.value(f"bitcast {bits} {text} to {value_type(dtype, lanes)}")
    )


def emit_bool(b: Builder, op: Op, arguments: Sequence[str], lanes: int) -> str:
    type_ = lanes_type("i1", lanes)
    if op is Op.NOT:
        return b.value(f"xor {type_} {arguments[0]}, {splat('true', 'i1', lanes)}")
    name = BOOL_BINARY.get(op) or INT_INSTRUCTIONS[op]
    return b.value(f"{name} {type_} {arguments[0]}, {arguments[1]}")


def compare(b: Builder, op: Op, arguments: Sequence[str], operand: DType, lanes: int) -> str:
    type_ = value_type(operand, lanes)
    if operand.is_float:
        return b.value(f"fcmp {FLOAT_COMPARE[op]} {type_} {arguments[0]}, {arguments[1]}")
    name = INT_COMPARE[op]
    if op in (Op.LT, Op.LE):
        name = ("s" if operand.kind == "signed" else "u") + name
    return b.value(f"icmp {name} {type_} {arguments[0]}, {arguments[1]}")


Rule = Callable[[Builder, Op, Sequence[str], DType, int], str]


def written(names: Mapping[Op, str]) -> Rule:
    """Ops that are one instruction."""
    return lambda b, op, arguments, dtype, lanes: b.value(
        f"{names[op]} {value_type(dtype, lanes)} {', '.join(arguments)}"
    )


def called(names: Mapping[Op, str]) -> Rule:
    """Ops that are one overloaded intrinsic."""
    return lambda b, op, arguments, dtype, lanes: b.math(names[op], dtype, lanes, *arguments)


# --- floats: f32 and f64 -----------------------------------------------------------------------


def float_extreme(b: Builder, op: Op, arguments: Sequence[str], dtype: DType, lanes: int) -> str:
    """NaN if either is NaN, and max(-0, +0) = +0. Against a constant that is neither, x86's own
    instruction does it: it returns its second operand when unordered."""
    x, y = arguments
    if y.startswith("%") and not x.startswith("%"):
        x, y = y, x
    type_ = value_type(dtype, lanes)
    if not y.startswith("%") and "0x7FF" not in y and "0xFFF" not in y:
        order = "ogt" if op is Op.MAX else "olt"
        better = b.value(f"fcmp {order} {type_} {y}, {x}")
        value = b.select(better, y, x, type_, lanes)
        if float_text(0.0) in y and op is Op.MAX:  # -0.0 becomes +0.0
            value = b.value(f"fadd {type_} {value}, zeroinitializer")
        elif float_text(0.0)[3:] in y:
            return b.math("maximum" if op is Op.MAX else "minimum", dtype, lanes, x, y)
        return value
    if lanes > 1 and not b.masks:
        return b.math("maximum" if op is Op.MAX else "minimum", dtype, lanes, x, y)
    # LLVM would ask for the sign: of one number by a jump, of lanes by masks, one after the other
    order, joined = ("ogt", "and") if op is Op.MAX else ("olt", "or")
    bits = lanes_type(f"i{dtype.bits}", lanes)
    either: list[str] = []  # the same twice, but for zeros of either sign
    for one, other in ((x, y), (y, x)):
        better = b.value(f"fcmp {order} {type_} {one}, {other}")
        value = b.select(better, one, other, type_, lanes)
        either.append(b.value(f"bitcast {type_} {value} to {bits}"))
    both = b.value(f"{joined} {bits} {', '.join(either)}")
    value = b.value(f"bitcast {bits} {both} to {type_}")
    unordered = b.value(f"fcmp uno {type_} {x}, {y}")
    return b.select(unordered, b.value(f"fadd {type_} {x}, {y}"), value, type_, lanes)


def larger_number(b: Builder, _: Op, arguments: Sequence[str], dtype: DType, lanes: int) -> str:
    """One instruction of x86, which returns its second operand when unordered: the first here,
    where a reduce has what it found so far, which is never NaN."""
    x, y = arguments
    type_ = value_type(dtype, lanes)
    return b.select(b.value(f"fcmp ogt {type_} {y}, {x}"), y, x, type_, lanes)


def lane_calls(b: Builder, op: Op, arguments: Sequence[str], dtype: DType, lanes: int) -> str:
    """libm, one lane after the other: for what `codegen/math/expand.py` does not expand."""
    scalar = value_type(dtype, 1)
    name = LIBM[op] + ("f" if dtype is F32 else "")
    if lanes == 1:
        return b.intrinsic(name, scalar, [(scalar, a) for a in arguments])
    vector = value_type(dtype, lanes)
    result = "poison"
    for lane in range(lanes):
        parts = [(scalar, b.value(f"extractelement {vector} {a}, i64 {lane}")) for a in arguments]
        value = b.intrinsic(name, scalar, parts)
        result = b.value(f"insertelement {vector} {result}, {scalar} {value}, i64 {lane}")
    return result


def scale(b: Builder, op: Op, arguments: Sequence[str], dtype: DType, lanes: int) -> str:
    """By AVX-512's instruction on 512 bits."""
    whole = 512 // dtype.bits
    vector = value_type(dtype, whole)
    name = f"llvm.x86.avx512.mask.scalef.{'ps' if dtype is F32 else 'pd'}.512"

    def scaled(parts: Sequence[str]) -> str:
        operands = [*((vector, part) for part in parts), (vector, "poison")]
        return b.intrinsic(name, vector, [*operands, (f"i{whole}", "-1"), ("i32", "4")])

    return in_registers(b, scaled, arguments, dtype, dtype, lanes)


def look_up(b: Builder, op: Op, text: str, operand: DType, dtype: DType, lanes: int) -> str:
    """In one register, or two of f64, of which AVX-512's instructions take any lane."""
    whole = 512 // dtype.bits
    vector, order = value_type(dtype, whole), value_type(operand, whole)
    entries = [f"{value_type(dtype, 1)} {float_text(dtype.numpy.type(x))}" for x in LOOKUPS[op]]
    tables = [f"<{', '.join(entries[k : k + whole])}>" for k in range(0, 16, whole)]
    name = f"llvm.x86.avx512.{'permvar.sf' if dtype is F32 else 'vpermi2var.pd'}.512"

    def chosen(parts: Sequence[str]) -> str:
        first, *others = ((vector, table) for table in tables)
        return b.intrinsic(name, vector, [first, (order, parts[0]), *others])

    return in_registers(b, chosen, [text], operand, dtype, lanes)


def in_registers(
    b: Builder,
    instruction: Callable[[Sequence[str]], str],
    arguments: Sequence[str],
    operand: DType,
    result: DType,
    lanes: int,
) -> str:
    """`instruction` on 512 bits, of which one lane and a shorter vector are the beginning."""
    whole = 512 // operand.bits
    scalar, vector = value_type(operand, 1), value_type(operand, whole)
    if lanes == 1:
        parts = [
            b.value(f"insertelement {vector} poison, {scalar} {text}, i64 0") for text in arguments
        ]
        return b.value(f"extractelement {value_type(result, whole)} {instruction(parts)}, i64 0")
    size = gcd(lanes, whole)
    outer, inner = value_type(operand, lanes), value_type(operand, size)
    into, out = value_type(result, lanes), value_type(result, size)
    take = f"llvm.vector.extract.{suffix(operand, size)}.{suffix(operand, lanes)}"
    widen_ = f"llvm.vector.insert.{suffix(operand, whole)}.{suffix(operand, size)}"
    narrow_ = f"llvm.vector.extract.{suffix(result, size)}.{suffix(result, whole)}"
    join = f"llvm.vector.insert.{suffix(result, lanes)}.{suffix(result, size)}"
    joined = "poison"
    for start in range(0, lanes, size):
        at = ("i64", str(start))
        parts = [b.intrinsic(take, inner, [(outer, text), at]) for text in arguments]
        parts = [
            b.intrinsic(widen_, vector, [(vector, "poison"), (inner, text), ("i64", "0")])
            for text in parts
        ]
        found = (value_type(result, whole), instruction(parts))
        part = b.intrinsic(narrow_, out, [found, ("i64", "0")])
        joined = b.intrinsic(join, into, [(into, joined), (out, part), at])
    return joined


# --- integers ------------------------------------------------------------------------------------


def int_unary(b: Builder, op: Op, arguments: Sequence[str], dtype: DType, lanes: int) -> str:
    type_, x = value_type(dtype, lanes), arguments[0]
    match op:
        case Op.NEG:
            return b.value(f"sub {type_} zeroinitializer, {x}")
        case Op.NOT:
            return b.value(f"xor {type_} {x}, {splat('-1', value_type(dtype, 1), lanes)}")
        case Op.ABS if dtype.kind == "unsigned":
            return x
        case _:
            name = f"llvm.{'abs' if op is Op.ABS else 'ctlz'}.{suffix(dtype, lanes)}"
            return b.intrinsic(name, type_, [(type_, x), ("i1", "false")])


def int_extreme(b: Builder, op: Op, arguments: Sequence[str], dtype: DType, lanes: int) -> str:
    sign = "s" if dtype.kind == "signed" else "u"
    return b.math(f"{sign}{op.label}", dtype, lanes, *arguments)


def int_divide(b: Builder, op: Op, arguments: Sequence[str], dtype: DType, lanes: int) -> str:
    """x/0 = -1, x%0 = x, INT_MIN/-1 = INT_MIN, INT_MIN%-1 = 0."""
    x, y = arguments
    type_, scalar = value_type(dtype, lanes), value_type(dtype, 1)
    signed = dtype.kind == "signed"
    name = ("s" if signed else "u") + op.label
    minus_one = splat("-1", scalar, lanes)
    if not y.startswith("%") and y not in ("0", "-1", splat("0", scalar, lanes), minus_one):
        return b.value(f"{name} {type_} {x}, {y}")
    one = splat("1", scalar, lanes)
    is_zero = b.value(f"icmp eq {type_} {y}, zeroinitializer")
    unsafe = is_minus_one = is_zero
    if signed:
        is_minus_one = b.value(f"icmp eq {type_} {y}, {minus_one}")
        unsafe = b.value(f"or {lanes_type('i1', lanes)} {is_zero}, {is_minus_one}")
    divisor = b.select(unsafe, one, y, type_, lanes)
    value = b.value(f"{name} {type_} {x}, {divisor}")
    if op is Op.REM:  # x%1 = 0 is also x%-1
        return b.select(is_zero, x, value, type_, lanes)
    if signed:
        negated = b.value(f"sub {type_} zeroinitializer, {x}")
        value = b.select(is_minus_one, negated, value, type_, lanes)
    return b.select(is_zero, minus_one, value, type_, lanes)


def int_shift(b: Builder, op: Op, arguments: Sequence[str], dtype: DType, lanes: int) -> str:
    """Shifts by the width or more give 0, or the sign for SAR."""
    x, y = arguments
    type_, scalar = value_type(dtype, lanes), value_type(dtype, 1)
    last = splat(str(dtype.bits - 1), scalar, lanes)
    constant = y.removeprefix(f"splat ({scalar} ").removesuffix(")")
    if constant.isdigit() and int(constant) < dtype.bits:
        return b.value(f"{SHIFTS[op]} {type_} {x}, {y}")
    if op is Op.SAR:
        amount = b.math("umin", dtype, lanes, y, last)
        return b.value(f"ashr {type_} {x}, {amount}")
    inside = b.value(f"icmp ule {type_} {y}, {last}")
    shifted = b.value(f"{SHIFTS[op]} {type_} {x}, {y}")
    safe = b.value(f"freeze {type_} {shifted}")
    return b.select(inside, safe, "zeroinitializer" if lanes > 1 else "0", type_, lanes)


FLOAT_RULES: dict[Op, Rule] = {
    **dict.fromkeys(FLOAT_INSTRUCTIONS, written(FLOAT_INSTRUCTIONS)),
    **dict.fromkeys(FLOAT_MATH, called(FLOAT_MATH)),
    **dict.fromkeys(LIBM, lane_calls),
    Op.MAX: float_extreme,
    Op.MIN: float_extreme,
    Op.SCALE: scale,
    Op.MAXNUM: larger_number,
}
INT_RULES: dict[Op, Rule] = {
    **dict.fromkeys(INT_INSTRUCTIONS, written(INT_INSTRUCTIONS)),
    **dict.fromkeys(SHIFTS, int_shift),
    **dict.fromkeys((Op.NEG, Op.ABS, Op.NOT, Op.CLZ), int_unary),
    Op.POPCOUNT: called({Op.POPCOUNT: "ctpop"}),
    Op.MAX: int_extreme,
    Op.MIN: int_extreme,
    Op.DIV: int_divide,
    Op.REM: int_divide,
}
