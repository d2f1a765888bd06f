"""The elementwise primitives as LLVM IR: one table, op -> how to write it.

In: operand texts of one type and lane count. Out: the text of the result. `codegen/legal.py` wraps
what LLVM's instructions leave undefined or have no type for:

    emit(b, Op.ADD, ["%x", "%y"], F32, F32, 8)  ->  %v1 = fadd contract <8 x float> %x, %y
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from math import gcd

import numpy as np

from tinyhlo.codegen.expressions import literal
from tinyhlo.codegen.legal import FLOATS, has_rule, legalised, where
from tinyhlo.codegen.llvm.builder import Builder
from tinyhlo.codegen.llvm.convert import bitcast, plain_cast, saturates
from tinyhlo.codegen.llvm.types import (
    constant_bits,
    float_text,
    lanes_type,
    literal_text,
    scalar_type,
    splat,
    suffix,
    value_type,
)
from tinyhlo.codegen.math.tables import LOOKUPS
from tinyhlo.ir.dtypes import BF16, BOOL, F16, F32, F64, I32, U32, DType
from tinyhlo.ir.meaning import MEANING, evaluate
from tinyhlo.ir.operators import Operators
from tinyhlo.ir.ops import COMPARISONS, Op
from tinyhlo.records import dataclass

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
    Op.ROUNDED: "arithmetic.fence",
}
INT_INSTRUCTIONS = {
    Op.ADD: "add",
    Op.SUB: "sub",
    Op.MUL: "mul",
    Op.AND: "and",
    Op.OR: "or",
    Op.XOR: "xor",
}
SHIFTS = {Op.SHL: "shl", Op.SHR: "lshr", Op.SAR: "ashr"}
WITH_SIGN = {Op.MAX: "max", Op.MIN: "min", Op.DIV: "div", Op.REM: "rem"}  # or without: smax, umax
FLOAT_COMPARE = {Op.EQ: "oeq", Op.NE: "une", Op.LT: "olt", Op.LE: "ole"}
INT_COMPARE = {Op.EQ: "eq", Op.NE: "ne", Op.LT: "lt", Op.LE: "le"}
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

# any lane of one register and of two, by the element's bits and whether it is a float
PERMUTES = {
    (8, False): ("permvar.qi", "vpermi2var.qi"),
    (16, False): ("permvar.hi", "vpermi2var.hi"),
    (32, True): ("permvar.sf", "vpermi2var.ps"),
    (32, False): ("permvar.si", "vpermi2var.d"),
    (64, True): ("permvar.df", "vpermi2var.pd"),
    (64, False): ("permvar.di", "vpermi2var.q"),
}


@dataclass(eq=False, slots=True)
class Lanes(Operators["Lanes"]):
    """A value as text; what it is combined to is written at once."""

    b: Builder
    text: str
    dtype: DType
    lanes: int

    def constant(self, value: float) -> Lanes:
        return Lanes(self.b, constant_text(value, self.dtype, self.lanes), self.dtype, self.lanes)

    def combined(self, op: Op, operands: Sequence[Lanes], dtype: DType | None) -> Lanes:
        operand = operands[-1].dtype
        result = dtype or (BOOL if op in COMPARISONS else operand)
        numbers = [number for each in operands if (number := each.number) is not None]
        if len(numbers) == len(operands) and (op in MEANING or op in (Op.CAST, Op.BITCAST)):
            text = constant_text(evaluate(op, numbers, result), result, self.lanes)
        else:
            texts = [each.text for each in operands]
            text = plain(self.b, op, texts, operand, result, self.lanes)
        return Lanes(self.b, text, result, self.lanes)

    def ordered(self, other: Lanes) -> Lanes:
        type_ = value_type(self.dtype, self.lanes)
        text = self.b.value(f"fcmp ord {type_} {self.text}, {other.text}")
        return Lanes(self.b, text, BOOL, self.lanes)

    @property
    def number(self) -> np.ndarray | None:
        """What a constant is in every lane; None for a register."""
        bits = constant_bits(self.text, self.dtype)
        if bits is None:
            return None
        return np.array(bits, f"u{self.dtype.itemsize}").view(self.dtype.numpy)

    @property
    def known(self) -> int | None:  # type: ignore[override]
        number = self.text.rpartition(" ")[2].rstrip(")")
        return int(number) if number.removeprefix("-").isdigit() else None


def constant_text(value: float | np.ndarray, dtype: DType, lanes: int) -> str:
    return text_of_bits(literal(value, dtype).bits, dtype, lanes)  # 0.0 and -0.0 are equal


@lru_cache(maxsize=4096)
def text_of_bits(bits: int, dtype: DType, lanes: int) -> str:
    return splat(literal_text(bits, dtype), scalar_type(dtype), lanes)


def emit(
    b: Builder, op: Op, arguments: Sequence[str], operand: DType, result: DType, lanes: int
) -> str:
    """`op` on arguments of type `operand` (for WHERE: the type of the last two)."""
    if not has_rule(op, operand, result):
        return plain(b, op, arguments, operand, result, lanes)
    given = [Lanes(b, text, operand, lanes) for text in arguments]
    return legalised(op, given, result, partial(is_native, b, lanes), short_nans=True).text


def convert(b: Builder, text: str, source: DType, target: DType, lanes: int) -> str:
    """`text` of type `source` as a value of type `target`."""
    return text if source is target else emit(b, Op.CAST, [text], source, target, lanes)


def is_native(b: Builder, lanes: int, op: Op, operand: DType, result: DType) -> bool:
    """Whether LLVM has what StableHLO asks for."""
    if op is Op.CAST:
        halves = {F16: b.half, BF16: False}
        return halves.get(operand, halves.get(result, saturates(lanes)))
    return op in NATIVE[operand.kind]


def plain(
    b: Builder, op: Op, arguments: Sequence[str], operand: DType, result: DType, lanes: int
) -> str:
    """As LLVM has it."""
    if op is Op.CAST:
        return plain_cast(b, arguments[0], operand, result, lanes)
    if op is Op.BITCAST:
        return bitcast(b, arguments[0], operand, result, lanes)
    if op in LOOKUPS:
        return look_up(b, op, arguments[0], operand, result, lanes)
    if op is Op.WHERE:
        return b.select(arguments[0], arguments[1], arguments[2], value_type(result, lanes), lanes)
    if op in COMPARISONS:
        return compare(b, op, arguments, operand, lanes)
    rules = FLOAT_RULES if operand.is_float else INT_RULES
    return rules[op](b, op, arguments, operand, lanes)


def compare(b: Builder, op: Op, arguments: Sequence[str], operand: DType, lanes: int) -> str:
    type_, (x, y) = value_type(operand, lanes), arguments
    if operand.is_float:
        same = {Op.EQ: "ord", Op.NE: "uno"} if x == y else {}  # x == x: is it a number
        return b.value(f"fcmp {same.get(op) or FLOAT_COMPARE[op]} {type_} {x}, {y}")
    name = INT_COMPARE[op]
    if op in (Op.LT, Op.LE):
        name = ("s" if operand.kind == "signed" else "u") + name
    return b.value(f"icmp {name} {type_} {x}, {y}")


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
    """NaN if either is NaN, and max(-0, +0) = +0."""
    x, y = arguments
    if y.startswith("%") and not x.startswith("%"):
        x, y = y, x
    bound = Lanes(b, y, dtype, lanes).number
    if bound is not None and not np.isnan(bound):
        return bounded(b, op, x, y, float(bound), dtype, lanes)
    if b.masks:
        return ranged(b, op, arguments, dtype, lanes)
    if lanes > 1 and b.takes_second:
        return in_both_orders(b, op, x, y, dtype, lanes)
    if lanes > 1:
        return b.math("maximum" if op is Op.MAX else "minimum", dtype, lanes, x, y)
    # LLVM would ask for the sign of one number by a jump
    return FLOATS[op](*(Lanes(b, text, dtype, lanes) for text in arguments)).text


def bounded(b: Builder, op: Op, x: str, y: str, bound: float, dtype: DType, lanes: int) -> str:
    """Against the number `bound`, which `y` is, x86's own instruction does it: it returns its
    second operand when unordered or equal. Where that is the wrong zero there is more to do."""
    type_ = value_type(dtype, lanes)
    order = "ogt" if op is Op.MAX else "olt"
    wins = bound == 0 and (op is Op.MIN) == bool(np.signbit(bound))
    if wins and op is Op.MIN:
        order = "ole"  # +0.0 becomes -0.0
    better = b.value(f"fcmp {order} {type_} {y}, {x}")
    value = b.select(better, y, x, type_, lanes)
    if wins and op is Op.MAX:  # -0.0 becomes +0.0
        return b.value(f"fadd {type_} {value}, zeroinitializer")
    return value


def in_both_orders(b: Builder, op: Op, x: str, y: str, dtype: DType, lanes: int) -> str:
    """By x86's own instruction, which returns its second operand when unordered or equal: the two
    orders differ in the bits of zeros, of which -0 has more, and where NaN meets a number, whose
    bits NaN has besides its own if both are put together."""
    order, type_ = "ogt" if op is Op.MAX else "olt", value_type(dtype, lanes)
    bits = lanes_type(f"i{dtype.bits}", lanes)
    both: list[str] = []
    for one, other in ((x, y), (y, x)):
        better = b.value(f"fcmp {order} {type_} {one}, {other}")
        found = b.select(better, one, other, type_, lanes)
        both.append(b.value(f"bitcast {type_} {found} to {bits}"))
    if op is Op.MIN:
        result = b.value(f"or {bits} {both[0]}, {both[1]}")
    else:
        result = b.value(f"and {bits} {both[0]}, {both[1]}")
        unordered = b.value(f"fcmp uno {type_} {x}, {y}")
        wide = b.value(f"sext {lanes_type('i1', lanes)} {unordered} to {bits}")
        result = b.value(f"or {bits} {result}, {wide}")
    return b.value(f"bitcast {bits} {result} to {type_}")


def ranged(b: Builder, op: Op, arguments: Sequence[str], dtype: DType, lanes: int) -> str:
    """By AVX-512's vrange, which orders -0 before +0, but prefers a number to NaN."""
    bits = next((n for n in (128, 256) if lanes * dtype.bits <= n), 512)
    whole = bits // dtype.bits
    vector = value_type(dtype, whole)
    name = f"llvm.x86.avx512.mask.range.{'ps' if dtype is F32 else 'pd'}.{bits}"
    which = ("i32", "5" if op is Op.MAX else "4")  # with the sign of the one that is taken
    mask = [(f"i{max(whole, 8)}", "-1"), ("i32", "4")][: 1 + (bits == 512)]

    def better(parts: Sequence[str]) -> str:
        operands = [*((vector, part) for part in parts), which, (vector, "poison"), *mask]
        return b.intrinsic(name, vector, operands)

    number = in_registers(b, better, arguments, dtype, dtype, lanes, bits)
    x, y = (Lanes(b, text, dtype, lanes) for text in arguments)
    return where(x.ordered(y), Lanes(b, number, dtype, lanes), x + y).text


