"""The elementwise primitives as C: one table, op -> how to write it.

In: operand texts, each a name or a literal. Out: the text of the result. What takes more than one
expression is a function, added to `functions` once. Half precision floats lie in u16, compute in
f32 and round after every op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tinyhlo.ir.dtypes import BF16, BOOL, F16, F32, F64, DType
from tinyhlo.ir.ops import COMPARISONS, Op

SMALL_FLOATS = (BF16, F16)
FLOAT_INFIX = {Op.ADD: "+", Op.SUB: "-", Op.MUL: "*", Op.DIV: "/"}
INT_INFIX = {Op.ADD: "+", Op.SUB: "-", Op.MUL: "*", Op.AND: "&", Op.OR: "|", Op.XOR: "^"}
BOOL_INFIX = {
    Op.ADD: "|", Op.MUL: "&", Op.MAX: "|", Op.MIN: "&", Op.SUB: "^",
    Op.AND: "&", Op.OR: "|", Op.XOR: "^",
}  # fmt: skip
COMPARE = {Op.EQ: "==", Op.NE: "!=", Op.LT: "<", Op.LE: "<="}
CALLED = {
    Op.ABS: "fabs",
    **{
        op: op.label
        for op in (
            *(Op.FLOOR, Op.CEIL, Op.TRUNC, Op.RINT, Op.SQRT, Op.FMA, Op.EXP, Op.EXPM1, Op.LOG),
            *(Op.LOG1P, Op.SIN, Op.COS, Op.TAN, Op.TANH, Op.ERF, Op.ERFC, Op.POW, Op.ATAN2),
        )
    },
    Op.REM: "fmod",
}

Functions = dict[str, str]


def type_name(dtype: DType) -> str:
    """Of a value; booleans lie in memory as u8."""
    if dtype is BOOL:
        return "bool"
    if dtype in SMALL_FLOATS:
        return "u16"
    return f"{'u' if dtype.kind == 'unsigned' else 'f' if dtype.is_float else 'i'}{dtype.bits}"


def stored_name(dtype: DType) -> str:
    """The type of an element of memory."""
    return "u8" if dtype is BOOL else type_name(dtype)


def literal_text(bits: int, dtype: DType) -> str:
    """A constant, by its bits."""
    if dtype is BOOL:
        return "true" if bits else "false"
    if dtype in (F32, F64):
        raw = bits.to_bytes(dtype.itemsize, "little")
        value = float(np.frombuffer(raw, dtype.numpy)[0])
        if np.isfinite(value):
            text = value.hex() + ("f" if dtype is F32 else "")
            return f"({text})" if text.startswith("-") else text
        return f"as_f{dtype.bits}((u{dtype.bits}){bits:#x}{'ul' if dtype is F64 else 'u'})"
    if dtype.kind == "signed" and bits >> (dtype.bits - 1):
        negative = (1 << dtype.bits) - bits
        return f"({type_name(dtype)})(-{negative - 1}{'l' if dtype.bits == 64 else ''} - 1)"
    return f"({type_name(dtype)}){bits}{'ul' if dtype.bits == 64 else 'u'}"


def written(
    functions: Functions, op: Op, arguments: Sequence[str], operand: DType, result: DType
) -> str:
    """`op` on arguments of type `operand` (for WHERE: the type of the last two)."""
    if op is Op.CAST:
        return converted(functions, arguments[0], operand, result)
    if op is Op.BITCAST:
        return same_bits(arguments[0], operand, result)
    if op is Op.WHERE:
        return "{} ? {} : {}".format(*arguments)
    if operand in SMALL_FLOATS:
        return in_single(functions, op, arguments, operand)
    if op in COMPARISONS:
        return "{1} {0} {2}".format(COMPARE[op], *arguments)
    if operand is BOOL:
        if op is Op.NOT:
            return f"!{arguments[0]}"
        return "{1} {0} {2}".format(BOOL_INFIX[op], *arguments)
    rules = FLOAT_RULES if operand.is_float else INT_RULES
    return rules[op](functions, op, arguments, operand)


def in_single(functions: Functions, op: Op, arguments: Sequence[str], dtype: DType) -> str:
    """Half precision: exactly to f32, compute, round back."""
    if op is Op.NEG:
        return f"(u16)({arguments[0]} ^ 0x8000)"
    if op is Op.ABS:
        return f"(u16)({arguments[0]} & 0x7FFF)"
    wide = [f"f32_of_{dtype.name}({text})" for text in arguments]
    if op not in COMPARISONS:
        return f"{dtype.name}_of_f32({written(functions, op, wide, F32, F32)})"
    return written(functions, op, wide, F32, BOOL)


Rule = Callable[[Functions, Op, Sequence[str], DType], str]


def called(_: Functions, op: Op, arguments: Sequence[str], dtype: DType) -> str:
    return f"{CALLED[op]}({', '.join(arguments)})"


def float_extreme(functions: Functions, op: Op, arguments: Sequence[str], dtype: DType) -> str:
    """NaN if either is NaN, and max(-0, +0) = +0."""
    t, bits = type_name(dtype), f"u{dtype.bits}"
    order, joined = (">", "&") if op is Op.MAX else ("<", "|")
    name = f"{op.label}_{t}"
    functions[name] = (
        f"FUNCTION {t} {name}({t} x, {t} y) {{\n"
        f"  return x {order} y ? x : y {order} x ? y\n"
        f"       : x == y ? as_{t}(as_{bits}(x) {joined} as_{bits}(y)) : x + y;\n}}"
    )
    return f"{name}({', '.join(arguments)})"


def wrapping(_: Functions, op: Op, arguments: Sequence[str], dtype: DType) -> str:
    """C leaves open what happens where signed numbers overflow: computed as unsigned ones."""
    wide, t = f"u{max(dtype.bits, 32)}", type_name(dtype)
    if t == wide:
        return f" {INT_INFIX[op]} ".join(arguments)
    first, second = (f"({wide}){text}" for text in arguments)
    return f"({t})({first} {INT_INFIX[op]} {second})"


def int_unary(_: Functions, op: Op, arguments: Sequence[str], dtype: DType) -> str:
    x, t, wide = arguments[0], type_name(dtype), f"u{max(dtype.bits, 32)}"
    match op:
        case Op.NEG:
            return f"({t})(0 - ({wide}){x})"
        case Op.NOT:
            return f"({t})~{x}"
        case Op.ABS:
            return x if dtype.kind == "unsigned" else f"{x} < 0 ? ({t})(0 - ({wide}){x}) : {x}"
        case Op.POPCOUNT:
            return f"({t})count_ones(({wide})(u{dtype.bits}){x})"
        case _:
            spare = max(dtype.bits, 32) - dtype.bits
            return f"({t})(count_zeros(({wide})(u{dtype.bits}){x}) - {spare})"


def int_extreme(_: Functions, op: Op, arguments: Sequence[str], dtype: DType) -> str:
    x, y = arguments
    return f"{x} {'>' if op is Op.MAX else '<'} {y} ? {x} : {y}"


def int_divide(functions: Functions, op: Op, arguments: Sequence[str], dtype: DType) -> str:
    """x/0 = -1, x%0 = x, INT_MIN/-1 = INT_MIN, INT_MIN%-1 = 0."""
    t, wide = type_name(dtype), f"u{max(dtype.bits, 32)}"
    name = f"{op.label}_{t}"
    signed = dtype.kind == "signed"
    if op is Op.DIV:
        by_one = f" : y == -1 ? ({t})(0 - ({wide})x)" if signed else ""
        value = f"y == 0 ? ({t})-1{by_one} : ({t})(x / y)"
    else:
        by_one = f" : y == -1 ? ({t})0" if signed else ""
        value = f"y == 0 ? x{by_one} : ({t})(x % y)"
    functions[name] = f"FUNCTION {t} {name}({t} x, {t} y) {{ return {value}; }}"
    return f"{name}({', '.join(arguments)})"


def int_shift(_: Functions, op: Op, arguments: Sequence[str], dtype: DType) -> str:
    """Shifts by the width or more give 0, or the sign for SAR."""
    x, y = arguments
    t, unsigned, wide = type_name(dtype), f"u{dtype.bits}", f"u{max(dtype.bits, 32)}"
    inside = f"({unsigned}){y} < {dtype.bits}"
    if op is Op.SAR:
        signed = f"i{dtype.bits}"
        return f"({t})(({signed}){x} >> ({inside} ? (i32){y} : {dtype.bits - 1}))"
    shifted = f"{'<<' if op is Op.SHL else '>>'} (i32){y}"
    return f"{inside} ? ({t})(({wide})({unsigned}){x} {shifted}) : ({t})0"


def larger_number(_: Functions, op: Op, arguments: Sequence[str], dtype: DType) -> str:
    x, y = arguments
    return f"{y} > {x} ? {y} : {x}"


FLOAT_RULES: dict[Op, Rule] = {
    **dict.fromkeys(FLOAT_INFIX, lambda _, op, given, __: f" {FLOAT_INFIX[op]} ".join(given)),
    **dict.fromkeys(CALLED, called),
    Op.NEG: lambda _, __, given, ___: f"-{given[0]}",
    Op.MAX: float_extreme,
    Op.MIN: float_extreme,
    Op.MAXNUM: larger_number,
}
INT_RULES: dict[Op, Rule] = {
    **dict.fromkeys(INT_INFIX, wrapping),
    **dict.fromkeys((Op.SHL, Op.SHR, Op.SAR), int_shift),
    **dict.fromkeys((Op.NEG, Op.ABS, Op.NOT, Op.CLZ, Op.POPCOUNT), int_unary),
    Op.MAX: int_extreme,
    Op.MIN: int_extreme,
    Op.DIV: int_divide,
    Op.REM: int_divide,
}


# --- conversions ---------------------------------------------------------------------------------


def converted(functions: Functions, text: str, source: DType, target: DType) -> str:
    """`text` of type `source` as a value of type `target`, with StableHLO's meaning."""
    if source is target:
        return text
    if source in SMALL_FLOATS:
        return converted(functions, f"f32_of_{source.name}({text})", F32, target)
    if target is BOOL:
        return f"{text} != 0"
    if target in SMALL_FLOATS:
        if source is F64:
            text = f"{odd_single(functions)}({text})"
        elif source.is_integer and source.bits >= 32:
            text = f"{odd_of_integer(functions, source)}({text})"
        elif source is not F32:
            text = f"(f32){text}"
        return f"{target.name}_of_f32({text})"
    if source.is_float and target.is_integer:
        return f"{truncated(functions, source, target)}({text})"
    return f"({type_name(target)}){text}"


