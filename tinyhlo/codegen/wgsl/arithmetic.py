"""The elementwise primitives as WGSL: one table, op -> how to write it.

In: operand texts, each a name or a literal. Out: the text of the result. What WGSL leaves open
`codegen/legal.py` puts around it. Integers below 32 bits are i32 or u32, brought back into their
range after every op; half precision floats are their bits in a u32. Integers of 64 bits are two
words (`wide.py`); f64 there is none.

A compiler of WGSL may take it that there is no NaN: what asks for one looks at bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinyhlo.codegen.c.arithmetic import CALLS, SIGNS, Functions
from tinyhlo.codegen.legal import SMALL_FLOATS
from tinyhlo.codegen.wgsl import wide
from tinyhlo.ir.dtypes import BOOL, F32, I32, U32, DType
from tinyhlo.ir.ops import COMPARISONS, Op

COMMON = {
    Op.WHERE: "select({2}, {1}, {0})",
    Op.EQ: "{0} == {1}",
    Op.NE: "!({0} == {1})",  # of NaN, `!=` may be false
    Op.LT: "{0} < {1}",
    Op.LE: "{0} <= {1}",
}
FLOATS = {
    **COMMON,
    **SIGNS,
    **CALLS,
    Op.NEG: "-{0}",
    Op.ROUNDED: "{0}",
    Op.ABS: "abs({0})",
    Op.RINT: "round({0})",
    Op.FMA: "fma_f32({0}, {1}, {2})",
}
BITS = {Op.AND: "{0} & {1}", Op.OR: "{0} | {1}", Op.XOR: "{0} ^ {1}"}
# `unsigned` and `signed` are the bits of the first operand as numbers without and with a sign; a
# shift by the width or more gives some number
INTEGERS = {
    **COMMON,
    **SIGNS,
    **BITS,
    Op.REM: "{0} % {1}",
    Op.SHL: "{t}({unsigned} << (u32({1}) & 31u))",
    Op.SHR: "{t}({unsigned} >> (u32({1}) & 31u))",
    Op.SAR: "{t}({signed} >> (u32({1}) & 31u))",
    Op.ABS: "abs({0})",
    Op.MAX: "max({0}, {1})",
    Op.MIN: "min({0}, {1})",
    Op.CLZ: "countLeadingZeros({0})",
    Op.POPCOUNT: "countOneBits({0})",
}
BOOLEANS = {
    **COMMON,
    **BITS,
    Op.XOR: "{0} != {1}",
    Op.LT: "!{0} & {1}",
    Op.LE: "!{0} | {1}",
}
TEXTS = {"float": FLOATS, "signed": INTEGERS, "unsigned": INTEGERS, "bool": BOOLEANS}
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


def is_nan(text: str) -> str:
    return f"(bitcast<u32>({text}) & 0x7fffffffu) > 0x7f800000u"


def narrowed(text: str, dtype: DType) -> str:
    """An i32 or u32 brought into the range of a smaller type."""
    if not dtype.is_integer or dtype.bits >= 32:
        return text
    if dtype.kind == "signed":
        return f"extractBits({text}, 0u, {dtype.bits}u)"
    return f"({text}) & {(1 << dtype.bits) - 1:#x}u"


def is_native(op: Op, operand: DType, result: DType) -> bool:
    """Whether WGSL, or the library of wide integers, has what StableHLO asks for."""
    absolute = op is Op.ABS and operand.kind == "signed"
    return op is not Op.CAST and (is_wide(operand) or absolute)


def written(
    functions: Functions, op: Op, arguments: Sequence[str], operand: DType, result: DType
) -> str:
    """`op` on arguments of type `operand` (for WHERE: the type of the last two)."""
    x = arguments[0]
    if op is Op.CAST:
        return converted(x, operand, result)
    if op is Op.BITCAST:
        return same_bits(x, operand, result)
    if is_wide(operand):
        return wide.written(functions, op, arguments, operand)
    if operand is F32 and op in (Op.EQ, Op.NE) and x == arguments[1]:
        return is_nan(x) if op is Op.NE else f"!({is_nan(x)})"
    names = {"t": type_name(operand), "unsigned": f"u32({x})", "signed": f"i32({x})"}
    if operand.is_integer and operand.bits < 32:
        names["unsigned"] = f"({names['unsigned']} & {(1 << operand.bits) - 1:#x}u)"
        names["signed"] = f"extractBits({names['signed']}, 0u, {operand.bits}u)"
    text = TEXTS[operand.kind][op].format(*arguments, **names)
    return text if op in COMPARISONS or op is Op.WHERE else narrowed(text, operand)


def converted(text: str, source: DType, target: DType) -> str:
    """What makes or takes wide integers by functions of the library."""
    if is_wide(source):
        return from_wide(text, source, target)
    if is_wide(target):
        return f"{target.name}_within({text})" if source.is_float else wide.widened(text, source)
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
