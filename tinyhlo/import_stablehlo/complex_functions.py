"""Functions of a complex number, from real functions of its parts.

    exp(x)  ->  e**re * (cos im + i sin im)

log, log1p and sqrt are expanded by jaxlib before they come here (`chlo.py`), as are the functions
of CHLO but cosh. Source of tanh: Kahan, "Branch cuts for complex elementary functions", 1987.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tinyhlo.import_stablehlo.complex_arithmetic import (
    add,
    all_hold,
    any_holds,
    choose,
    copy_sign,
    div,
    equal,
    is_infinite,
    is_nan,
    magnitude,
    mul,
    neg,
    on_values,
    quotient,
    sub,
)
from tinyhlo.import_stablehlo.lifting import Complex
from tinyhlo.import_stablehlo.operands import like
from tinyhlo.import_stablehlo.walker import Rule
from tinyhlo.ir.build import elementwise, where
from tinyhlo.ir.graph import Node
from tinyhlo.ir.ops import Op

Function = Callable[[Complex], Complex]


def real_exp(x: Node) -> Node:
    return elementwise(Op.EXP, x)


def is_zero(x: Node) -> Node:
    return elementwise(Op.EQ, x, like(0, x))


def exponential(x: Complex) -> Complex:
    """In two halves, so that the size may overflow only where the result does; a zero imaginary
    part stays zero whatever the size."""
    half = real_exp(mul(x.re, like(0.5, x.re)))
    whole = real_exp(x.re)
    in_range = elementwise(Op.LT, whole, like(np.inf, whole))

    def scaled(direction: Node) -> Node:
        return where(in_range, mul(whole, direction), mul(mul(half, direction), half))

    re, im = scaled(elementwise(Op.COS, x.im)), scaled(elementwise(Op.SIN, x.im))
    real = is_zero(x.im)
    re, im = where(real, whole, re), where(real, x.im, im)
    # exp(-inf + i anything) is 0, exp(+inf + i inf) is inf + i NaN
    vanishing = elementwise(Op.EQ, x.re, like(-np.inf, x.re))
    unbounded = any_holds(is_infinite(x.im), is_nan(x.im))
    re = where(all_hold(vanishing, unbounded), like(0, re), re)
    im = where(all_hold(vanishing, unbounded), like(0, im), im)
    infinite = elementwise(Op.EQ, x.re, like(np.inf, x.re))
    re = where(all_hold(infinite, unbounded), like(np.inf, re), re)
    return Complex(re, im)


def exponential_minus_one(x: Complex) -> Complex:
    """expm1(a) cos b - 2 sin(b/2)**2 + i e**a sin b."""
    half_sine = elementwise(Op.SIN, mul(x.im, like(0.5, x.im)))
    minus = elementwise(Op.EXPM1, x.re)
    lost = mul(like(2, half_sine), mul(half_sine, half_sine))
    re = sub(mul(minus, elementwise(Op.COS, x.im)), lost)
    re = where(is_zero(x.im), minus, re)
    # far from zero the difference to exp is below rounding
    plain, far = exponential(x), elementwise(Op.LT, like(40, x.re), x.re)
    undirected, undefined = is_infinite(x.im), like(np.nan, x.im)
    re = where(undirected, undefined, where(far, plain.re, re))
    return Complex(re, where(undirected, undefined, plain.im))


def hyperbolic(x: Node) -> tuple[Node, Node]:
    """(cosh x, sinh x), the latter accurate near zero."""
    half = like(0.5, x)
    size = elementwise(Op.ABS, x)
    grown, shrunk = real_exp(mul(size, half)), real_exp(neg(size))
    large = mul(mul(grown, half), grown)  # e**|x| / 2 without early overflow
    cosh = add(large, mul(half, shrunk))
    minus = elementwise(Op.EXPM1, size)
    small = mul(half, add(minus, div(minus, add(minus, like(1, minus)))))
    near = elementwise(Op.LT, size, like(1, size))
    sinh = where(near, small, sub(large, mul(half, shrunk)))
    return cosh, copy_sign(sinh, x)


def times(factor: Node, size: Node) -> Node:
    """factor * size, where a factor of zero gives zero even when the size is infinite."""
    return where(all_hold(is_zero(factor), is_infinite(size)), factor, mul(factor, size))


def sine(x: Complex) -> Complex:
    cosh, sinh = hyperbolic(x.im)
    return Complex(
        times(elementwise(Op.SIN, x.re), cosh), times_either(elementwise(Op.COS, x.re), sinh)
    )


def cosine(x: Complex) -> Complex:
    cosh, sinh = hyperbolic(x.im)
    return Complex(
        times(elementwise(Op.COS, x.re), cosh),
        neg(times_either(elementwise(Op.SIN, x.re), sinh)),
    )


def hyperbolic_cosine(x: Complex) -> Complex:
    """cosh z = cos iz."""
    return cosine(Complex(neg(x.im), x.re))


def times_either(factor: Node, size: Node) -> Node:
    """The same; a size of zero gives zero even when the factor is undefined."""
    undefined = all_hold(is_zero(size), is_nan(factor))
    return where(undefined, size, times(factor, size))


def tanh(x: Complex) -> Complex:
    """Kahan's formulas, with 1 where sinh would overflow."""
    a, b = x.planes
    one = like(1, a)
    limit = math.log(float(np.finfo(a.dtype.numpy).max)) / 4
    is_far = elementwise(Op.LT, like(limit, a), elementwise(Op.ABS, a))
    near = where(is_far, like(0, a), a)
    t = elementwise(Op.TAN, b)
    _, s = hyperbolic(near)
    beta = add(one, mul(t, t))
    rho = elementwise(Op.SQRT, add(one, mul(s, s)))
    scale = add(one, mul(beta, mul(s, s)))
    re, im = div(mul(mul(beta, rho), s), scale), div(t, scale)
    tail = real_exp(mul(like(-2, a), elementwise(Op.ABS, a)))
    slope = mul(mul(like(4, a), mul(elementwise(Op.SIN, b), elementwise(Op.COS, b))), tail)
    # at infinite a the value is +-1 whatever b; at finite a an infinite b has no angle
    unbounded, endless = any_holds(is_infinite(b), is_nan(b)), is_infinite(a)
    slope = where(all_hold(unbounded, endless), copy_sign(like(0, a), b), slope)
    side = where(all_hold(unbounded, elementwise(Op.NOT, endless)), slope, copy_sign(one, a))
    return Complex(where(is_far, side, re), where(is_far, slope, im))


