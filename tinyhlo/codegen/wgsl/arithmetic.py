"""The elementwise primitives as WGSL: one table, op -> how to write it.

In: operand texts, each a name or a literal. Out: the text of the result; what takes more than one
expression is a function, added to `functions` once. Integers below 32 bits are i32 or u32, brought
back into their range after every op; half precision floats are their bits in a u32, computed in f32
and rounded after every op. Integers of 64 bits are two words (`wide.py`); f64 there is none.

A compiler of WGSL may take it that there is no NaN: what asks for one looks at bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tinyhlo.codegen.c.arithmetic import (
    BOOL_INFIX,
    CALLED,
    FLOAT_INFIX,
    INT_INFIX,
    SMALL_FLOATS,
    Functions,
)
from tinyhlo.codegen.wgsl import wide
from tinyhlo.ir.dtypes import BOOL, F32, I32, U32, DType
from tinyhlo.ir.ops import COMPARISONS, Op

COMPARE = {Op.EQ: "==", Op.LT: "<", Op.LE: "<="}
BOOL_COMPARE = {Op.EQ: "{0} == {1}", Op.NE: "{0} != {1}", Op.LT: "!{0} & {1}", Op.LE: "!{0} | {1}"}
SUFFIX = {I32: "i", U32: "u", F32: "f"}


def value_type(dtype: DType) -> DType:
    """What values of this type are in WGSL."""
    if dtype in SMALL_FLOATS:
        return U32
    if dtype.is_integer and dtype.bits < 32:
        return I32 if dtype.kind == "signed" else U32
    return dtype


def is_wide(dtype: DType) -> bool:
    return dtype.is_integer and dtype.bits == 64


def type_name(dtype: DType) -> str:
    own = value_type(dtype)
    if is_wide(own):
        return "vec2<u32>"
    if own is BOOL:
        return "bool"
    return f"{'u' if own.kind == 'unsigned' else 'f' if own.is_float else 'i'}{own.bits}"


def literal_text(bits: int, dtype: DType) -> str:
    """A constant, by its bits."""
    if dtype is BOOL:
        return "true" if bits else "false"
    if is_wide(dtype):
        return wide.literal_text(bits)
    own = value_type(dtype)
    suffix = SUFFIX[own]
    if own.is_float:
        value = np.frombuffer(bits.to_bytes(own.itemsize, "little"), own.numpy)[0]
        if np.isfinite(value) and (bits == 0 or abs(value) >= np.finfo(own.numpy).tiny):
            return f"{value!s}{suffix}" if value >= 0 else f"({value!s}{suffix})"
        return f"as_f32({bits:#x}u)"
    if own.kind == "signed" and bits >> (dtype.bits - 1):
        value = bits - (1 << dtype.bits)
        least = value == -(1 << (own.bits - 1))  # whose magnitude is no number of the type
        return f"({value + 1}{suffix} - 1{suffix})" if least else f"({value}{suffix})"
    return f"{bits}{suffix}"


def bits_of(text: str) -> str:
    return f"bitcast<u32>({text})"


def is_nan(text: str) -> str:
    return f"({bits_of(text)} & 0x7fffffffu) > 0x7f800000u"


def narrowed(text: str, dtype: DType) -> str:
    """An i32 or u32 brought into the range of a smaller type."""
    if not dtype.is_integer or dtype.bits >= 32:
        return text
    if dtype.kind == "signed":
        return f"extractBits({text}, 0u, {dtype.bits}u)"
    return f"({text}) & {(1 << dtype.bits) - 1:#x}u"


def written(
    functions: Functions, op: Op, arguments: Sequence[str], operand: DType, result: DType
) -> str:
    """`op` on arguments of type `operand` (for WHERE: the type of the last two)."""
    if op is Op.CAST:
        return converted(functions, arguments[0], operand, result)
    if op is Op.BITCAST:
        return same_bits(arguments[0], operand, result)
    if op is Op.WHERE:
        return "select({2}, {1}, {0})".format(*arguments)
    if operand in SMALL_FLOATS:
        return in_single(functions, op, arguments, operand)
    if operand is BOOL:
        if op in COMPARISONS:
            return BOOL_COMPARE[op].format(*arguments)
        if op is Op.NOT:
            return f"!{arguments[0]}"
        infix = BOOL_INFIX[op]
        return f" {'!=' if infix == '^' else infix} ".join(arguments)
    if is_wide(operand):
        return wide.written(functions, op, arguments, operand)
    if op in COMPARISONS:
        return compared(op, arguments, operand)
    rules = FLOAT_RULES if operand.is_float else INT_RULES
    return rules[op](functions, op, arguments, operand)


def compared(op: Op, arguments: Sequence[str], dtype: DType) -> str:
    """`!=` may be false of NaN."""
    if dtype.is_float and arguments[0] == arguments[1] and op in (Op.EQ, Op.NE):
        nan = is_nan(arguments[0])
        return nan if op is Op.NE else f"!({nan})"
    if op is Op.NE:
        return "!({} == {})".format(*arguments)
    return "{1} {0} {2}".format(COMPARE[op], *arguments)


def in_single(functions: Functions, op: Op, arguments: Sequence[str], dtype: DType) -> str:
    """Half precision: exactly to f32, compute, round back."""
    if op is Op.NEG:
        return f"{arguments[0]} ^ 0x8000u"
    if op is Op.ABS:
        return f"{arguments[0]} & 0x7fffu"
    wide = [f"f32_of_{dtype.name}({text})" for text in arguments]
    if op in COMPARISONS:
        return compared(op, wide, F32)
    single = written(functions, op, wide, F32, F32)
    return f"{dtype.name}_of_f32({single})"


Rule = Callable[[Functions, Op, Sequence[str], DType], str]


def called(_: Functions, op: Op, arguments: Sequence[str], dtype: DType) -> str:
    name = {"fabs": "abs", "rint": "round"}.get(CALLED[op], CALLED[op])
    return f"{name}({', '.join(arguments)})"


def multiply_add(_: Functions, op: Op, arguments: Sequence[str], dtype: DType) -> str:
    return f"fma_f32({', '.join(arguments)})"


def float_extreme(functions: Functions, op: Op, arguments: Sequence[str], dtype: DType) -> str:
    """NaN if either is NaN, and max(-0, +0) = +0."""
    order, joined = (">", "&") if op is Op.MAX else ("<", "|")
    name = f"{op.label}_f32"
    same = f"as_f32({bits_of('x')} {joined} {bits_of('y')})"
    functions[name] = (
        f"fn {name}(x: f32, y: f32) -> f32 {{\n"
        f"  let value = select(select(y, x, x {order} y), {same}, x == y);\n"
        f"  return select(select(value, y, {is_nan('y')}), x, {is_nan('x')});\n}}"
    )
    return f"{name}({', '.join(arguments)})"


def wrapping(_: Functions, op: Op, arguments: Sequence[str], dtype: DType) -> str:
    return narrowed(f" {INT_INFIX[op]} ".join(arguments), dtype)


def int_unary(functions: Functions, op: Op, arguments: Sequence[str], dtype: DType) -> str:
    x, zero = arguments[0], literal_text(0, dtype)
    match op:
        case Op.NEG:
            return narrowed(f"{zero} - {x}", dtype)
        case Op.NOT:
            return narrowed(f"~{x}", dtype)
        case Op.ABS:
            return x if dtype.kind == "unsigned" else narrowed(f"abs({x})", dtype)
        case _:
            return counted(op, x, dtype)


def counted(op: Op, x: str, dtype: DType) -> str:
    """Ones, or zeros in front."""
    t = type_name(dtype)
    bits = f"u32({x})"
    if dtype.kind == "signed" and dtype.bits < 32:
        bits = f"({bits} & {(1 << dtype.bits) - 1:#x}u)"
    if op is Op.POPCOUNT:
        return f"{t}(countOneBits({bits}))"
    return f"{t}(countLeadingZeros({bits}) - {32 - dtype.bits}u)"


def int_extreme(_: Functions, op: Op, arguments: Sequence[str], dtype: DType) -> str:
    return f"{op.label}({', '.join(arguments)})"


def int_divide(functions: Functions, op: Op, arguments: Sequence[str], dtype: DType) -> str:
    """x/0 = -1, x%0 = x, INT_MIN/-1 = INT_MIN, INT_MIN%-1 = 0."""
    t, name = type_name(dtype), f"{op.label}_{dtype.name}"
    zero, ones = (literal_text(b, dtype) for b in (0, (1 << dtype.bits) - 1))
    by_zero, infix = (ones, "/") if op is Op.DIV else ("x", "%")
    lines = [f"  if (y == {zero}) {{ return {by_zero}; }}"]
    if dtype.kind == "signed":
        value = narrowed(f"{zero} - x", dtype) if op is Op.DIV else zero
        lines.append(f"  if (y == {ones}) {{ return {value}; }}")
    lines.append(f"  return x {infix} y;")
    head = f"fn {name}(x: {t}, y: {t}) -> {t} {{"
    functions[name] = "\n".join([head, *lines, "}"])
    return f"{name}({', '.join(arguments)})"


def int_shift(_: Functions, op: Op, arguments: Sequence[str], dtype: DType) -> str:
    """Shifts by the width or more give 0, or the sign for SAR."""
    x, y = arguments
    t = type_name(dtype)
    inside = f"u32({y}) < {dtype.bits}u"
    by = f"(u32({y}) & 31u)"
    if op is Op.SAR:
        whole = f"i32({x})"
        if dtype.kind == "unsigned" and dtype.bits < 32:
            whole = f"extractBits({whole}, 0u, {dtype.bits}u)"
        by = f"select({dtype.bits - 1}u, {by}, {inside})"
        return narrowed(f"{t}({whole} >> {by})", dtype)
    bits = f"u32({x})"
    if op is Op.SHR and dtype.bits < 32 and dtype.kind == "signed":
        bits = f"({bits} & {(1 << dtype.bits) - 1:#x}u)"
    shifted = narrowed(f"{t}({bits} {'<<' if op is Op.SHL else '>>'} {by})", dtype)
    return f"select({literal_text(0, dtype)}, {shifted}, {inside})"


def larger_number(_: Functions, op: Op, arguments: Sequence[str], dtype: DType) -> str:
    x, y = arguments
    return f"select({x}, {y}, {y} > {x})"


FLOAT_RULES: dict[Op, Rule] = {
    **dict.fromkeys(FLOAT_INFIX, lambda _, op, given, __: f" {FLOAT_INFIX[op]} ".join(given)),
    **dict.fromkeys(CALLED, called),
    Op.FMA: multiply_add,
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
        zero = literal_text(0, source)
        return f"any({text} != {zero})" if is_wide(source) else f"!({text} == {zero})"
    if is_wide(source):
        return from_wide(text, source, target)
    if is_wide(target) and not source.is_float:
        return wide.widened(text, source)
    if target in SMALL_FLOATS:
        if source.bits >= 32 and source.is_integer:
            text = f"{odd_of_integer(functions, source)}({text})"
        elif source is not F32:
            text = f"f32({text})"
        return f"{target.name}_of_f32({text})"
    if source.is_float and target.is_integer:
        return f"{truncated(functions, target)}({text})"
    return narrowed(f"{type_name(target)}({text})", target)


def from_wide(text: str, source: DType, target: DType) -> str:
    """An integer of 64 bits as another type."""
    if is_wide(target):
        return text
    if target.is_integer:
        return narrowed(f"{type_name(target)}({text}.x)", target)
    if target in SMALL_FLOATS:
        return f"{target.name}_of_f32(odd_of_{source.name}({text}))"
    return f"{type_name(target)}_of_{source.name}({text})"


def truncated(functions: Functions, target: DType) -> str:
    """The function from f32 to integers: truncates, saturates, takes NaN to 0."""
    low, high = (int(bound) for bound in target.bounds)
    last = np.float32(high)
    last = last if int(last) <= high else np.nextafter(last, np.float32(0))

    def number(value: float) -> str:
        return literal_text(int.from_bytes(np.float32(value).tobytes(), "little"), F32)

    def limit(value: int) -> str:
        return literal_text(value & ((1 << target.bits) - 1), target)

    t, name = type_name(target), f"{target.name}_of_f32"
    functions[name] = (
        f"fn {name}(x: f32) -> {t} {{\n"
        f"  if ({is_nan('x')}) {{ return {limit(0)}; }}\n"
        f"  if (x <= {number(low)}) {{ return {limit(low)}; }}\n"
        f"  if (x > {number(float(last))}) {{ return {limit(high)}; }}\n"
        f"  return {within(target)}(x);\n}}"
    )
    return name


def within(target: DType) -> str:
    """What converts a float that is in the range of an integer."""
    if not is_wide(target):
        return type_name(target)
    return f"{target.name}_within"


def odd_of_integer(functions: Functions, source: DType) -> str:
    """An integer as f32 rounded to odd, so that rounding once more to 16 bits is right."""
    t, name, one = type_name(source), f"odd_of_{source.name}", SUFFIX[source]
    low = (1 << (source.bits - 24)) - 1
    functions[name] = (
        f"fn {name}(x: {t}) -> f32 {{\n"
        f"  let low = {low:#x}{one};\n"
        f"  let size = {'abs(x)' if source.kind == 'signed' else 'x'};\n"
        f"  if (size < {1 << 24}{one}) {{ return f32(x); }}\n"
        f"  return f32((x & ~low) | select(0{one}, low + 1{one}, !((x & low) == 0{one})));\n}}"
    )
    return name


def same_bits(text: str, source: DType, target: DType) -> str:
    """The same bits as another type of the same width."""
    if type_name(source) == type_name(target) and source.bits >= 32:
        return text
    if source.bits == 32:
        return f"bitcast<{type_name(target)}>({text})"
    return narrowed(f"{type_name(target)}({text})", target)
