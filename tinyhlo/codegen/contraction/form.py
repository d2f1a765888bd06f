"""In which type a contraction multiplies, and how many neighbours along the depth at once.

In: a Contraction, the type of its sum, the Target. Out: a Form, or None where no tile exists.

    f32 x f32 -> f32     Form(f32, f32)       a multiply-add a lane
    i8  x i8  -> i32     Form(i16, i32, 2)    each lane adds the products of a pair (vpmaddwd)

Pairs are exact: integers wrap around, so only the low bits of operands and products matter. A
product of two values of 16 bits fits 32, and the sum of two wraps as the sum of the whole does.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinyhlo.ir.contraction import Contraction
from tinyhlo.ir.dtypes import BOOL, F32, F64, I8, I16, I32, U8, DType
from tinyhlo.ir.graph import VIEWS, Constant, Elementwise, Node, Pad
from tinyhlo.ir.ops import Op
from tinyhlo.target import Target

FITS_I16 = (BOOL, I8, U8, I16)


@dataclass(frozen=True, slots=True)
class Form:
    """Packed operands are of type `operand`; a lane multiplies `group` neighbours along the depth
    by as many and adds the products to a sum of type `sums`."""

    operand: DType
    sums: DType
    group: int = 1

    def __str__(self) -> str:
        return f"{self.group} {self.operand} at once"


PAIRS = Form(I16, I32, 2)


def find_form(c: Contraction, dtype: DType, target: Target) -> Form | None:
    if dtype in (F32, F64):
        return Form(dtype, dtype)
    if not dtype.is_integer or dtype is BOOL:
        return None
    low_bits = dtype.bits <= 16 or (dtype.bits == 32 and fits(c.left) and fits(c.right))
    return PAIRS if target.int16_dot and low_bits else Form(dtype, dtype)


def fits(node: Node) -> bool:
    """Whether all values of an operand are known to fit i16."""
    if node.dtype in FITS_I16:
        return True
    match node:
        case Constant(value=value):
            low, high = -(1 << 15), (1 << 15) - 1
            return node.type.size == 1 and bool(low <= value.item() <= high)
        case Pad(inputs=(source, fill)):
            return fits(source) and fits(fill)
        case Elementwise(op=Op.CAST, inputs=(source,)):
            return source.dtype.is_integer and fits(source)
        case _:
            return isinstance(node, VIEWS) and fits(node.inputs[0])
