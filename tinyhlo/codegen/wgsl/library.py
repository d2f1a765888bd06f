"""Functions in WGSL that generated kernels call."""

BASE = """\
@group(0) @binding(0) var<storage, read_write> memory: array<u32>;
struct Bases { at: array<vec4<i32>, 32> }  // the last one is 0
@group(0) @binding(1) var<uniform> bases: Bases;
fn opaque(x: f32) -> f32 {  // what no compiler sees through: (x + 1) - 1 is not x
  return bitcast<f32>(bitcast<u32>(x) ^ bitcast<u32>(bases.at[31][3]));
}
fn as_f32(x: u32) -> f32 { return bitcast<f32>(x); }
@compute @workgroup_size(256)
fn copy_words(
  @builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) item: u32
) {
  let place = i32((group.x + group.y * 65535u) * 256u + item);
  if (place < bases.at[0][2]) {
    memory[bases.at[0][1] + place] = memory[bases.at[0][0] + place];
  }
}"""

FAR_REMAINDER = """\
fn far_remainder_f32(x: f32, y: f32) -> f32 {  // bit by bit, exactly
  let sign = bitcast<u32>(x) & 0x80000000u;
  let size = bitcast<u32>(x) & 0x7fffffffu;
  let by = bitcast<u32>(y) & 0x7fffffffu;
  if (size >= 0x7f800000u || by > 0x7f800000u || by == 0u) { return as_f32(0x7fc00000u); }
  if (size < by) { return x; }
  var low = vec2<i32>(max(i32(size >> 23u), 1), max(i32(by >> 23u), 1));
  var rest = select(size & 0x7fffffu, (size & 0x7fffffu) | 0x800000u, (size >> 23u) != 0u);
  let divisor = select(by & 0x7fffffu, (by & 0x7fffffu) | 0x800000u, (by >> 23u) != 0u);
  for (var step = low.x - low.y; step > 0; step -= 1) { rest = (rest % divisor) << 1u; }
  rest = rest % divisor;
  if (rest == 0u) { return bitcast<f32>(sign); }
  let shift = min(i32(countLeadingZeros(rest)) - 8, low.y - 1);
  rest = rest << u32(shift);
  let exponent = select(0u, u32(low.y - shift), rest >= 0x800000u);
  return bitcast<f32>(sign | (exponent << 23u) | (rest & 0x7fffffu));
}"""
