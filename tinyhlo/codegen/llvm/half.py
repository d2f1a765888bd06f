"""float16 for processors without conversions of it: the two functions that LLVM then calls.

They have the names of its runtime library, which is not there at run time. Both round to nearest
even and keep denormal numbers, infinities and the leading bits of a NaN.
"""

FUNCTIONS = {
    "extend half": """define weak_odr float @__extendhfsf2(half %x) #0 {
  %bits = bitcast half %x to i16
  %wide = zext i16 %bits to i32
  %sign.bit = and i32 %wide, 32768
  %sign = shl i32 %sign.bit, 16
  %size = and i32 %wide, 32767
  %moved = shl i32 %size, 13
  %small = bitcast i32 %moved to float
  %scaled = fmul float %small, 0x46F0000000000000 ; 2^112: also right for denormal numbers
  %finite = bitcast float %scaled to i32
  %special = or i32 %moved, 2139095040
  %is.special = icmp uge i32 %size, 31744
  %chosen = select i1 %is.special, i32 %special, i32 %finite
  %signed = or i32 %chosen, %sign
  %result = bitcast i32 %signed to float
  ret float %result
}""",
    "truncate half": """define weak_odr half @__truncsfhf2(float %x) #0 {
  %bits = bitcast float %x to i32
  %sign.bit = lshr i32 %bits, 16
  %sign = and i32 %sign.bit, 32768
  %size = and i32 %bits, 2147483647
  ; normal: another bias, and half a unit (less one where the last bit is even) to be rounded
  %moved = lshr i32 %size, 13
  %odd = and i32 %moved, 1
  %biased = sub i32 %size, 939520001
  %rounded = add i32 %biased, %odd
  %normal = lshr i32 %rounded, 13
  ; denormal: adding 0.5 lets the adder round at the place of the last bit
  %number = bitcast i32 %size to float
  %sum = fadd float %number, 5.000000e-01
  %sum.bits = bitcast float %sum to i32
  %denormal = sub i32 %sum.bits, 1056964608
  %payload = and i32 %moved, 1023
  %nan = or i32 %payload, 32256
  %is.nan = icmp ugt i32 %size, 2139095040
  %special = select i1 %is.nan, i32 %nan, i32 31744
  %is.small = icmp ult i32 %size, 947912704
  %finite = select i1 %is.small, i32 %denormal, i32 %normal
  %is.large = icmp uge i32 %size, 1199570944
  %chosen = select i1 %is.large, i32 %special, i32 %finite
  %signed = or i32 %chosen, %sign
  %short = trunc i32 %signed to i16
  %result = bitcast i16 %short to half
  ret half %result
}""",
}
