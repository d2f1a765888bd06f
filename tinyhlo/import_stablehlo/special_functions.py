"""Functions that CHLO's expansions give too few right digits: our own expansions.

    chlo.sinh      ->  half of (e**|x| - e**-|x|), near zero from expm1
    chlo.erfc      ->  e**(-x*x) times a polynomial, with x*x split so that no digit is lost
    chlo.erf_inv   ->  x times a polynomial of log((1 - x) (1 + x))

bf16 and f16 are computed in f32. Errors of all of them: docs/accuracy.md. erf_inv's variables are
those of Giles, "Approximating the erfinv function" (GPU Computing Gems, 2011); the polynomials are
fits of our own (`tools/fit_special_functions.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import inf

from tinyhlo.import_stablehlo.elementwise import expansion
from tinyhlo.import_stablehlo.operands import copy_sign, like
from tinyhlo.import_stablehlo.special_tables import (
    ERF_INV_F32_CENTER,
    ERF_INV_F32_TAIL,
    ERF_INV_F64_CENTER,
    ERF_INV_F64_MIDDLE,
    ERF_INV_F64_TAIL,
    ERFC_F32,
    ERFC_F64,
)
from tinyhlo.import_stablehlo.walker import Rule
from tinyhlo.ir.build import bitcast, elementwise, exp, expm1, log, sqrt, where
from tinyhlo.ir.dtypes import F32, F64, signed_of
from tinyhlo.ir.graph import Node
from tinyhlo.ir.ops import Op


def polynomial(x: Node, coefficients: Sequence[float]) -> Node:
    """c0 + c1 x + c2 x^2 + ... by Horner's rule."""
    *rest, last = coefficients
    total = like(last, x)
    for coefficient in reversed(rest):
        total = total * x + coefficient
    return total


def hyperbolic(x: Node) -> tuple[Node, Node]:
    """(cosh x, sinh x). e**|x| / 2 is a product of two halves, which overflows only where the
    result does."""
    size = abs(x)
    grown, shrunk = exp(size * 0.5), exp(-size) * 0.5
    large = grown * 0.5 * grown
    minus = expm1(size)
    small = (minus + minus / (minus + 1.0)) * 0.5
    sinh = where(size < 1.0, small, large - shrunk)
    return large + shrunk, copy_sign(sinh, x)


def cosh(x: Node) -> Node:
    return hyperbolic(x)[0]


def sinh(x: Node) -> Node:
    return hyperbolic(x)[1]


# dtype -> (polynomial, bits of x that are kept so that their square is exact, where erfc is 0)
ERFC = {F32: (ERFC_F32, 12, 10.1), F64: (ERFC_F64, 26, 27.3)}
PIVOT = 2.0
FAR_SQUARE = 32.0  # beyond it e**(-x*x) is computed e**44 times too large: no denormals on the way
SHIFT = 44.0  # a whole number, so that the difference to the square is exact


def erfc(x: Node) -> Node:
    """1 - erf(x) up to 1/2; beyond, e**(-x*x) h(t) / (x + 2) with t = (x - 2) / (x + 2).

    x = high + low with few bits in `high`: x*x = high*high + low (x + high), the first exactly.
    """
    coefficients, kept, end = ERFC[x.dtype]
    size = elementwise(Op.MIN, elementwise(Op.MAX, x, like(0.45, x)), like(end, x))
    word = signed_of(x.dtype)
    bits = bitcast(size, word)
    high = bitcast(bits & -(1 << (x.dtype.mantissa_bits - kept + 1)), x.dtype)
    low = size - high
    square = high * high
    is_far = square > FAR_SQUARE
    exponent = where(is_far, SHIFT - square, -square)
    reciprocal = 1.0 / (size + PIVOT)
    slope = polynomial((size - PIVOT) * reciprocal, coefficients) * reciprocal
    correction = exp(-(low * (size + high)))
    tail = exp(exponent) * correction * slope
    tail = tail * where(is_far, like(math.exp(-SHIFT), tail), like(1.0, tail))
    tail = where(end < x, 0.0, tail)
    near = 1.0 - elementwise(Op.ERF, x)
    return where(x >= 0.5, tail, near)


# dtype -> (end of the piece, its center, whether in the root of w, polynomial)
ERF_INV = {
    F32: ((5.0, 2.5, False, ERF_INV_F32_CENTER), (inf, 3.0, True, ERF_INV_F32_TAIL)),
    F64: (
        (6.25, 3.125, False, ERF_INV_F64_CENTER),
        (16.0, 3.25, True, ERF_INV_F64_MIDDLE),
        (inf, 5.0, True, ERF_INV_F64_TAIL),
    ),
}


def erf_inv(x: Node) -> Node:
    """x P(w), w = -log(1 - x*x); infinite at -1 and 1, NaN beyond."""
    one = like(1.0, x)
    w = -log((one - x) * (one + x))
    root = sqrt(w)
    *pieces, last = ERF_INV[x.dtype]

    def value(piece: tuple[float, float, bool, Sequence[float]]) -> Node:
        _, center, in_root, coefficients = piece
        return polynomial((root if in_root else w) - center, coefficients)

    ratio = value(last)
    for piece in reversed(pieces):
        ratio = where(w < piece[0], value(piece), ratio)
    at_end = abs(x).equals(one)
    return where(at_end, x * inf, x * ratio)


RULES: dict[str, Rule] = {
    "chlo.cosh": expansion(cosh),
    "chlo.sinh": expansion(sinh),
    "chlo.erfc": expansion(erfc),
    "chlo.erf_inv": expansion(erf_inv),
}
