"""Conversions between element types, with StableHLO's meaning.

Float to int truncates, saturates, and takes NaN to 0; narrower floats round to nearest even.
"""

from __future__ import annotations

import numpy as np

from tinyhlo.codegen.llvm.builder import Builder
from tinyhlo.codegen.llvm.types import lanes_type, literal_text, splat, suffix, value_type
from tinyhlo.ir.dtypes import BF16, BOOL, F16, F32, F64, DType

SMALL_FLOATS = (BF16, F16)


def convert(b: Builder, text: str, source: DType, target: DType, lanes: int) -> str:
    """`text` of type `source` as a value of type `target`."""
    if source is target:
        return text
    if target is BOOL:
        return nonzero(b, text, source, lanes)
    if source.is_float and target.is_float:
        return float_to_float(b, text, source, target, lanes)
    if target.is_float:
        return int_to_float(b, text, source, target, lanes)
    if source.is_float:
        return float_to_int(b, text, source, target, lanes)
    return int_to_int(b, text, source, target, lanes)


def nonzero(b: Builder, text: str, source: DType, lanes: int) -> str:
    if source is BF16:
        text, source = widen(b, text, source, lanes), F32
    type_ = value_type(source, lanes)
    if source.is_float:
        return b.value(f"fcmp une {type_} {text}, zeroinitializer")
    return b.value(f"icmp ne {type_} {text}, zeroinitializer")


def widen(b: Builder, text: str, source: DType, lanes: int) -> str:
    """bf16 or f16 as f32, exactly."""
    if source is F16:
        return b.value(f"fpext {value_type(F16, lanes)} {text} to {value_type(F32, lanes)}")
    wide = lanes_type("i32", lanes)
    bits = b.value(f"zext {value_type(BF16, lanes)} {text} to {wide}")
    high = b.value(f"shl {wide} {bits}, {splat('16', 'i32', lanes)}")
    return b.value(f"bitcast {wide} {high} to {value_type(F32, lanes)}")


def narrow(b: Builder, text: str, target: DType, lanes: int) -> str:
    """f32 as bf16 or f16, to nearest even."""
    if target is F16:
        return b.value(f"fptrunc {value_type(F32, lanes)} {text} to {value_type(F16, lanes)}")
    wide, single = lanes_type("i32", lanes), value_type(F32, lanes)
    bits = b.value(f"bitcast {single} {text} to {wide}")
    quiet = b.value(f"or {wide} {bits}, {splat(str(0x400000), 'i32', lanes)}")
    is_nan = b.value(f"fcmp uno {single} {text}, {text}")
    chosen = b.select(is_nan, quiet, rounded_up(b, bits, lanes), wide, lanes)
    return high_half(b, chosen, lanes)


def narrow_result(b: Builder, text: str, target: DType, lanes: int) -> str:
    """`narrow` of what arithmetic made of widened operands: a NaN among them, or the processor's
    own, has nothing below that would carry."""
    if target is F16:
        return narrow(b, text, target, lanes)
    bits = b.value(f"bitcast {value_type(F32, lanes)} {text} to {lanes_type('i32', lanes)}")
    return high_half(b, rounded_up(b, bits, lanes), lanes)


def rounded_up(b: Builder, bits: str, lanes: int) -> str:
    """The bits of an f32 and half of a bf16's last place, or a little less where that is even."""
    wide = lanes_type("i32", lanes)
    high = b.value(f"lshr {wide} {bits}, {splat('16', 'i32', lanes)}")
    odd = b.value(f"and {wide} {high}, {splat('1', 'i32', lanes)}")
    bias = b.value(f"add {wide} {odd}, {splat(str(0x7FFF), 'i32', lanes)}")
    return b.value(f"add {wide} {bits}, {bias}")


def high_half(b: Builder, bits: str, lanes: int) -> str:
    """The bf16 that begins an f32."""
    wide = lanes_type("i32", lanes)
    high = b.value(f"lshr {wide} {bits}, {splat('16', 'i32', lanes)}")
    return b.value(f"trunc {wide} {high} to {value_type(BF16, lanes)}")


def narrow_exact(b: Builder, text: str, lanes: int) -> str:
    """f32 as bf16 where nothing is lost."""
    wide = lanes_type("i32", lanes)
    bits = b.value(f"bitcast {value_type(F32, lanes)} {text} to {wide}")
    return high_half(b, bits, lanes)


def float_to_float(b: Builder, text: str, source: DType, target: DType, lanes: int) -> str:
    if source in SMALL_FLOATS:
        single = widen(b, text, source, lanes)
        return convert(b, single, F32, target, lanes)
    if target is F64:
        return b.value(f"fpext {value_type(source, lanes)} {text} to {value_type(F64, lanes)}")
    if source is F32:
        return narrow(b, text, target, lanes)
    if target is F32:
        return b.value(f"fptrunc {value_type(F64, lanes)} {text} to {value_type(F32, lanes)}")
    return narrow(b, round_to_odd(b, text, lanes), target, lanes)


