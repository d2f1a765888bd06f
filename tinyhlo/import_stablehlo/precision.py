"""How exact the products of a dot or a convolution must be: which op multiplies.

    precision = [HIGH, HIGH]                          ->  mul_tf32
    algorithm = <lhs_precision_type = tf32, ..>       ->  mul_tf32, or mul_tf32x3 of three products
    precision = [DEFAULT, DEFAULT]                    ->  mul, mul_tf32 where the user allows it
    precision = [HIGHEST, HIGHEST]                    ->  mul

TF32 is f32 with 10 bits behind the point rather than 23. JAX says of `HIGH` that it is that on
GPUs which have it; elsewhere a product of f32 is one of f32, whatever is asked.
"""

from __future__ import annotations

from enum import IntEnum

from tinyhlo.import_stablehlo.records import Operation
from tinyhlo.ir.dtypes import F32
from tinyhlo.ir.graph import Node
from tinyhlo.ir.ops import Op
from tinyhlo.target import Target


class Tf32(IntEnum):
    """Which products may take TF32 of their factors."""

    NONE = 0  # the device has no instruction for it
    ASKED = 1  # those of a program that says so
    DEFAULT = 2  # and those of which it asks nothing


def tf32_of(target: Target, allowed: bool) -> Tf32:
    """For a device; `allowed`: the user takes it for products of default precision."""
    if not target.has_tf32:
        return Tf32.NONE
    return Tf32.DEFAULT if allowed else Tf32.ASKED


def multiplication_of(operation: Operation, left: Node, right: Node, tf32: Tf32) -> Op:
    """What multiplies two operands. Floats of 16 bits are exact in TF32 as they are."""
    if tf32 is Tf32.NONE or F32 not in (left.dtype, right.dtype):
        return Op.MUL
    algorithm = operation.attributes.get("algorithm")
    if algorithm is not None:
        return by_algorithm(str(algorithm))
    asked: tuple[str, ...] = operation.attributes.get("precision_config") or ()
    if "HIGHEST" in asked:
        return Op.MUL
    return Op.MUL_TF32 if "HIGH" in asked or tf32 is Tf32.DEFAULT else Op.MUL


def by_algorithm(text: str) -> Op:
    """Of `#stablehlo.dot_algorithm<..>`, which the bindings do not take apart."""
    if "lhs_precision_type = tf32" not in text:
        return Op.MUL
    return Op.MUL_TF32X3 if "num_primitive_operations = 3" in text else Op.MUL_TF32
