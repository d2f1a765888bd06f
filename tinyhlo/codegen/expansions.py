"""The expansion of transcendental ops into primitives, where there is one."""

from __future__ import annotations

from tinyhlo.codegen.expressions import Expression
from tinyhlo.codegen.target import Target
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.ops import Op


def expand(
    op: Op, arguments: tuple[Expression, ...], dtype: DType, target: Target
) -> Expression | None:
    """`op` as an expression of primitives; None when the library function is called instead."""
    try:
        from tinyhlo.codegen import math
    except ImportError:
        return None
    return math.expand(op, arguments, dtype, target)
