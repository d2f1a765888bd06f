"""Functions of a complex number, from real functions of its parts.

    exp(x)  ->  e**re * (cos im + i sin im)

log, log1p and sqrt are expanded by jaxlib before they come here (`chlo.py`), as are the functions
of CHLO but cosh and sinh. Source of tanh: Kahan, "Branch cuts for complex elementary functions",
1987.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tinyhlo.import_stablehlo.families.special_functions import hyperbolic
from tinyhlo.import_stablehlo.lifted.complex_numbers import Complex, choose
from tinyhlo.import_stablehlo.operands import copy_sign, is_infinite, is_nan, known_scalar
from tinyhlo.import_stablehlo.walker import Rule, on_values
from tinyhlo.ir.build import atan2, cos, elementwise, exp, expm1, log, sin, sqrt, tan, where
from tinyhlo.ir.graph import Node
from tinyhlo.ir.ops import Op

Function = Callable[[Complex], Complex]


def is_zero(x: Node) -> Node:
    return x.equals(0)


def exponential(x: Complex) -> Complex:
    """In two halves, so that the size may overflow only where the result does; a zero imaginary
    part stays zero whatever the size."""
    half, whole = exp(x.re * 0.5), exp(x.re)
    in_range = whole < np.inf

    def scaled(direction: Node) -> Node:
        return where(in_range, whole * direction, half * direction * half)

    found = Complex(scaled(cos(x.im)), scaled(sin(x.im)))
    found = choose(is_zero(x.im), Complex(whole, x.im), found)
    # exp(-inf + i anything) is 0, exp(+inf + i inf) is inf + i NaN
    unbounded = is_infinite(x.im) | is_nan(x.im)
    found = choose(x.re.equals(-np.inf) & unbounded, x.constant(0), found)
    return Complex(where(x.re.equals(np.inf) & unbounded, np.inf, found.re), found.im)


def exponential_minus_one(x: Complex) -> Complex:
    """expm1(a) cos b - 2 sin(b/2)**2 + i e**a sin b."""
    half_sine = sin(x.im * 0.5)
    minus = expm1(x.re)
    lost = 2 * (half_sine * half_sine)
    re = minus * cos(x.im) - lost
    re = where(is_zero(x.im) | x.re.equals(-np.inf), minus, re)
    # far from zero the difference to exp is below rounding
    plain, undefined = exponential(x), x.im.constant(np.nan)
    found = Complex(where(x.re > 40, plain.re, re), plain.im)
    return choose(is_infinite(x.im), Complex(undefined, undefined), found)


def times(factor: Node, size: Node) -> Node:
    """factor * size, where a factor of zero gives zero even when the size is infinite or NaN."""
    unbounded = is_infinite(size) | is_nan(size)
    side = where(size < 0, size.constant(-1), 1)
    return factor * where(is_zero(factor) & unbounded, side, size)


def sine(x: Complex) -> Complex:
    cosh, sinh = hyperbolic(x.im)
    return Complex(times(sin(x.re), cosh), times_either(cos(x.re), sinh))


def cosine(x: Complex) -> Complex:
    cosh, sinh = hyperbolic(x.im)
    return Complex(times(cos(x.re), cosh), -times_either(sin(x.re), sinh))


def hyperbolic_cosine(x: Complex) -> Complex:
    """cosh z = cos iz."""
    return cosine(x.turned())


def quarter_turned(function: Function) -> Function:
    """-i f(iz): sinh of sin, tan of tanh."""

    def rule(x: Complex) -> Complex:
        found = function(x.turned())
        return Complex(found.im, -found.re)

    return rule


def times_either(factor: Node, size: Node) -> Node:
    """As `times`, but a size of zero gives zero even when the factor is NaN."""
    undefined = is_zero(size) & is_nan(factor)
    return where(undefined, size, times(factor, size))


def tanh(x: Complex) -> Complex:
    """Kahan's formulas, with 1 where sinh would overflow."""
    a, b = x.planes
    one = a.constant(1)
    limit = math.log(float(np.finfo(a.dtype.numpy).max)) / 4
    is_far = limit < abs(a)
    near = where(is_far, 0, a)
    t = tan(b)
    _, s = hyperbolic(near)
    beta = one + t * t
    rho = sqrt(one + s * s)
    scale = one + beta * (s * s)
    re, im = beta * rho * s / scale, t / scale
    tail = exp(-2 * abs(a))
    slope = 4 * (sin(b) * cos(b)) * tail
    # at infinite a the value is +-1 whatever b; at finite a an infinite b has no angle
    unbounded, endless = is_infinite(b) | is_nan(b), is_infinite(a)
    slope = where(unbounded & endless, copy_sign(a.constant(0), b), slope)
    side = where(unbounded & ~endless, slope, copy_sign(one, a))
    im = where(is_zero(b), b, where(is_far, slope, im))  # also where a is NaN
    return Complex(where(is_far, side, re), im)


