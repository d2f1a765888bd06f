"""erf and erfc as primitives, by the reduction of `exponential.py`.

erf(x)  = 1 - e^p, p = log(erfc |x|) by a polynomial
erfc(x) = e^(-x^2) h(t) / (x + PIVOT), t = (x - PIVOT) / (x + PIVOT), h by a polynomial
"""

from __future__ import annotations

from tinyhlo.codegen.expressions import where
from tinyhlo.codegen.math.exponential import FORMATS, less_one, power_of_two, reduce
from tinyhlo.codegen.math.tables import ERF_F32, ERF_F64, ERFC_F32, ERFC_F64, ERFC_PIVOT
from tinyhlo.codegen.math.terms import Term, paired, polynomial
from tinyhlo.ir.dtypes import F32, F64

ERF = {F32: (ERF_F32, 4.0), F64: (ERF_F64, 6.0)}  # the polynomial, where erf rounds to 1
ERFC = {F32: (ERFC_F32, 10.1), F64: (ERFC_F64, 27.3)}  # the polynomial, where erfc rounds to 0


def erf(x: Term) -> Term:
    """-(e^p - 1) for p = log(erfc |x|) = x P(x) - x, which is as exact near 0 as further out. What
    the rounding of p lost is small next to it, and joins e^p - 1."""
    table, end = ERF[x.dtype]
    size = abs(x).at_most(end)
    factor = polynomial(size, table)
    p = size.fma(factor, -size)
    lost = size.fma(factor, -(p + size))
    integer, r = reduce(p, biases=1)
    scale = power_of_two(integer, x.dtype)
    q = r + paired(r, FORMATS[x.dtype].exp).fma(r * r, lost)
    value = (-scale).fma(q, x.constant(1.0) - scale)
    return value.with_sign(x.sign())


def erfc(x: Term) -> Term:
    """Of |x|, taken from 2 for negative x. What the square, the sum in the divisor and its
    reciprocal lose is small next to them, and joins the exponent."""
    table, end = ERFC[x.dtype]
    size = abs(x).at_most(end)
    square = size * size
    total = size + ERFC_PIVOT
    reciprocal = 1.0 / total
    lost = size - (total - ERFC_PIVOT)
    late = (-reciprocal).fma(lost, (-reciprocal).fma(total, x.constant(1.0)))
    late = late - size.fma(size, -square)
    integer, r = reduce(-square, biases=2)
    half = integer.arithmetic_shift(1)
    slope = polynomial((size - ERFC_PIVOT) * reciprocal, table) * reciprocal
    scaled = slope * power_of_two(half, x.dtype)
    grown = less_one(r + late, FORMATS[x.dtype].exp).fma(scaled, scaled)
    rest = where(size < end, power_of_two(integer - half, x.dtype), x.constant(0.0))
    tail = grown * rest
    return where(x < 0.0, 2.0 - tail, tail)
