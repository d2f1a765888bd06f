"""exp, expm1 and tanh as primitives.

All rest on one reduction: x = n log(2) + r, |r| <= log(2)/2, e^x = 2^n e^r. Adding `MAGIC`
rounds to an integer and leaves it in the low bits of the sum, from where a shift moves it into an
exponent (Muller et al., Handbook of Floating-Point Arithmetic, on range reduction).
"""

from __future__ import annotations

from collections.abc import Callable
from math import log

from tinyhlo.codegen.expressions import where
from tinyhlo.codegen.math.tables import (
    EXP_F32,
    EXP_F64,
    EXPM1_F32,
    EXPM1_F64,
    LN2,
    SHORT_EXPM1,
    SHORT_F32,
    SHORT_F64,
    TANH_F32,
    TANH_POLYNOMIAL,
    Table,
)
from tinyhlo.codegen.math.terms import MAGIC, Term, paired, polynomial, rarely
from tinyhlo.ir.dtypes import F32, F64, DType
from tinyhlo.ir.ops import Op
from tinyhlo.records import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """Numbers of a float type. exp is denormal below `denormal`, 0 below `zero`, both of its
    factors are from `low` down, and it is infinite above `high`; expm1 is -1 below `minus_one` and
    x up to `tiny`, tanh is 1 from `saturated` on."""

    exp: Table
    short: Table
    expm1: Table
    denormal: float
    zero: float
    low: float
    high: float
    minus_one: float
    tiny: float
    saturated: float


FORMATS: dict[DType, Format] = {
    F32: Format(
        EXP_F32, SHORT_F32, EXPM1_F32, -87.33654, -104.0, -176.0, 89.0, -18.0, 2.0**-25, 9.2,
    ),
    F64: Format(
        EXP_F64, SHORT_F64, EXPM1_F64, -708.396418532264, -745.2, -1418.0, 710.0, -40.0,
        2.0**-54, 20.0,
    ),
}  # fmt: skip


def reduce(x: Term, biases: int, offset: int = 0) -> tuple[Term, Term]:
    """(an integer with n + offset and so many exponent biases in its low bits, r)."""
    magic = MAGIC[x.dtype] + (biases * x.dtype.exponent_bias + offset)
    shifted = x.fma(1 / log(2), magic)
    return shifted.as_integer(), rest(x, shifted - magic)


def rest(x: Term, n: Term) -> Term:
    """x - n log(2)."""
    high, low = LN2[x.dtype]
    return n.fma(-low, n.fma(-high, x))


def power_of_two(exponent: Term, dtype: DType) -> Term:
    """From an integer with a biased exponent in its low bits; the bits above fall off."""
    return (exponent << dtype.mantissa_bits).as_float(dtype)


def less_one(r: Term, table: Table) -> Term:
    """e^r - 1 of the rest of a reduction."""
    return paired(r, table).fma(r * r, r)


def exp(x: Term) -> Term:
    """At `low` both factors are zero: what a mask hid costs no denormal arithmetic, which is
    slow."""
    form = FORMATS[x.dtype]
    return exp_by_factors(x.at_least(form.low).at_most(form.high))


def exp_by_factors(x: Term) -> Term:
    """2^n in two factors, so that results may overflow or be denormal with one rounding."""
    return in_two_factors(*reduce(x, biases=2))


def in_two_factors(integer: Term, r: Term) -> Term:
    """2^n e^r, from an integer with n and two exponent biases in its low bits."""
    value, scale = two_factors(integer, r)
    return value * scale


def two_factors(integer: Term, r: Term) -> tuple[Term, Term]:
    """The same as factors."""
    half = integer.arithmetic_shift(1)
    first = power_of_two(half, r.dtype)
    second = power_of_two(integer - half, r.dtype)
    return less_one(r, FORMATS[r.dtype].exp).fma(first, first), second


def exp_scaled(x: Term) -> Term:
    """The same where instructions scale and look up. Results below all numbers are left out: a
    mask of the instruction, which would take its time to round them to zero."""
    form = FORMATS[x.dtype]
    limited = x.at_most(form.high)
    return where(limited < form.zero, x.constant(0.0), exp_by_roots(limited))


def exp_by_roots(x: Term) -> Term:
    """One instruction multiplies by 2^n and another looks 2^(n/16) up: what is left is up to
    log(2)/32, for which half of the polynomial is enough."""
    form = FORMATS[x.dtype]
    magic = MAGIC[x.dtype] / 16
    shifted = x.fma(1 / log(2), magic)
    n = shifted - magic  # in sixteenths
    part = shifted.as_integer()
    root = part.looked_up(Op.SIXTEENTHS, x.dtype)
    q = less_one(rest(x, n), form.short)
    if x.dtype is F64:  # roots are rounded by up to 0.48 units
        value = q.fma(root, part.looked_up(Op.SIXTEENTHS_REST, F64)) + root
    else:
        value = q.fma(root, root)
    return value.scaled(n)


