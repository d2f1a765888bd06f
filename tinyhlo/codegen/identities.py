"""The neutral element of each reduce monoid, per element type."""

from __future__ import annotations

import numpy as np

from tinyhlo.codegen.expressions import Literal, literal
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.ops import Op


def identity(op: Op, dtype: DType) -> Literal:
    """e with op(e, x) == x for every x of `dtype`: -inf for float max. Sums start at +0, which -0
    must meet: a sum of nothing, or of nothing but -0, is +0."""
    match op:
        case Op.ADD:
            return literal(0, dtype)
        case Op.MUL:
            return literal(1, dtype)
        case Op.MAX:
            return lowest(dtype)
        case Op.MIN:
            return highest(dtype)
        case Op.AND:
            return Literal(1 if dtype.kind == "bool" else (1 << dtype.bits) - 1, dtype)
        case _:  # OR, XOR
            return Literal(0, dtype)


def lowest(dtype: DType) -> Literal:
    if dtype.is_float:
        return literal(-np.inf, dtype)
    return Literal(1 << (dtype.bits - 1) if dtype.kind == "signed" else 0, dtype)


def highest(dtype: DType) -> Literal:
    if dtype.is_float:
        return literal(np.inf, dtype)
    if dtype.kind == "bool":
        return Literal(1, dtype)
    return Literal((1 << (dtype.bits - (dtype.kind == "signed"))) - 1, dtype)
