"""The elementwise primitives as WGSL: one table, op -> how to write it.

In: operand texts, each a name or a literal. Out: the text of the result. What WGSL leaves open
`codegen/legal.py` puts around it. Integers below 32 bits are i32 or u32, brought back into their
range after every op; half precision floats are their bits in a u32. Integers of 64 bits are two
words (`wide.py`); f64 there is none.

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
    SHIFTS,
    Functions,
)
from tinyhlo.codegen.legal import SMALL_FLOATS
from tinyhlo.codegen.wgsl import wide
from tinyhlo.ir.dtypes import BOOL, F16, F32, I32, U32, DType
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


def is_native(op: Op, operand: DType, result: DType) -> bool:
    """Whether WGSL, or the library of wide integers, has what StableHLO asks for."""
    return op is not Op.CAST and (is_wide(operand) or op is Op.ABS)


def written(
    functions: Functions, op: Op, arguments: Sequence[str], operand: DType, result: DType
) -> str:
    """`op` on arguments of type `operand` (for WHERE: the type of the last two)."""
    if op is Op.CAST:
        return converted(arguments[0], operand, result)
    if op is Op.BITCAST:
        return same_bits(arguments[0], operand, result)
    if op is Op.WHERE:
        return "select({2}, {1}, {0})".format(*arguments)
    if operand is BOOL:
        if op in COMPARISONS:
            return BOOL_COMPARE[op].format(*arguments)
        infix = BOOL_INFIX[op]
        return f" {'!=' if infix == '^' else infix} ".join(arguments)
    if is_wide(operand):
        return wide.written(functions, op, arguments, operand)
    if op in COMPARISONS:
        return compared(op, arguments, operand)
    rules = FLOAT_RULES if operand.is_float else INT_RULES
    return rules[op](op, arguments, operand)


def compared(op: Op, arguments: Sequence[str], dtype: DType) -> str:
    """`!=` may be false of NaN."""
    if dtype.is_float and arguments[0] == arguments[1] and op in (Op.EQ, Op.NE):
        nan = is_nan(arguments[0])
        return nan if op is Op.NE else f"!({nan})"
    if op is Op.NE:
        return "!({} == {})".format(*arguments)
    return "{1} {0} {2}".format(COMPARE[op], *arguments)


Rule = Callable[[Op, Sequence[str], DType], str]


def called(op: Op, arguments: Sequence[str], dtype: DType) -> str:
    name = {"fabs": "abs", "rint": "round", "fma": "fma_f32"}.get(CALLED[op], CALLED[op])
    return f"{name}({', '.join(arguments)})"


def wrapping(op: Op, arguments: Sequence[str], dtype: DType) -> str:
    return narrowed(f" {INT_INFIX[op]} ".join(arguments), dtype)


def absolute(op: Op, arguments: Sequence[str], dtype: DType) -> str:
    return arguments[0] if dtype.kind == "unsigned" else narrowed(f"abs({arguments[0]})", dtype)


def counted(op: Op, arguments: Sequence[str], dtype: DType) -> str:
    return f"count{'OneBits' if op is Op.POPCOUNT else 'LeadingZeros'}({arguments[0]})"


def int_extreme(op: Op, arguments: Sequence[str], dtype: DType) -> str:
    return f"{op.label}({', '.join(arguments)})"


def int_divide(op: Op, arguments: Sequence[str], dtype: DType) -> str:
    return f"{arguments[0]} {'/' if op is Op.DIV else '%'} {arguments[1]}"


def int_shift(op: Op, arguments: Sequence[str], dtype: DType) -> str:
    """By the width or more it gives some number."""
    x, y = arguments
    signed, narrow = dtype.kind == "signed", dtype.bits < 32
    if op is Op.SAR:
        bits = f"i32({x})"
        if not signed and narrow:
            bits = f"extractBits({bits}, 0u, {dtype.bits}u)"
    else:
        bits = f"u32({x})"
        if signed and narrow:
            bits = f"({bits} & {(1 << dtype.bits) - 1:#x}u)"
    return narrowed(f"{type_name(dtype)}({bits} {SHIFTS[op]} (u32({y}) & 31u))", dtype)


FLOAT_RULES: dict[Op, Rule] = {
    **dict.fromkeys(FLOAT_INFIX, lambda op, given, _: f" {FLOAT_INFIX[op]} ".join(given)),
    **dict.fromkeys(CALLED, called),
    Op.NEG: lambda _, given, __: f"-{given[0]}",
}
INT_RULES: dict[Op, Rule] = {
    **dict.fromkeys(INT_INFIX, wrapping),
    **dict.fromkeys(SHIFTS, int_shift),
    **dict.fromkeys((Op.CLZ, Op.POPCOUNT), counted),
    **dict.fromkeys((Op.MAX, Op.MIN), int_extreme),
    **dict.fromkeys((Op.DIV, Op.REM), int_divide),
    Op.ABS: absolute,
}


def converted(text: str, source: DType, target: DType) -> str:
    """Half precision and what makes or takes wide integers by functions of the library."""
    if is_wide(source):
        return from_wide(text, source, target)
    if is_wide(target):
        return f"{target.name}_within({text})" if source.is_float else wide.widened(text, source)
    if F16 in (source, target):
        return f"{target.name}_of_{source.name}({text})"
    return narrowed(f"{type_name(target)}({text})", target)


def from_wide(text: str, source: DType, target: DType) -> str:
    """An integer of 64 bits as another type."""
    if is_wide(target):
        return text
    if target.is_integer:
        return narrowed(f"{type_name(target)}({text}.x)", target)
    return f"{type_name(target)}_of_{source.name}({text})"


def same_bits(text: str, source: DType, target: DType) -> str:
    """The same bits as another type of the same width."""
    if type_name(source) == type_name(target) and source.bits >= 32:
        return text
    if source.bits == 32:
        return f"bitcast<{type_name(target)}>({text})"
    return narrowed(f"{type_name(target)}({text})", target)