def exp_of_normals(x: Term, normal: Callable[[Term], Term] = exp_by_factors) -> Term:
    """exp where an instruction that meets a denormal number takes a hundred cycles: such results
    are computed apart."""
    form = FORMATS[x.dtype]
    usual = normal(x.at_least(form.denormal).at_most(form.high))
    return rarely(x < form.denormal, "denormal_exp", denormal_exp, (x,), usual)


def exp_of_normals_scaled(x: Term) -> Term:
    return exp_of_normals(x, exp_by_roots)


def denormal_exp(x: Term) -> Term:
    """exp whose result is denormal or zero: the least normal number, whose last bit is worth what
    theirs is, is added, and subtracted as an integer."""
    form = FORMATS[x.dtype]
    value, scale = two_factors(*reduce(x.at_least(form.low), biases=2))
    least = x.constant(2.0 ** (1 - x.dtype.exponent_bias))
    return (value.fma(scale, least).as_integer() - least.as_integer()).as_float(x.dtype)


def expm1(x: Term) -> Term:
    """2 (2^(n-1) q + (2^(n-1) - 1/2)), q = e^r - 1: half the power cannot overflow."""
    form = FORMATS[x.dtype]
    tiny = abs(x) < form.tiny  # x itself; powers of it would be denormal
    limited = x.at_least(form.minus_one).at_most(form.high)
    integer, r = reduce(where(tiny, x.constant(0.0), limited), biases=1, offset=-1)
    if x.dtype is F64:  # no reduction up to 1/2, which would cost half a unit of accuracy
        near = abs(x) < 0.5
        integer = where(near, integer.constant(F64.exponent_bias - 1), integer)
        r = where(near, x, r)
    q = less_one(r, form.expm1)
    half_power = power_of_two(integer, x.dtype)
    value = half_power.fma(q, half_power - 0.5)
    return where(tiny, x, value + value)


def expm1_scaled(x: Term) -> Term:
    """The same in f64 where instructions scale and look up."""
    if x.dtype is F32:
        return expm1(x)
    form = FORMATS[F64]
    value = expm1_by_roots(x.at_least(form.minus_one).at_most(form.high))
    return where(abs(x) < form.tiny, x, value)


def expm1_by_roots(x: Term) -> Term:
    """2 ((2^(n-1) - 1/2) + 2^(n-1) q) with 2^n from a table and what rounding it took off. Up to
    1/16 there is no reduction: the difference would lose half of its digits."""
    magic = MAGIC[F64] / 16
    near = abs(x) < 1 / 16
    shifted = where(near, x.constant(magic), x.fma(1 / log(2), magic))
    n = shifted - magic
    part = shifted.as_integer()
    root, lost = (part.looked_up(op, F64) for op in (Op.SIXTEENTHS, Op.SIXTEENTHS_REST))
    q = less_one(rest(x, n), SHORT_EXPM1)
    half = (root.scaled(n - 1.0) - 0.5) + q.fma(root, lost).scaled(n - 1.0)
    return half + half


def tanh_scaled(x: Term) -> Term:
    return tanh(x, expm1_by_roots)


def tanh(x: Term, expm1: Callable[[Term], Term] = expm1) -> Term:
    """t / (t + 2), t = e^(2 |x|) - 1. Below 1/4 its three roundings are more than a unit of the
    result: in f32 a polynomial is better there, in f64 what the sum lost is made up for."""
    form = FORMATS[x.dtype]
    size = abs(x)
    limited = size.at_most(form.saturated)
    if x.dtype is F64:
        t = expm1(limited + limited)
        total = t + 2.0
        inverse = 1.0 / total  # one division: what is lost with the quotient is made up for, too
        quotient = t * inverse
        lost = t - (total - 2.0)
        error = (-quotient).fma(total, t) - quotient * lost
        return error.fma(inverse, quotient).with_sign(x.sign())
    integer, r = reduce(limited + limited, biases=1)
    scale = power_of_two(integer, x.dtype)
    t = less_one(r, form.exp).fma(scale, scale - 1.0)
    square = size * size
    small = (polynomial(square, TANH_F32) * square).fma(size, size)
    return where(size < TANH_POLYNOMIAL, small, t / (t + 2.0)).with_sign(x.sign())
