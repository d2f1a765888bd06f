"""Powers without f64, for devices that have none."""

from __future__ import annotations

from math import inf, nan

from tinyhlo.codegen.expressions import Expression, apply, where
from tinyhlo.ir.dtypes import F32, I32
from tinyhlo.ir.ops import Op


def power(x: Expression, y: Expression) -> Expression:
    """e^(y log|x|) in f32, with what rounded the product off: within a few units for results up to
    e^10, and some ten near the ends."""
    logarithm = apply(Op.LOG, (abs(x),), F32)
    product = where(logarithm.equals(0.0), logarithm, logarithm * y)
    rest = apply(Op.FMA, (logarithm, y, -product), F32)
    exact = logarithm.equals(0.0) | ~(abs(product) < 100.0)
    rest = where(exact, rest.constant(0.0), rest)
    size = apply(Op.EXP, (product,), F32)
    size = where(abs(product) < 100.0, apply(Op.FMA, (size, rest, size), F32), size)
    half = y * 0.5
    integral = apply(Op.TRUNC, (y,), F32).equals(y)
    odd = integral & apply(Op.TRUNC, (half,), F32).differs(half)
    negative = apply(Op.BITCAST, (x,), I32) < 0
    signed = where(odd & negative, -size, size)
    finite_negative = (x < 0.0) & (x > -inf)
    real = where(finite_negative & ~integral, x.constant(nan), signed)
    return where(y.equals(0.0) | x.equals(1.0), x.constant(1.0), real)
