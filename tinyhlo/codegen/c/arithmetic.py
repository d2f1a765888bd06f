"""The elementwise primitives as C: one table, op -> how to write it.

In: operand texts, each a name or a literal. Out: the text of the result. What C leaves open
`codegen/legal.py` puts around it. Half precision floats lie in u16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tinyhlo.codegen.legal import SMALL_FLOATS
from tinyhlo.ir.dtypes import BOOL, F16, F32, F64, DType
from tinyhlo.ir.ops import COMPARISONS, Op

FLOAT_INFIX = {Op.ADD: "+", Op.SUB: "-", Op.MUL: "*", Op.DIV: "/"}
INT_INFIX = {Op.ADD: "+", Op.SUB: "-", Op.MUL: "*", Op.AND: "&", Op.OR: "|", Op.XOR: "^"}
BOOL_INFIX = {Op.AND: "&", Op.OR: "|", Op.XOR: "^"}
SHIFTS = {Op.SHL: "<<", Op.SHR: ">>", Op.SAR: ">>"}
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


def is_native(op: Op, operand: DType, result: DType) -> bool:
    """Whether C has what StableHLO asks for, where LLVM has not."""
    return False


def written(_: Functions, op: Op, arguments: Sequence[str], operand: DType, result: DType) -> str:
    """`op` on arguments of type `operand` (for WHERE: the type of the last two)."""
    if op is Op.CAST:
        return converted(arguments[0], operand, result)
    if op is Op.BITCAST:
        return same_bits(arguments[0], operand, result)
    if op is Op.WHERE:
        return "{} ? {} : {}".format(*arguments)
    if op in COMPARISONS:
        return "{1} {0} {2}".format(COMPARE[op], *arguments)
    if operand is BOOL:
        return "{1} {0} {2}".format(BOOL_INFIX[op], *arguments)
    rules = FLOAT_RULES if operand.is_float else INT_RULES
    return rules[op](op, arguments, operand)


Rule = Callable[[Op, Sequence[str], DType], str]


def called(op: Op, arguments: Sequence[str], dtype: DType) -> str:
    return f"{CALLED[op]}({', '.join(arguments)})"


def wrapping(op: Op, arguments: Sequence[str], dtype: DType) -> str:
    """C leaves open what happens where signed numbers overflow: computed as unsigned ones."""
    wide, t = f"u{max(dtype.bits, 32)}", type_name(dtype)
    if t == wide:
        return f" {INT_INFIX[op]} ".join(arguments)
    first, second = (f"({wide}){text}" for text in arguments)
    return f"({t})({first} {INT_INFIX[op]} {second})"


def counted(op: Op, arguments: Sequence[str], dtype: DType) -> str:
    return f"count_{'ones' if op is Op.POPCOUNT else 'zeros'}({arguments[0]})"


def int_extreme(op: Op, arguments: Sequence[str], dtype: DType) -> str:
    x, y = arguments
    return f"{x} {'>' if op is Op.MAX else '<'} {y} ? {x} : {y}"


def int_divide(op: Op, arguments: Sequence[str], dtype: DType) -> str:
    return f"({type_name(dtype)})({arguments[0]} {'/' if op is Op.DIV else '%'} {arguments[1]})"


def int_shift(op: Op, arguments: Sequence[str], dtype: DType) -> str:
    """By the width or more it gives some number."""
    x, y = arguments
    bits, wide = f"({'i' if op is Op.SAR else 'u'}{dtype.bits}){x}", f"u{max(dtype.bits, 32)}"
    if op is not Op.SAR:
        bits = f"({wide}){bits}"
    return f"({type_name(dtype)})({bits} {SHIFTS[op]} ((i32){y} & {dtype.bits - 1}))"


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
}


def converted(text: str, source: DType, target: DType) -> str:
    """Half precision by functions of the prelude."""
    if F16 in (source, target):
        return f"{target.name}_of_{source.name}({text})"
    return f"({type_name(target)}){text}"


def same_bits(text: str, source: DType, target: DType) -> str:
    """The same bits as another type of the same width."""
    t = type_name(target)
    if source in (F32, F64) or target in (F32, F64):
        return f"as_{t}({text})"
    return f"({t}){text}"