def truncated(functions: Functions, source: DType, target: DType) -> str:
    """The function from floats to integers: truncates, saturates, takes NaN to 0."""
    low, high = (int(bound) for bound in target.bounds)
    last = source.numpy.type(high)
    last = last if int(last) <= high else np.nextafter(last, source.numpy.type(0))

    def number(value: object) -> str:
        raw = source.numpy.type(value).tobytes()
        return literal_text(int.from_bytes(raw, "little"), source)

    def limit(value: int) -> str:
        return literal_text(value & ((1 << target.bits) - 1), target)

    t, name = type_name(target), f"{type_name(target)}_of_{type_name(source)}"
    functions[name] = (
        f"FUNCTION {t} {name}({type_name(source)} x) {{\n"
        f"  return x != x ? ({t})0 : x <= {number(low)} ? {limit(low)}\n"
        f"       : x > {number(last)} ? {limit(high)} : ({t})x;\n}}"
    )
    return name


def odd_single(functions: Functions) -> str:
    """f64 as f32 rounded to odd, so that rounding once more to 16 bits is right (Boldo and
    Melquiond, Emulation of FMA and correctly rounded sums)."""
    functions["odd_single"] = """FUNCTION f32 odd_single(f64 x) {
  f32 near = (f32)x;
  u32 bits = as_u32(near);
  if (x == x && (f64)near != x) bits = (bits - (fabs((f64)near) > fabs(x))) | 1;
  return as_f32(bits);
}"""
    return "odd_single"


def odd_of_integer(functions: Functions, source: DType) -> str:
    """An integer as f32 rounded to odd."""
    t, name = type_name(source), f"odd_of_{source.name}"
    magnitude, sign = ("x < 0 ? 0 - (u64)x : (u64)x", "x < 0 ? -y : y")
    if source.kind == "unsigned":
        magnitude, sign = "x", "y"
    functions[name] = f"""FUNCTION f32 {name}({t} x) {{
  const u64 size = {magnitude};
  const i32 spare = 40 - (i32)count_zeros(size);
  if (spare <= 0) return (f32)x;
  const u64 odd = size >> spare | ((size & (((u64)1 << spare) - 1)) != 0);
  const f32 y = (f32)(odd << spare);
  return {sign};
}}"""
    return name


def same_bits(text: str, source: DType, target: DType) -> str:
    """The same bits as another type of the same width."""
    t = type_name(target)
    if source in (F32, F64) or target in (F32, F64):
        return text if source is target else f"as_{t}({text})"
    return f"({t}){text}"