def lane_calls(b: Builder, op: Op, arguments: Sequence[str], dtype: DType, lanes: int) -> str:
    """libm, lane by lane: for what `codegen/math/expand.py` does not expand."""
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
    """x * 2^floor(n) by AVX-512's vscalef."""
    whole = 512 // dtype.bits
    vector = value_type(dtype, whole)
    name = f"llvm.x86.avx512.mask.scalef.{'ps' if dtype is F32 else 'pd'}.512"

    def scaled(parts: Sequence[str]) -> str:
        operands = [*((vector, part) for part in parts), (vector, "poison")]
        return b.intrinsic(name, vector, [*operands, (f"i{whole}", "-1"), ("i32", "4")])

    return in_registers(b, scaled, arguments, dtype, dtype, lanes)


def look_up(b: Builder, op: Op, text: str, operand: DType, dtype: DType, lanes: int) -> str:
    """By a permutation of one register, or of two for f64."""
    whole = 512 // dtype.bits
    entries = [f"{value_type(dtype, 1)} {float_text(dtype.numpy.type(x))}" for x in LOOKUPS[op]]
    tables = [f"<{', '.join(entries[k : k + whole])}>" for k in range(0, 16, whole)]
    return permuted(b, tables, text, operand, dtype, lanes)


def permuted(
    b: Builder, tables: Sequence[str], text: str, operand: DType, dtype: DType, lanes: int
) -> str:
    """Elements of a table that fills up to four registers: an instruction takes them from two, and
    heeds no more of a place than it needs."""
    whole = 512 // dtype.bits
    if len(tables) > 2:
        near, far = (
            permuted(b, pair, text, operand, dtype, lanes) for pair in (tables[:2], tables[2:])
        )
        type_, limit = value_type(operand, lanes), splat(str(2 * whole), f"i{operand.bits}", lanes)
        is_near = b.value(f"icmp ult {type_} {text}, {limit}")
        return b.select(is_near, near, far, value_type(dtype, lanes), lanes)
    vector, order = value_type(dtype, whole), value_type(operand, whole)
    name = PERMUTES[dtype.bits, dtype.is_float][len(tables) - 1]

    def chosen(parts: Sequence[str]) -> str:
        first, *others = ((vector, table) for table in tables)
        given = [first, (order, parts[0]), *others]
        return b.intrinsic(f"llvm.x86.avx512.{name}.512", vector, given)

    return in_registers(b, chosen, [text], operand, dtype, lanes)


