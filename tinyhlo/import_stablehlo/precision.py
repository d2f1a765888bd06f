"""How exact the products of a dot or a convolution must be: what is multiplied, and which op does.

    precision = [HIGH, HIGH]                          ->  mul_tf32
    algorithm = <lhs_precision_type = tf32, ..>       ->  mul_tf32, or mul_tf32x3 of three products
    algorithm = <lhs_precision_type = bf16, ..>       ->  mul, of factors that are rounded to bf16
    precision = [DEFAULT, DEFAULT]                    ->  mul, mul_tf32 where the user allows it
    precision = [HIGHEST, HIGHEST]                    ->  mul

TF32 is f32 with 10 bits behind the point rather than 23. JAX says of `HIGH` that it is that on
GPUs which have it; elsewhere a product of f32 is one of f32, whatever is asked. Algorithms that ask
for bf16 are followed where products of bf16 are faster; those that add several such products up
are one product of f32, which is more exact.
"""

from __future__ import annotations

from enum import IntEnum

from tinyhlo.import_stablehlo.records import Operation
from tinyhlo.ir.build import cast
from tinyhlo.ir.dtypes import BF16, F32
from tinyhlo.ir.graph import Node
from tinyhlo.ir.ops import Op
from tinyhlo.target import MMA, Target

PAIRS = f"{BF16} {BF16}"


class Rounded(IntEnum):
    """Which products of f32 may take less of their factors, on a device."""

    NONE = 0  # it has no instruction that would be faster
    TF32 = 1  # those of a program that asks for TF32
    TF32_DEFAULT = 2  # and those of which it asks nothing
    BF16 = 3  # those of a program that asks for bf16


def rounded_of(target: Target, allowed: bool) -> Rounded:
    """For a device; `allowed`: the user takes TF32 for products of default precision."""
    if target.has(MMA):
        return Rounded.TF32_DEFAULT if allowed else Rounded.TF32
    return Rounded.BF16 if PAIRS in (*target.dots, *target.matrices) else Rounded.NONE


def factors_of(
    operation: Operation, left: Node, right: Node, rounded: Rounded
) -> tuple[Node, Node]:
    """The operands as they are multiplied."""
    algorithm = str(operation.attributes.get("algorithm"))
    once = "lhs_precision_type = bf16" in algorithm and "num_primitive_operations = 1" in algorithm
    if rounded is not Rounded.BF16 or not once or not left.dtype is right.dtype is F32:
        return left, right
    return cast(cast(left, BF16), F32), cast(cast(right, BF16), F32)


def multiplication_of(operation: Operation, left: Node, right: Node, rounded: Rounded) -> Op:
    """What multiplies two operands. Floats of 16 bits are exact in TF32 as they are."""
    if rounded in (Rounded.NONE, Rounded.BF16) or F32 not in (left.dtype, right.dtype):
        return Op.MUL
    algorithm = operation.attributes.get("algorithm")
    if algorithm is not None:
        return by_algorithm(str(algorithm))
    asked: tuple[str, ...] = operation.attributes.get("precision_config") or ()
    if "HIGHEST" in asked:
        return Op.MUL
    return Op.MUL_TF32 if "HIGH" in asked or rounded is Rounded.TF32_DEFAULT else Op.MUL


def by_algorithm(text: str) -> Op:
    """Of `#stablehlo.dot_algorithm<..>`, which the bindings do not take apart."""
    if "lhs_precision_type = tf32" not in text:
        return Op.MUL
    return Op.MUL_TF32X3 if "num_primitive_operations = 3" in text else Op.MUL_TF32
