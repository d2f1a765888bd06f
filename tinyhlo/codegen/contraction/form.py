"""In which types a contraction multiplies, and how many neighbours along the depth at once.

In: a Contraction, the type of its sum, the Target. Out: a Form, or None where no tile exists.

    f32  x f32  -> f32   Form(f32, f32, f32)            a multiply-add a lane
    bf16 x bf16 -> f32   Form(bf16, bf16, f32, 2)       pairs (vdpbf16ps)
    ui8  x i8   -> i32   Form(ui8, i8, i32, 4)          groups of four (vpdpbusd)
    i8   x i8   -> i32   Form(ui8, i8, i32, 4, 128)     the same of x + 128, less 128 of each column
    i16  x i16  -> i32   Form(i16, i16, i32, 2)         pairs (vpmaddwd)

    bf16 x bf16 -> f32   Form(bf16, bf16, f32, 2, deep=16)  rows of 16 pairs (AMX: tdpbf16ps)
    i8   x ui8  -> i32   Form(i8, ui8, i32, 4, deep=16)     rows of 16 groups (tdpbsud)

Groups of integers are exact: they wrap around, so only the low bits of operands and products
matter. A product of two values of 16 bits fits 32, and the sum of two wraps as the sum of the whole
does; so does the sum of four products of 8 bits.
"""

from __future__ import annotations

from dataclasses import replace

from tinyhlo.ir.contraction import Contraction, is_exact_cast
from tinyhlo.ir.dtypes import BF16, BOOL, F32, F64, I8, I16, I32, U8, DType, is_lossless
from tinyhlo.ir.graph import VIEWS, Constant, Elementwise, Node, Pad
from tinyhlo.ir.ops import Op
from tinyhlo.records import dataclass
from tinyhlo.target import MATRIX_GROUPS, Target

Bounds = tuple[float, float]

FEWEST_ROWS = 8  # that are worth packing both operands for products of matrices
SIGN = 128  # added to a number of 8 bits: it is not negative then


@dataclass(frozen=True, slots=True)
class Form:
    """A tile multiplies `group` neighbours along the depth, of type `left`, by as many of type
    `right` and adds the products to a sum of type `sums`, in every lane. `bias` is added to what
    the left operand holds. More than one group `deep`, the processor multiplies matrices: rows of
    so many groups on the left, so many rows of groups on the right."""

    left: DType
    right: DType
    sums: DType
    group: int = 1
    bias: int = 0
    deep: int = 1

    @property
    def unit(self) -> int:
        """Neighbours along the depth that an instruction takes."""
        return self.group * self.deep

    @property
    def of_matrices(self) -> bool:
        return self.deep > 1

    @property
    def held(self) -> DType:
        """What holds the numbers on the left before the bias is added."""
        return I8 if self.bias else self.left

    @property
    def itemsize(self) -> int:
        """Bytes of an element of either operand."""
        return self.left.itemsize

    def __str__(self) -> str:
        kinds = self.left.name if self.left is self.right else f"{self.left} by {self.right}"
        return f"{self.unit} {kinds} at once"


GROUPS = (
    Form(U8, I8, I32, 4),
    Form(I8, U8, I32, 4),
    Form(I8, I8, I32, 4),
    Form(U8, U8, I32, 4),
    Form(U8, I8, I32, 4, SIGN),
    Form(I16, I16, I32, 2),
)


def find_form(c: Contraction, dtype: DType, target: Target, few: bool) -> Form | None:
    """`few` rows read each element of the right operand too seldom for it to be packed, which
    groups along the depth need."""
    matrices = bool(target.matrices) and c.extent(c.m) >= FEWEST_ROWS
    if dtype.is_float:
        pairs = dtype is F32 and holds_bf16(c.left) and holds_bf16(c.right)
        if pairs and matrices and f"{BF16} {BF16}" in target.matrices:
            return Form(BF16, BF16, F32, 2, deep=MATRIX_GROUPS)
        if pairs and not few and has_dot(target, BF16, BF16):
            return Form(BF16, BF16, F32, 2)
        return Form(dtype, dtype, dtype) if dtype in (F32, F64) else None
    if not dtype.is_integer or dtype is BOOL:
        return None
    left, right = bounds(c.left), bounds(c.right)
    for form in GROUPS:
        held = within(left, form.held) and within(right, form.right) and dtype.bits <= 32
        if not held and dtype.bits > form.left.bits:  # of more bits than that the low ones do
            continue
        if matrices and not form.bias and f"{form.left} {form.right}" in target.matrices:
            return replace(form, deep=MATRIX_GROUPS)
        if has_dot(target, form.left, form.right):
            return form
    return Form(dtype, dtype, dtype)


def has_dot(target: Target, left: DType, right: DType) -> bool:
    """Whether there is an instruction, with either operand first."""
    return f"{left} {right}" in target.dots or f"{right} {left}" in target.dots


def within(values: Bounds, dtype: DType) -> bool:
    """Whether a type holds all values between two bounds."""
    low, high = dtype.bounds
    return low <= values[0] and values[1] <= high


def bounds(node: Node) -> Bounds:
    """Between which numbers all values of an integer operand are known to lie."""
    match node:
        case Constant(value=value) if node.type.size == 1:
            return int(value.item()), int(value.item())
        case Pad(inputs=(source, fill)):
            (low, high), (least, most) = bounds(source), bounds(fill)
            return min(low, least), max(high, most)
        case Elementwise(op=Op.CAST, inputs=(source,)) if not source.dtype.is_float:
            found = bounds(source)
            return found if within(found, node.dtype) else node.dtype.bounds
        case _ if isinstance(node, VIEWS):
            return bounds(node.inputs[0])
        case _:
            return node.dtype.bounds


def holds_bf16(node: Node) -> bool:
    """Whether all values of an operand are known to be values of bf16."""
    match node:
        case Constant(value=value) if node.type.size == 1:
            return bool(value.astype(BF16.numpy) == value)
        case Pad(inputs=(source, fill)):
            return holds_bf16(source) and holds_bf16(fill)
        case Elementwise() if is_exact_cast(node):
            return holds_bf16(node.inputs[0])
        case _ if isinstance(node, VIEWS):
            return holds_bf16(node.inputs[0])
        case _:
            return node.dtype is not BOOL and is_lossless(node.dtype, BF16)
