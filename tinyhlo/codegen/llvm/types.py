"""How element types and constants are spelled in LLVM IR.

A value of type bf16 travels as its 16 bits in an i16 (LLVM's own `bfloat` would call library
functions that may not exist); i1 is i1 in registers and one byte in memory.
"""

from __future__ import annotations

import struct

from tinyhlo.ir.dtypes import BF16, BOOL, F16, F32, F64, DType

QUICK = "; compiled without optimising\n"  # first line of a module that is not worth optimising
NAMES = {BF16: "i16", F16: "half", F32: "float", F64: "double", BOOL: "i1"}


def scalar_type(dtype: DType) -> str:
    """The type of one value in a register."""
    return NAMES.get(dtype) or f"i{dtype.bits}"


def stored_type(dtype: DType) -> str:
    """The type of one element in memory."""
    return "i8" if dtype is BOOL else scalar_type(dtype)


def lanes_type(scalar: str, lanes: int) -> str:
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def value_type(dtype: DType, lanes: int) -> str:
    return lanes_type(scalar_type(dtype), lanes)


def suffix(dtype: DType, lanes: int) -> str:
    """The overload suffix of an intrinsic: f32, v8i16."""
    kind = "f" if dtype.is_float and dtype is not BF16 else "i"
    bits = 1 if dtype is BOOL else dtype.bits
    return f"{kind}{bits}" if lanes == 1 else f"v{lanes}{kind}{bits}"


def float_text(value: float) -> str:
    """A double, or a float exactly representable as one, in LLVM's hexadecimal form."""
    return "0x" + struct.pack(">d", value).hex().upper()


def literal_text(bits: int, dtype: DType) -> str:
    """The constant with these bits."""
    if dtype is BOOL:
        return "true" if bits else "false"
    if dtype is F64:
        return f"0x{bits:016X}"
    if dtype is F16:
        return f"0xH{bits:04X}"
    if dtype is F32:
        return float32_text(bits)
    return str(bits - (1 << dtype.bits) if bits >> (dtype.bits - 1) else bits)


def float32_text(bits: int) -> str:
    """LLVM writes a float as the double of the same value; NaN payloads are shifted up."""
    sign, exponent, fraction = bits >> 31, bits >> 23 & 0xFF, bits & 0x7FFFFF
    if exponent == 0xFF:
        return f"0x{sign << 63 | 0x7FF << 52 | fraction << 29:016X}"
    return float_text(struct.unpack("<f", struct.pack("<I", bits))[0])


def constant_bits(text: str, dtype: DType) -> int | None:
    """The bits of a constant that `literal_text` has written, for all lanes or one; None for any
    other text."""
    if text.startswith("%"):
        return None
    word = text.removeprefix(f"splat ({scalar_type(dtype)} ").rstrip(")")
    if dtype is BOOL:
        return {"true": 1, "false": 0}.get(word)
    if word.startswith("0xH"):
        return int(word[3:], 16)
    if word.startswith("0x"):
        return int(word[2:], 16) if dtype is F64 else float32_bits(int(word[2:], 16))
    is_number = word.removeprefix("-").isdigit()
    return int(word) & ((1 << dtype.bits) - 1) if is_number else None


def float32_bits(wide: int) -> int:
    """Of the float that `float32_text` writes as the double with the bits `wide`."""
    if wide >> 52 & 0x7FF == 0x7FF:
        return wide >> 63 << 31 | 0xFF << 23 | wide >> 29 & 0x7FFFFF
    (value,) = struct.unpack(">d", wide.to_bytes(8, "big"))
    return int.from_bytes(struct.pack(">f", value), "big")


def splat(text: str, scalar: str, lanes: int) -> str:
    """A constant in every lane."""
    return text if lanes == 1 else f"splat ({scalar} {text})"
