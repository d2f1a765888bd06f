"""Conversions between element types as LLVM has them: a value that does not fit is undefined.

`codegen/legal.py` puts StableHLO's meaning around them.
"""

from __future__ import annotations

from tinyhlo.codegen.llvm.builder import Builder
from tinyhlo.codegen.llvm.types import suffix, value_type
from tinyhlo.ir.dtypes import BOOL, DType


def plain_cast(b: Builder, text: str, source: DType, target: DType, lanes: int) -> str:
    """Floats to floats other than bf16, integers to f32 and f64, f32 and f64 to integers, integers
    to integers."""
    source_type, target_type = value_type(source, lanes), value_type(target, lanes)
    if not source.is_float and not target.is_float:
        return int_to_int(b, text, source, target, lanes)
    if source.is_float and target.is_float:
        name = "fpext" if source.bits < target.bits else "fptrunc"
    elif target.is_float:
        name = "sitofp" if source.kind == "signed" else "uitofp"
    else:
        name = "fptosi" if target.kind == "signed" else "fptoui"
        if saturates(lanes):
            name = f"llvm.{name}.sat.{suffix(target, lanes)}.{suffix(source, lanes)}"
            return b.intrinsic(name, target_type, [(source_type, text)])
    return b.value(f"{name} {source_type} {text} to {target_type}")


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
    op = "trunc" if source.bits > target.bits else "sext" if source.kind == "signed" else "zext"
    return b.value(f"{op} {source_type} {text} to {target_type}")


def bitcast(b: Builder, text: str, source: DType, target: DType, lanes: int) -> str:
    """The same bits as another type of the same width."""
    source_type, target_type = value_type(source, lanes), value_type(target, lanes)
    if source_type == target_type:
        return text
    return b.value(f"bitcast {source_type} {text} to {target_type}")
