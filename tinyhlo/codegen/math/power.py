"""pow as primitives: e^(y log|x|), by more digits of the logarithm than the result has.

f32                    by way of f64, whose 29 spare bits absorb the multiplication by y
f64                    in pairs of numbers, high + low, the low one what rounding took off
f32 on devices of f32  with what rounded the product off
"""

from __future__ import annotations

from math import inf, log, nan

from tinyhlo.codegen.expressions import apply, where
from tinyhlo.codegen.math.exponential import FORMATS, in_two_factors, power_of_two, rest
from tinyhlo.codegen.math.logarithm import split, split_any, to_float
from tinyhlo.codegen.math.tables import EXP_F32, LN2, LOG_F64, LONG_LOG_F64
from tinyhlo.codegen.math.terms import MAGIC, Term, paired, polynomial
from tinyhlo.ir.dtypes import F32, F64
from tinyhlo.ir.ops import Op

Pair = tuple[Term, Term]  # high + low


def power(x: Term, y: Term) -> Term:
    size = by_wide(abs(x), y) if x.dtype is F32 else by_pairs(abs(x), y)
    return of_any_base(x, y, size)


def narrow_power(x: Term, y: Term) -> Term:
    """Without f64: within a few units for results up to e^10, and some ten near the ends."""
    logarithm = apply(Op.LOG, (abs(x),), F32)
    product = where(logarithm.equals(0.0), logarithm, logarithm * y)
    lost = logarithm.fma(y, -product)
    exact = logarithm.equals(0.0) | ~(abs(product) < 100.0)
    size = apply(Op.EXP, (product,), F32)
    return of_any_base(x, y, where(exact, size, size.fma(lost, size)))


def of_any_base(x: Term, y: Term, size: Term) -> Term:
    """x^y from |x|^y: odd powers keep the sign of x, others than integers of what is negative
    are NaN, and x^0 is 1."""
    half = y * 0.5
    integral = y.trunc().equals(y)
    odd = integral & half.trunc().differs(half)
    signed = where(odd, size.flip_sign(x.sign()), size)
    finite_negative = (x < 0.0) & (x > -inf)
    real = where(finite_negative, where(integral, signed, x.constant(nan)), signed)
    return where(y.equals(0.0), x.constant(1.0), real)


def by_wide(x: Term, y: Term) -> Term:
    """x^y of f32, x not negative."""
    logarithm = log2_of_magnitude(x)
    product = where(logarithm.equals(0.0), logarithm, logarithm * y.cast(F64))
    limited = product.at_least(-200.0).at_most(200.0)
    magic = MAGIC[F64] + F64.exponent_bias
    shifted = limited + magic
    r = (limited - (shifted - magic)) * log(2)
    scale = power_of_two(shifted.as_integer(), F64)
    return (polynomial(r, (1.0, 1.0, *EXP_F32)) * scale).cast(F32)


def log2_of_magnitude(x: Term) -> Term:
    """log2 of an f32 that is not negative, in f64 to about 2^-48; -inf, inf and NaN as usual."""
    wide = x.cast(F64)
    exponent, m = split(wide)
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    natural = (z * polynomial(z, LOG_F64) + 2.0) * s
    value = natural.fma(1 / log(2), to_float(exponent, F64))
    return where(wide < inf, where(wide > 0.0, value, wide.constant(-inf)), wide)


def by_pairs(x: Term, y: Term) -> Term:
    """x^y of f64, x not negative. The product with y is up to 745, so the logarithm has to be
    right to 2^-64 of it; what the product is short of joins the rest of e's reduction."""
    form = FORMATS[F64]
    high, low = log_in_two(x)
    factor = where(high.equals(0.0), y.constant(0.0), y)  # 1^inf is 1
    product = high * factor
    lost = low.fma(factor, high.fma(factor, -product))
    limited = product.at_least(form.low).at_most(form.high)
    magic = MAGIC[F64] + 2 * F64.exponent_bias
    shifted = limited.fma(1 / log(2), magic)
    integer = shifted.as_integer()
    r = rest(limited, shifted - magic) + where(limited.equals(product), lost, lost.constant(0.0))
    return in_two_factors(integer, r)


def log_in_two(x: Term) -> Pair:
    """log of an f64 that is not negative, to about 2^-65 of it; -inf, inf and NaN as usual.

    log m = 2 s + w (2/3 + z Q(z)), s = f / (2 + f), f = m - 1, z = s^2, w = s^3: all but Q in
    pairs."""
    number, m = split_any(x)
    f = m - 1.0
    total = f + 2.0
    inverse = 1.0 / total
    s = f * inverse
    remainder = (-s).fma(total, f) - s * (f - (total - 2.0))
    s_low = remainder * inverse
    z, z_low = product_of((s, s_low), (s, s_low))
    w = product_of((z, z_low), (s, s_low))
    two_thirds = s.constant(2 / 3), s.constant(2**-54 * 2 / 3)  # 2/3 rounds down
    factor = sum_of(two_thirds, (z * paired(z, LONG_LOG_F64), s.constant(0.0)))
    of_m = sum_of((s + s, s_low + s_low), product_of(w, factor))
    of_two = number * LN2[F64][0], number * LN2[F64][1]  # the first has zeros at its end: exact
    high, low = sum_of(of_two, of_m)
    usual = high + low
    value = where(x < inf, where(x > 0.0, usual, x.constant(-inf)), x)
    return value, low - (usual - high)


def product_of(a: Pair, b: Pair) -> Pair:
    (x, x_low), (y, y_low) = a, b
    high = x * y
    return high, x.fma(y, -high) + x.fma(y_low, x_low * y)


def sum_of(a: Pair, b: Pair) -> Pair:
    """Of a that is larger than b, or nothing."""
    (x, x_low), (y, y_low) = a, b
    high = x + y
    return high, (y - (high - x)) + (x_low + y_low)
