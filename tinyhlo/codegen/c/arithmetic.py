"""The elementwise primitives as C: one table, op -> how to write it.

In: operand texts, each a name or a literal. Out: the text of the result. What C leaves open
`codegen/legal.py` puts around it. Half precision floats lie in u16.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinyhlo.codegen.legal import SMALL_FLOATS
from tinyhlo.ir.dtypes import BF16, BOOL, F16, F32, F64, DType
from tinyhlo.ir.ops import Op

COMMON = {
    Op.WHERE: "{0} ? {1} : {2}",
    Op.EQ: "{0} == {1}",
    Op.NE: "{0} != {1}",
    Op.LT: "{0} < {1}",
    Op.LE: "{0} <= {1}",
}
SIGNS = {Op.ADD: "{0} + {1}", Op.SUB: "{0} - {1}", Op.MUL: "{0} * {1}", Op.DIV: "{0} / {1}"}
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
CALLS = {
    op: f"{name}({', '.join(f'{{{k}}}' for k in range(op.arity))})" for op, name in CALLED.items()
}
FLOATS = {**COMMON, **SIGNS, **CALLS, Op.NEG: "-{0}", Op.ROUNDED: "{0}"}
# Where signed numbers overflow, or are shifted, C leaves open what happens: unsigned ones are `u`,
# those in which C computes `wide`; a shift by the width or more gives some number.
INTEGERS = {
    **COMMON,
    Op.ADD: "({t})(({wide}){0} + ({wide}){1})",
    Op.SUB: "({t})(({wide}){0} - ({wide}){1})",
    Op.MUL: "({t})(({wide}){0} * ({wide}){1})",
    Op.DIV: "({t})({0} / {1})",
    Op.REM: "({t})({0} % {1})",
    Op.AND: "({t})({0} & {1})",
    Op.OR: "({t})({0} | {1})",
    Op.XOR: "({t})({0} ^ {1})",
    Op.SHL: "({t})(({wide}){0} << ((i32){1} & {last}))",
    Op.SHR: "({t})((u{bits}){0} >> ((i32){1} & {last}))",
    Op.SAR: "({t})((i{bits}){0} >> ((i32){1} & {last}))",
    Op.MAX: "{0} > {1} ? {0} : {1}",
    Op.MIN: "{0} < {1} ? {0} : {1}",
    Op.CLZ: "count_zeros({0})",
    Op.POPCOUNT: "count_ones({0})",
}
BOOLEANS = {**COMMON, Op.AND: "{0} & {1}", Op.OR: "{0} | {1}", Op.XOR: "{0} ^ {1}"}
TEXTS = {"float": FLOATS, "signed": INTEGERS, "unsigned": INTEGERS, "bool": BOOLEANS}

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


def is_native(op: Op, operand: DType, result: DType) -> bool:
    """Whether the prelude has what StableHLO asks for."""
    return op is Op.CAST and by_function(operand, result)


def by_function(source: DType, target: DType) -> bool:
    """Whether a function of the prelude converts one to the other."""
    return F16 in (source, target) or (source, target) == (F32, BF16)


def written(_: Functions, op: Op, arguments: Sequence[str], operand: DType, result: DType) -> str:
    """`op` on arguments of type `operand` (for WHERE: the type of the last two)."""
    if op is Op.CAST:
        return converted(arguments[0], operand, result)
    if op is Op.BITCAST:
        return same_bits(arguments[0], operand, result)
    bits = operand.bits
    names = {"t": type_name(operand), "wide": f"u{max(bits, 32)}", "bits": bits, "last": bits - 1}
    return TEXTS[operand.kind][op].format(*arguments, **names)


def converted(text: str, source: DType, target: DType) -> str:
    """Half precision by functions of the prelude."""
    if by_function(source, target):
        return f"{target.name}_of_{source.name}({text})"
    return f"({type_name(target)}){text}"


def same_bits(text: str, source: DType, target: DType) -> str:
    """The same bits as another type of the same width."""
    t = type_name(target)
    if source in (F32, F64) or target in (F32, F64):
        return f"as_{t}({text})"
    return f"({t}){text}"