def tangent(x: Complex) -> Complex:
    """tan z = -i tanh(i z)."""
    turned = tanh(Complex(neg(x.im), x.re))
    return Complex(turned.im, neg(turned.re))


def logistic(x: Complex) -> Complex:
    """1 / (1 + exp(-z))."""
    grown = exponential(Complex(neg(x.re), neg(x.im)))
    one = Complex(like(1, x.re), like(0, x.im))
    return quotient(one, Complex(add(grown.re, one.re), grown.im))


def sign(x: Complex) -> Complex:
    """z / |z|, and 0 for 0."""
    size = magnitude(x)
    unit = Complex(div(x.re, size), div(x.im, size))
    zero = Complex(like(0, size), like(0, size))
    return choose(is_zero(size), zero, unit)


def root_of(size: Node) -> Node:
    return elementwise(Op.SQRT, size)


def reciprocal_root(x: Complex) -> Complex:
    """|z|**-1/2 at half the opposite angle."""
    size = div(like(1, x.re), root_of(magnitude(x)))
    angle = mul(elementwise(Op.ATAN2, x.im, x.re), like(-0.5, x.re))
    re = mul(size, elementwise(Op.COS, angle))
    im = times(elementwise(Op.SIN, angle), size)
    return Complex(re, im)


def cube_root(x: Complex) -> Complex:
    """The principal root."""
    size = elementwise(Op.POW, magnitude(x), like(1 / 3, x.re))
    angle = mul(elementwise(Op.ATAN2, x.im, x.re), like(1 / 3, x.re))
    return Complex(mul(size, elementwise(Op.COS, angle)), mul(size, elementwise(Op.SIN, angle)))


def power(x: Complex, y: Complex) -> Complex:
    """|x|**c e**(-d arg x) at the angle c arg x + d log |x|, for y = c + i d."""
    zero, one = like(0, x.re), like(1, x.re)
    size, angle = magnitude(x), elementwise(Op.ATAN2, x.im, x.re)
    log_size = elementwise(Op.LOG, size)
    grown = mul(elementwise(Op.POW, size, y.re), real_exp(neg(mul(y.im, angle))))
    turned = add(mul(y.re, angle), mul(y.im, log_size))
    found = Complex(
        mul(grown, elementwise(Op.COS, turned)), mul(grown, elementwise(Op.SIN, turned))
    )
    nothing = Complex(zero, zero)
    positive = all_hold(elementwise(Op.LT, zero, y.re), is_zero(y.im))
    found = choose(all_hold(equal(x, nothing), positive), nothing, found)
    unity = Complex(one, zero)
    found = choose(equal(y, nothing), unity, found)
    return choose(equal(x, unity), unity, found)


def arc_tangent(y: Complex, x: Complex) -> Complex:
    """atan2(y, x) = -i log((x + i y) / sqrt(x**2 + y**2)), by real parts when both are real."""
    from tinyhlo.import_stablehlo.complex_arithmetic import product

    squares = Complex(
        *(add(a, b) for a, b in zip(product(x, x).planes, product(y, y).planes, strict=True))
    )
    size = elementwise(Op.LOG, magnitude(squares))
    angle = elementwise(Op.ATAN2, squares.im, squares.re)
    top = Complex(sub(x.re, y.im), add(x.im, y.re))
    re = sub(elementwise(Op.ATAN2, top.im, top.re), mul(like(0.5, angle), angle))
    im = sub(mul(like(0.5, size), size), elementwise(Op.LOG, magnitude(top)))
    return Complex(re, im)


RULES: dict[str, Rule] = {
    "stablehlo.exponential": on_values(exponential),
    "stablehlo.exponential_minus_one": on_values(exponential_minus_one),
    "stablehlo.sine": on_values(sine),
    "stablehlo.cosine": on_values(cosine),
    "chlo.cosh": on_values(hyperbolic_cosine),
    "stablehlo.tan": on_values(tangent),
    "stablehlo.tanh": on_values(tanh),
    "stablehlo.logistic": on_values(logistic),
    "stablehlo.sign": on_values(sign),
    "stablehlo.rsqrt": on_values(reciprocal_root),
    "stablehlo.cbrt": on_values(cube_root),
    "stablehlo.power": on_values(power),
    "stablehlo.atan2": on_values(arc_tangent),
}