def in_registers(
    b: Builder,
    instruction: Callable[[Sequence[str]], str],
    arguments: Sequence[str],
    operand: DType,
    result: DType,
    lanes: int,
    register: int = 512,
) -> str:
    """`instruction`, which takes registers of so many bits, on any number of lanes: what is shorter
    is padded, what is longer is cut."""
    whole = register // operand.bits
    scalar, vector = value_type(operand, 1), value_type(operand, whole)
    if lanes == 1:
        parts = [
            b.value(f"insertelement {vector} poison, {scalar} {text}, i64 0") for text in arguments
        ]
        return b.value(f"extractelement {value_type(result, whole)} {instruction(parts)}, i64 0")
    size = lanes if lanes < whole else gcd(lanes, whole)
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
    type_ = value_type(dtype, lanes)
    name = f"llvm.{'abs' if op is Op.ABS else 'ctlz'}.{suffix(dtype, lanes)}"
    return b.intrinsic(name, type_, [(type_, arguments[0]), ("i1", "false")])


def with_sign(b: Builder, op: Op, arguments: Sequence[str], dtype: DType, lanes: int) -> str:
    name = ("s" if dtype.kind == "signed" else "u") + WITH_SIGN[op]
    if op in (Op.MAX, Op.MIN):
        return b.math(name, dtype, lanes, *arguments)
    return b.value(f"{name} {value_type(dtype, lanes)} {', '.join(arguments)}")