def logistic(x: Complex) -> Complex:
    """1 / (1 + exp(-z))."""
    grown = exponential(-x)
    return x.constant(1) / Complex(grown.re + 1, grown.im)


def sign(x: Complex) -> Complex:
    """z / |z|, and 0 for 0."""
    size = abs(x)
    return choose(is_zero(size), x.constant(0), Complex(x.re / size, x.im / size))


def reciprocal_root(x: Complex) -> Complex:
    """|z|**-1/2 at half the opposite angle."""
    size, angle = 1 / sqrt(abs(x)), atan2(x.im, x.re) * -0.5
    return Complex(size * cos(angle), times(sin(angle), size))


def power(x: Complex, y: Complex) -> Complex:
    """|x|**c e**(-d arg x) at the angle c arg x + d log |x|, for y = c + i d."""
    zero, one = x.constant(0), x.constant(1)
    match [None if known is None else float(known) for known in map(known_scalar, y.planes)]:
        case [1.0, 0.0]:
            return x
        case [2.0, 0.0]:
            return x * x
        case [-1.0, 0.0]:
            return one / x
    size, angle = abs(x), atan2(x.im, x.re)
    grown = elementwise(Op.POW, size, y.re) * exp(-(y.im * angle))
    turned = y.re * angle + where(is_zero(y.im), 0, y.im * log(size))
    found = Complex(grown * cos(turned), times(sin(turned), grown))
    positive = (zero.re < y.re) & is_zero(y.im)
    found = choose(x.equals(zero) & positive, zero, found)
    return choose(x.equals(one) | y.equals(zero), one, found)


def arc_tangent(y: Complex, x: Complex) -> Complex:
    """atan2(y, x) = -i log((x + i y) / sqrt(x**2 + y**2)), by real parts when both are real."""
    squares, top = x * x + y * y, Complex(x.re - y.im, x.im + y.re)
    angle, size = atan2(squares.im, squares.re), log(abs(squares))
    turned = atan2(top.im, top.re) - 0.5 * angle
    half = float(turned.dtype.numpy.type(np.pi))  # of real operands the angle is at most this
    turned = where(turned > half, turned - 2 * half, turned)
    turned = where(turned < -half, turned + 2 * half, turned)
    return Complex(turned, 0.5 * size - log(abs(top)))


RULES: dict[str, Rule] = {
    "stablehlo.exponential": on_values(exponential),
    "stablehlo.exponential_minus_one": on_values(exponential_minus_one),
    "stablehlo.sine": on_values(sine),
    "stablehlo.cosine": on_values(cosine),
    "chlo.cosh": on_values(hyperbolic_cosine),
    "chlo.sinh": on_values(quarter_turned(sine)),
    "stablehlo.tan": on_values(quarter_turned(tanh)),
    "stablehlo.tanh": on_values(tanh),
    "stablehlo.logistic": on_values(logistic),
    "stablehlo.sign": on_values(sign),
    "stablehlo.rsqrt": on_values(reciprocal_root),
    "stablehlo.power": on_values(power),
    "stablehlo.atan2": on_values(arc_tangent),
}
