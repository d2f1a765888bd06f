"""WGSL as a `Language`, and the functions that every module begins with."""

from __future__ import annotations

from collections.abc import Iterable

from tinyhlo.codegen.c.language import Language
from tinyhlo.codegen.wgsl import arithmetic, wide
from tinyhlo.codegen.wgsl.library import BASE, FAR_REMAINDER
from tinyhlo.ir.dtypes import BOOL, F32, I32, U32, DType
from tinyhlo.target import Target

GROUPS = 65535  # of a dispatch along one axis
MOST_ARRAYS = 127  # of a dispatch: places in `Bases`, but for the last one


def element(name: str, place: str, dtype: DType) -> str:
    return f"{name}[{place}]"


WGSL = Language(
    constant="let {name}: {type} = {value};",
    variable="var {name}: {type} = {value};",
    unset="var {name}: {type};",
    array="var {name}: array<{type}, {size}>;",
    shared="var<workgroup> {name}: array<{type}, {size}>;",
    loop="for (var {name}: {type} = {start}; {name} < {end}; {step})",
    halves="for (var {name}: i32 = {start}; {name} > 0; {name} /= 2)",
    doubles="for (var {name}: i32 = 1; {name} <= {last}; {name} *= 2)",
    choice="select({other}, {then}, {condition})",
    function="fn {name}({parameters}) -> {type}",
    parameter="{name}: {type}",
    barrier="workgroupBarrier(); storageBarrier();",
    index=I32,
    type_name=arithmetic.type_name,
    stored_name=arithmetic.type_name,
    literal_text=arithmetic.literal_text,
    element=element,
    written=arithmetic.written,
    is_native=arithmetic.is_native,
    far_remainder=FAR_REMAINDER,
)


def words_of(dtype: DType) -> int:
    """Words of memory of an element."""
    return 2 if dtype.bits == 64 else 1


def loaded(start: str, place: str, dtype: DType) -> str:
    """An element of the program's memory; `start` is where its array begins."""
    if dtype.bits == 64:
        return f"load_64({start} + 2 * {place})"
    word = f"memory[{start} + {place}]"
    if dtype is BOOL:
        return f"{word} != 0u"
    own = arithmetic.value_type(dtype)
    return word if own is U32 else f"bitcast<{arithmetic.type_name(own)}>({word})"


def stored(start: str, place: str, text: str, dtype: DType) -> str:
    """The line that stores one."""
    if dtype.bits == 64:
        return f"store_64({start} + 2 * {place}, {text});"
    if dtype is BOOL:
        text = f"select(0u, 1u, {text})"
    elif arithmetic.value_type(dtype) in (I32, F32):
        text = f"bitcast<u32>({text})"
    return f"memory[{start} + {place}] = {text};"


def entry_point(symbol: str, items: int, shared: Iterable[str], lines: Iterable[str]) -> str:
    """The text of one, around its lines and what its group shares."""
    head = (
        f"@compute @workgroup_size({items})",
        f"fn {symbol}(",
        "  @builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) item: u32",
        ") {",
        f"  let GROUP = i32(group.x + group.y * {GROUPS}u);",
        "  let ITEM = i32(item);",
    )
    return "\n".join([*shared, *head, *(f"  {line}" for line in lines), "}"])


# The product as two numbers, of halves whose products are exact.
SPLIT = """\
fn split_fma(x: f32, y: f32, z: f32) -> f32 {
  let p = x * y;
  let a = bitcast<f32>(bitcast<u32>(x) & 0xfffff000u);
  let b = bitcast<f32>(bitcast<u32>(y) & 0xfffff000u);
  let c = x - a;
  let d = y - b;
  let rest = ((a * b - p) + (a * d + c * b)) + c * d;
  let sum = opaque(p + z);
  let back = opaque(sum - p);
  let more = (p - (sum - back)) + (z - back);
  let value = sum + (more + rest);
  return select(value, sum, (bitcast<u32>(value) & 0x7f800000u) == 0x7f800000u);
}
"""
# feature of a target, the first that it has -> x * y + z rounded once; "any_fma": whoever runs the
# module says what the device's is
FMA = {
    "exact_fma": "fn fma_f32(x: f32, y: f32, z: f32) -> f32 { return fma(x, y, z); }",
    "any_fma": SPLIT
    + """\
override exact_fma: bool = true;
fn fma_f32(x: f32, y: f32, z: f32) -> f32 {
  if (exact_fma) { return fma(x, y, z); }
  return split_fma(x, y, z);
}""",
    "split_fma": SPLIT + "fn fma_f32(x: f32, y: f32, z: f32) -> f32 { return split_fma(x, y, z); }",
}


def prelude(target: Target) -> str:
    """What all kernels of a target call."""
    fma = next(filter(target.has, FMA), "split_fma")
    return "\n".join([BASE, wide.LIBRARY, FMA[fma]])