def divide(b: Builder, op: Op, arguments: Sequence[str], dtype: DType, lanes: int) -> str:
    """No processor divides integers in lanes. Floats of twice the bits do: a quotient that is not
    whole does not round to a whole number, and the remainder is exact."""
    x, y = (Lanes(b, text, dtype, lanes) for text in arguments)
    if lanes == 1 or dtype.bits > 32 or y.known is not None:
        return with_sign(b, op, arguments, dtype, lanes)
    wide = F32 if dtype.bits <= 16 else F64
    dividend, divisor = x.cast(wide), y.cast(wide)
    result = (dividend / divisor).trunc()
    if op is Op.REM:
        result = dividend - result * divisor
    return result.cast(U32 if dtype is U32 else I32).cast(dtype).text


def shift(b: Builder, op: Op, arguments: Sequence[str], dtype: DType, lanes: int) -> str:
    """By the width or more, the result is an arbitrary number rather than poison."""
    x, y = arguments
    shifted = b.value(f"{SHIFTS[op]} {value_type(dtype, lanes)} {x}, {y}")
    if op is Op.SAR or not y.startswith("%"):
        return shifted
    return b.value(f"freeze {value_type(dtype, lanes)} {shifted}")


FLOAT_RULES: dict[Op, Rule] = {
    **dict.fromkeys(FLOAT_INSTRUCTIONS, written(FLOAT_INSTRUCTIONS)),
    **dict.fromkeys(FLOAT_MATH, called(FLOAT_MATH)),
    **dict.fromkeys(LIBM, lane_calls),
    Op.MAX: float_extreme,
    Op.MIN: float_extreme,
    Op.SCALE: scale,
}
INT_RULES: dict[Op, Rule] = {
    **dict.fromkeys(INT_INSTRUCTIONS, written(INT_INSTRUCTIONS)),
    **dict.fromkeys(SHIFTS, shift),
    **dict.fromkeys((Op.MAX, Op.MIN), with_sign),
    **dict.fromkeys((Op.DIV, Op.REM), divide),
    **dict.fromkeys((Op.ABS, Op.CLZ), int_unary),
    Op.POPCOUNT: called({Op.POPCOUNT: "ctpop"}),
}
NATIVE = {
    "float": (Op.MAX, Op.MIN),
    "signed": (Op.ABS, Op.CLZ, Op.POPCOUNT),
    "unsigned": (Op.CLZ, Op.POPCOUNT),
    "bool": (),
}
