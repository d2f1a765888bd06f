"""Integers of 64 bits, which WGSL lacks, as vec2<u32>: the low word, then the high one.

JAX counts random numbers in them, 64-bit types on or not.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyhlo.codegen.c.arithmetic import Functions
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.ops import Op

LIBRARY = """\
fn load_64(place: i32) -> vec2<u32> { return vec2<u32>(memory[place], memory[place + 1]); }
fn store_64(place: i32, value: vec2<u32>) {
  memory[place] = value.x;
  memory[place + 1] = value.y;
}
fn high_product(x: u32, y: u32) -> u32 {
  let middle = (x >> 16u) * (y & 0xffffu) + (((x & 0xffffu) * (y & 0xffffu)) >> 16u);
  let other = (x & 0xffffu) * (y >> 16u) + (middle & 0xffffu);
  return (x >> 16u) * (y >> 16u) + (middle >> 16u) + (other >> 16u);
}
fn add_64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  let low = x.x + y.x;
  return vec2<u32>(low, x.y + y.y + select(0u, 1u, low < x.x));
}
fn neg_64(x: vec2<u32>) -> vec2<u32> { return add_64(~x, vec2<u32>(1u, 0u)); }
fn sub_64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(x.x - y.x, x.y - y.y - select(0u, 1u, x.x < y.x));
}
fn mul_64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(x.x * y.x, high_product(x.x, y.x) + x.x * y.y + x.y * y.x);
}
fn shl_64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  let by = y.x & 31u;
  let up = select((x.y << by) | (x.x >> (32u - by)), x.y, by == 0u);
  let near = select(vec2<u32>(x.x << by, up), vec2<u32>(0u, x.x << by), y.x > 31u);
  return select(vec2<u32>(0u, 0u), near, y.y == 0u && y.x < 64u);
}
fn filled_shift(x: vec2<u32>, y: vec2<u32>, fill: u32) -> vec2<u32> {
  let by = y.x & 31u;
  let down = select((x.x >> by) | (x.y << (32u - by)), x.x, by == 0u);
  let top = select((x.y >> by) | (fill << (32u - by)), x.y, by == 0u);
  let near = select(vec2<u32>(down, top), vec2<u32>(top, fill), y.x > 31u);
  return select(vec2<u32>(fill, fill), near, y.y == 0u && y.x < 64u);
}
fn shr_64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> { return filled_shift(x, y, 0u); }
fn sar_64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> { return filled_shift(x, y, sign_64(x)); }
fn sign_64(x: vec2<u32>) -> u32 { return select(0u, 0xffffffffu, x.y > 0x7fffffffu); }
fn abs_64(x: vec2<u32>) -> vec2<u32> { return select(x, neg_64(x), x.y > 0x7fffffffu); }
fn lt_ui64(x: vec2<u32>, y: vec2<u32>) -> bool {
  return select(x.y < y.y, x.x < y.x, x.y == y.y);
}
fn lt_i64(x: vec2<u32>, y: vec2<u32>) -> bool {
  let flip = vec2<u32>(0u, 0x80000000u);
  return lt_ui64(x ^ flip, y ^ flip);
}
fn popcount_64(x: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(countOneBits(x.x) + countOneBits(x.y), 0u);
}
fn zeros_64(x: vec2<u32>) -> u32 {
  return select(countLeadingZeros(x.y), 32u + countLeadingZeros(x.x), x.y == 0u);
}
fn clz_64(x: vec2<u32>) -> vec2<u32> { return vec2<u32>(zeros_64(x), 0u); }
fn near_ui64(x: vec2<u32>) -> i32 {  // as an index: what is far away stays so
  return select(i32(min(x.x, 0x40000000u)), 0x40000000, x.y != 0u);
}
fn near_i64(x: vec2<u32>) -> i32 {
  let size = near_ui64(abs_64(x));
  return select(size, -size, x.y > 0x7fffffffu);
}
fn f32_of_ui64(x: vec2<u32>) -> f32 {  // 32 bits, the last of which says whether more follow
  let zeros = zeros_64(x);
  let top = shl_64(x, vec2<u32>(zeros, 0u));
  let near = f32(top.y | select(0u, 1u, top.x != 0u));
  return select(near * bitcast<f32>((159u - zeros) << 23u), f32(x.x), x.y == 0u);
}
fn f32_of_i64(x: vec2<u32>) -> f32 {
  let size = f32_of_ui64(abs_64(x));
  return select(size, -size, x.y > 0x7fffffffu);
}
fn ui64_within(x: f32) -> vec2<u32> {  // of a whole number that fits
  let high = floor(x * 2.3283064e-10f);
  return vec2<u32>(u32(x - high * 4294967296.0f), u32(high));
}
fn i64_within(x: f32) -> vec2<u32> {
  let size = ui64_within(abs(x));
  return select(size, neg_64(size), x < 0.0f);
}"""

# x/0 = -1, x%0 = x; with signs, the least number by -1 is itself
DIVISION = """\
fn divided_64(x: vec2<u32>, y: vec2<u32>) -> vec4<u32> {  // quotient and remainder
  if (x.y == 0u && y.y == 0u) { return vec4<u32>(x.x / y.x, 0u, x.x % y.x, 0u); }
  var quotient = vec2<u32>(0u, 0u);
  var rest = vec2<u32>(0u, 0u);
  for (var k = 0u; k < 64u; k += 1u) {
    let carry = rest.y > 0x7fffffffu;
    let bit = select((x.x >> (63u - k)) & 1u, (x.y >> (31u - k)) & 1u, k < 32u);
    rest = vec2<u32>((rest.x << 1u) | bit, (rest.y << 1u) | (rest.x >> 31u));
    quotient = vec2<u32>(quotient.x << 1u, (quotient.y << 1u) | (quotient.x >> 31u));
    if (carry || !lt_ui64(rest, y)) {
      rest = sub_64(rest, y);
      quotient.x |= 1u;
    }
  }
  return vec4<u32>(quotient, rest);
}
fn div_ui64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  if ((y.x | y.y) == 0u) { return vec2<u32>(0xffffffffu, 0xffffffffu); }
  return divided_64(x, y).xy;
}
fn rem_ui64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  if ((y.x | y.y) == 0u) { return x; }
  return divided_64(x, y).zw;
}
fn div_i64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  if ((y.x | y.y) == 0u) { return vec2<u32>(0xffffffffu, 0xffffffffu); }
  let size = divided_64(abs_64(x), abs_64(y)).xy;
  return select(size, neg_64(size), ((x.y ^ y.y) >> 31u) == 1u);
}
fn rem_i64(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  if ((y.x | y.y) == 0u) { return x; }
  let size = divided_64(abs_64(x), abs_64(y)).zw;
  return select(size, neg_64(size), x.y > 0x7fffffffu);
}"""

TEXTS = {
    **{
        op: f"{op.label}_64({{0}}{', {1}' * (op.arity == 2)})"
        for op in (
            *(Op.ADD, Op.SUB, Op.MUL, Op.NEG, Op.ABS),
            *(Op.SHL, Op.SHR, Op.SAR, Op.POPCOUNT, Op.CLZ),
        )
    },
    Op.AND: "{0} & {1}",
    Op.OR: "{0} | {1}",
    Op.XOR: "{0} ^ {1}",
    Op.NOT: "~{0}",
    Op.DIV: "div_{name}({0}, {1})",
    Op.REM: "rem_{name}({0}, {1})",
    Op.MAX: "select({0}, {1}, lt_{name}({0}, {1}))",
    Op.MIN: "select({1}, {0}, lt_{name}({0}, {1}))",
    Op.EQ: "all({0} == {1})",
    Op.NE: "any({0} != {1})",
    Op.LT: "lt_{name}({0}, {1})",
    Op.LE: "!lt_{name}({1}, {0})",
    Op.WHERE: "select({2}, {1}, {0})",
}


def literal_text(bits: int) -> str:
    return f"vec2<u32>({bits & 0xFFFFFFFF:#x}u, {bits >> 32:#x}u)"


def written(functions: Functions, op: Op, arguments: Sequence[str], dtype: DType) -> str:
    """`op` on integers of 64 bits."""
    if op in (Op.DIV, Op.REM):
        functions["division_64"] = DIVISION
    if op is Op.ABS and dtype.kind == "unsigned":
        return arguments[0]
    return TEXTS[op].format(*arguments, name=dtype.name)


def widened(text: str, source: DType) -> str:
    """A value of another type as one of 64 bits, which has no sign of its own."""
    high = f"u32({text} >> 31u)" if source.kind == "signed" else "0u"
    return f"vec2<u32>(u32({text}), {high})"
