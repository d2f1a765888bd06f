"""Conversions between element types as LLVM has them: a value that does not fit is undefined.

`codegen/legal.py` puts StableHLO's meaning around them.
"""

from __future__ import annotations

from tinyhlo.codegen.llvm.builder import Builder
from tinyhlo.codegen.llvm.types import lanes_type, suffix, value_type
from tinyhlo.ir.dtypes import BOOL, DType


def plain_cast(b: Builder, text: str, source: DType, target: DType, lanes: int) -> str:
    """Floats to floats other than bf16, integers to f32 and f64, f32 and f64 to integers, integers
    to integers."""
    source_type, target_type = value_type(source, lanes), value_type(target, lanes)
    if not source.is_float and not target.is_float:
        return int_to_int(b, text, source, target, lanes)
    if source.is_float and target.is_float:
        if text in b.loaded_halves:
            text = in_own_register(b, text)
        name = "fpext" if source.bits < target.bits else "fptrunc"
    elif target.is_float:
        name = "sitofp" if source.kind == "signed" else "uitofp"
    else:
        name = "fptosi" if target.kind == "signed" else "fptoui"
        if saturates(lanes):
            name = f"llvm.{name}.sat.{suffix(target, lanes)}.{suffix(source, lanes)}"
            return b.intrinsic(name, target_type, [(source_type, text)])
    return b.value(f"{name} {source_type} {text} to {target_type}")


def in_own_register(b: Builder, half: str) -> str:
    """A half from memory in a register of its own: x86 loads it into a part of one, and so waits
    for what was computed there last, in the turn of a loop before; LLVM does not break that chain.
    Sums of 300,000 halves in 5,000 places take 0.17 ms, not 0.94."""
    bits = b.value(f"bitcast half {half} to i16")
    wide = b.value(f"bitcast i32 {b.value(f'zext i16 {bits} to i32')} to float")
    kept = b.intrinsic("llvm.arithmetic.fence.f32", "float", [("float", wide)])
    pair = b.value(f"bitcast float {kept} to <2 x half>")
    return b.value(f"extractelement <2 x half> {pair}, i64 0")


def saturates(lanes: int) -> bool:
    """Whether floats become integers by LLVM's saturating intrinsic: not in lanes, as LLVM would
    convert them one by one."""
    return lanes == 1


def int_to_int(b: Builder, text: str, source: DType, target: DType, lanes: int) -> str:
    source_type, target_type = value_type(source, lanes), value_type(target, lanes)
    if source is BOOL:
        return b.value(f"zext {source_type} {text} to {target_type}")
    if source.bits == target.bits:
        return text
    if b.in_halves and lanes > 1 and (source.bits, target.bits) == (16, 32):
        return widened_in_halves(b, text, lanes, "ashr" if source.kind == "signed" else "lshr")
    if b.in_halves and lanes > 1 and (source.bits, target.bits) == (32, 16):
        return narrowed_in_halves(b, text, lanes)
    op = "trunc" if source.bits > target.bits else "sext" if source.kind == "signed" else "zext"
    return b.value(f"{op} {source_type} {text} to {target_type}")


def bitcast(b: Builder, text: str, source: DType, target: DType, lanes: int) -> str:
    """The same bits as another type of the same width."""
    source_type, target_type = value_type(source, lanes), value_type(target, lanes)
    if source_type == target_type:
        return text
    return b.value(f"bitcast {source_type} {text} to {target_type}")


def widened_in_halves(b: Builder, text: str, lanes: int, shifted: str) -> str:
    """Integers of 16 bits in the order of memory as integers of 32 bits in that of halves."""
    words, shift = lanes_type("i32", lanes // 2), "splat (i32 16)"
    word = b.value(f"bitcast {lanes_type('i16', lanes)} {text} to {words}")
    low = b.value(f"{shifted} {words} {b.value(f'shl {words} {word}, {shift}')}, {shift}")
    high = b.value(f"{shifted} {words} {word}, {shift}")
    return b.shuffle(words, range(lanes), low, high)


def narrowed_in_halves(b: Builder, text: str, lanes: int) -> str:
    """The last 16 bits of integers of 32 bits in the order of halves, in that of memory."""
    words, every = lanes_type("i32", lanes // 2), lanes_type("i32", lanes)
    low = b.shuffle(every, range(lanes // 2), text)
    high = b.shuffle(every, range(lanes // 2, lanes), text)
    low = b.value(f"and {words} {low}, splat (i32 65535)")
    high = b.value(f"shl {words} {high}, splat (i32 16)")
    word = b.value(f"or disjoint {words} {low}, {high}")
    return b.value(f"bitcast {words} {word} to {lanes_type('i16', lanes)}")