def round_to_odd(b: Builder, text: str, lanes: int) -> str:
    """f64 as f32 rounded to odd, so that rounding once more to 16 bits is right (Boldo and
    Melquiond, Emulation of FMA and correctly rounded sums)."""
    double, single = value_type(F64, lanes), value_type(F32, lanes)
    wide = lanes_type("i32", lanes)
    near = b.value(f"fptrunc {double} {text} to {single}")
    back = b.value(f"fpext {single} {near} to {double}")
    inexact = b.value(f"fcmp one {double} {back}, {text}")
    size_near = b.math("fabs", F64, lanes, back)
    size = b.math("fabs", F64, lanes, text)
    too_far = b.value(f"fcmp ogt {double} {size_near}, {size}")
    bits = b.value(f"bitcast {single} {near} to {wide}")
    step = b.value(f"sext {lanes_type('i1', lanes)} {too_far} to {wide}")
    toward_zero = b.value(f"add {wide} {bits}, {step}")
    odd = b.value(f"or {wide} {toward_zero}, {splat('1', 'i32', lanes)}")
    chosen = b.select(inexact, odd, bits, wide, lanes)
    return b.value(f"bitcast {wide} {chosen} to {single}")


def int_to_float(b: Builder, text: str, source: DType, target: DType, lanes: int) -> str:
    if target in SMALL_FLOATS and source is BOOL:
        one, zero = (number(value, target, lanes) for value in (1, 0))
        return b.select(text, one, zero, value_type(target, lanes), lanes)
    if target in SMALL_FLOATS:
        middle = F32  # exact below 2^24: larger integers are infinite in f16
        if target is BF16 and source.bits == 32:
            text = few_bits(b, text, source, lanes)
        elif target is BF16 and source.bits == 64:
            middle = F64
        value = int_to_float(b, text, source, middle, lanes)
        return convert(b, value, middle, target, lanes)
    op = "sitofp" if source.kind == "signed" else "uitofp"
    return b.value(f"{op} {value_type(source, lanes)} {text} to {value_type(target, lanes)}")


def few_bits(b: Builder, text: str, source: DType, lanes: int) -> str:
    """An integer of 32 bits as one that f32 holds exactly and bf16 rounds alike: from 2^24 on, the
    last of 24 bits says whether any behind it was set."""
    type_ = value_type(source, lanes)

    def constant(value: int) -> str:
        return splat(str(value), "i32", lanes)

    low = b.value(f"and {type_} {text}, {constant(0xFF)}")
    some = b.math("umin", source, lanes, low, constant(1))
    bit = b.value(f"shl {type_} {some}, {constant(8)}")
    high = b.value(f"and {type_} {text}, {constant(-0x100)}")
    rounded = b.value(f"or {type_} {high}, {bit}")
    least = 1 << 24 if source.kind == "signed" else 0
    above = b.value(f"add {type_} {text}, {constant(least)}")
    exact = b.value(f"icmp ult {type_} {above}, {constant((1 << 24) + least)}")
    return b.select(exact, text, rounded, type_, lanes)


def float_to_int(b: Builder, text: str, source: DType, target: DType, lanes: int) -> str:
    if source in SMALL_FLOATS:
        text, source = widen(b, text, source, lanes), F32
    if lanes > 1 and target.bits <= 32:
        return lanes_to_int(b, text, source, target, lanes)
    sign = "s" if target.kind == "signed" else "u"
    name = f"llvm.fpto{sign}i.sat.{suffix(target, lanes)}.{suffix(source, lanes)}"
    return b.intrinsic(name, value_type(target, lanes), [(value_type(source, lanes), text)])


def lanes_to_int(b: Builder, text: str, source: DType, target: DType, lanes: int) -> str:
    """Clamped first, so that the plain conversion is defined: LLVM takes a saturating one of lanes
    apart, lane by lane. What lies above the last float below the limit is the limit."""
    low, high = int(target.bounds[0]), int(target.bounds[1])
    last = source.numpy.type(high)
    last = last if int(last) <= high else np.nextafter(last, source.numpy.type(0))
    type_ = value_type(source, lanes)

    some = b.value(f"fcmp ord {type_} {text}, zeroinitializer")
    clamped = b.select(some, text, "zeroinitializer", type_, lanes)
    for order, limit in (("ogt", low), ("olt", last)):
        end = number(limit, source, lanes)
        inside = b.value(f"fcmp {order} {type_} {clamped}, {end}")
        clamped = b.select(inside, clamped, end, type_, lanes)
    sign = "u" if low == 0 and target.bits == 32 else "s"
    wide = lanes_type("i32", lanes)
    result = b.value(f"fpto{sign}i {type_} {clamped} to {wide}")
    if int(last) < high:
        beyond = b.value(f"fcmp ogt {type_} {text}, {number(last, source, lanes)}")
        most = splat(literal_text(high, target), "i32", lanes)
        result = b.select(beyond, most, result, wide, lanes)
    if target.bits == 32:
        return result
    return b.value(f"trunc {wide} {result} to {value_type(target, lanes)}")


def number(value: float, dtype: DType, lanes: int) -> str:
    """A constant float in every lane."""
    bits = int.from_bytes(dtype.numpy.type(value).tobytes(), "little")
    return splat(literal_text(bits, dtype), value_type(dtype, 1), lanes)


def int_to_int(b: Builder, text: str, source: DType, target: DType, lanes: int) -> str:
    source_type, target_type = value_type(source, lanes), value_type(target, lanes)
    if source is BOOL:
        return b.value(f"zext {source_type} {text} to {target_type}")
    if source.bits == target.bits:
        return text
    op = "trunc" if source.bits > target.bits else "sext" if source.kind == "signed" else "zext"
    return b.value(f"{op} {source_type} {text} to {target_type}")


def bitcast(b: Builder, text: str, source: DType, target: DType, lanes: int) -> str:
    """The same bits as another type of the same width."""
    source_type, target_type = value_type(source, lanes), value_type(target, lanes)
    if source_type == target_type:
        return text
    return b.value(f"bitcast {source_type} {text} to {target_type}")
