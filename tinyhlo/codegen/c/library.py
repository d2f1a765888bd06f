"""Functions in C for devices without f64, which compute by integers what others compute in f64."""

from __future__ import annotations

from tinyhlo.records import dataclass


@dataclass(frozen=True, slots=True)
class Far:
    """`remainder` is the function far_remainder_f32, `angle` what reduces an angle; `function` is a
    template of a function of an angle."""

    remainder: str
    angle: str
    function: str


REMAINDER = """\
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

# 2/pi as words of 32 bits, the first one in front of the point
TWO_OVER_PI = (
    0x0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB,
)  # fmt: skip

ANGLE = (
    "typedef struct { i32 quarter; f32 rest; } far_turn;\n"
    f"TABLE u32 two_over_pi[8] = {{{', '.join(f'{word:#x}u' for word in TWO_OVER_PI)}}};\n"
    """\
FUNCTION u32 window(i32 first) {  // 32 bits of 2/pi from bit `first` behind the point
  const i32 place = first + 32, by = place & 31;
  const u32 word = two_over_pi[place >> 5];
  return by ? word << by | two_over_pi[(place >> 5) + 1] >> (32 - by) : word;
}
FUNCTION far_turn far_angle(f32 x) {  // quarter turns, modulo 4, and what is left (Payne, Hanek)
  const u32 bits = as_u32(x), whole = (bits & 0x7fffffu) | 0x800000u;
  const i32 first = (i32)(bits >> 23 & 255u) - 152;  // earlier bits are multiples of 4 quarters
  const u64 quarters = ((u64)(whole * window(first)) << 32) + (u64)whole * window(first + 32)
                       + ((u64)whole * window(first + 64) >> 32);
  i32 quarter = (i32)(quarters >> 62);
  u64 rest = quarters << 2;
  u32 sign = bits & 0x80000000u;
  if (rest >> 63) {  // the next quarter is nearer
    quarter += 1;
    sign ^= 0x80000000u;
    rest = 0 - rest;
  }
  const i32 shift = (i32)count_zeros(rest | 1);
  const u64 angle = (rest << shift >> 32) * 0xc90fdaa2u;  // times pi/2 and 2^31
  far_turn turn;
  turn.quarter = bits >> 31 ? -quarter : quarter;
  turn.rest = (f32)angle * as_f32(sign | (u32)(64 - shift) << 23);
  return turn;
}"""
)

FUNCTION = """\
FUNCTION f32 {name}(f32 x) {{
  if ((as_u32(x) & 0x7f800000u) == 0x7f800000u) return as_f32(0x7fc00000u);
  const far_turn angle = far_angle(x);
  const i32 quarter = angle.quarter;
  const f32 rest = angle.rest;
{lines}
  return {result};
}}"""

FAR = Far(REMAINDER, ANGLE, FUNCTION)
