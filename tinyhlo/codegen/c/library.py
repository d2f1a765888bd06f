"""Functions in C for devices without f64, and what a device has an instruction for."""

FAR_REMAINDER = """\
FUNCTION f32 far_remainder_f32(f32 x, f32 y) {  // bit by bit, exactly
  const u32 sign = as_u32(x) & 0x80000000u, size = as_u32(x) & 0x7fffffffu;
  const u32 by = as_u32(y) & 0x7fffffffu;
  if (size >= 0x7f800000u || by > 0x7f800000u || by == 0) return as_f32(0x7fc00000u);
  if (size < by) return x;
  const i32 high = size >> 23 ? (i32)(size >> 23) : 1, low = by >> 23 ? (i32)(by >> 23) : 1;
  u32 rest = (size & 0x7fffffu) | (size >> 23 ? 0x800000u : 0u);
  const u32 divisor = (by & 0x7fffffu) | (by >> 23 ? 0x800000u : 0u);
  for (i32 step = high - low; step > 0; step -= 1) rest = rest % divisor << 1;
  rest = rest % divisor;
  if (rest == 0) return as_f32(sign);
  const i32 spare = (i32)count_zeros(rest) - 8, shift = spare < low - 1 ? spare : low - 1;
  rest = rest << shift;
  const u32 exponent = rest >= 0x800000u ? (u32)(low - shift) : 0u;
  return as_f32(sign | exponent << 23 | (rest & 0x7fffffu));
}"""

# Of sm_80 and later: NaN if either is, and a negative zero is less than a positive one.
PTX_EXTREME = """\
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
FUNCTION {type} {name}({type} x, {type} y) {{
  {type} z; asm("{instruction} %0, %1, %2;" : "={letter}"(z) : "{letter}"(x), "{letter}"(y));
  return z;
}}
#else
{text}
#endif"""
WORDS = {"f32": ("f32", "f"), "f16": ("u16", "h"), "bf16": ("u16", "h")}  # and letters of asm


def by_instructions(device: str, name: str, text: str) -> str:
    """The function `name`, which is `text`, as the device has an instruction for it."""
    op, _, dtype = name.partition("_")
    if device != "NV" or op not in ("max", "min") or dtype not in WORDS:
        return text
    type_, letter = WORDS[dtype]
    instruction = f"{op}.NaN.{dtype}"
    return PTX_EXTREME.format(
        type=type_, name=name, instruction=instruction, letter=letter, text=text
    )
