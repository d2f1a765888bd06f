"""Functions that CHLO's expansions give too few right digits: our own expansions.

    chlo.sinh      ->  half of (e**|x| - e**-|x|), near zero a polynomial
    chlo.erfc      ->  e**(-x*x) times a polynomial, with x*x split so that no digit is lost
    chlo.erf_inv   ->  x times a polynomial of log((1 - x) (1 + x))

bf16 and f16 are computed in f32. Errors of all of them: docs/accuracy.md. erf_inv's variables are
those of Giles, "Approximating the erfinv function" (GPU Computing Gems, 2011); the polynomials are
fits of our own (`tools/fit_special_functions.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from tinyhlo.dataclass import dataclass
from tinyhlo.import_stablehlo.elementwise import expansion
from tinyhlo.import_stablehlo.operands import copy_sign, like
from tinyhlo.import_stablehlo.special_tables import (
    ERF_INV_F32_CENTER,
    ERF_INV_F32_TAIL,
    ERF_INV_F64_CENTER,
    ERF_INV_F64_MIDDLE,
    ERF_INV_F64_TAIL,
    ERF_NEAR_F32,
    ERF_NEAR_F64,
    ERFC_F32,
    ERFC_F64,
    SINH_F32,
    SINH_F64,
)
from tinyhlo.import_stablehlo.walker import Rule
from tinyhlo.ir.build import bitcast, elementwise, exp, log, sqrt, where
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


# dtype -> (a limit from which on e**x / 2 is e**(x - part) * factor, part, factor, polynomial of
# sinh below 1). The difference is exact, and the factor is e**part / 2 to within 1e-4 units.
HALVES = {
    F32: (88.0, 0.8156585693359375, 1.1303319931030273, SINH_F32),
    F64: (709.0, 0.7500000023396751, 1.0585000107828835, SINH_F64),
}


def hyperbolic(x: Node) -> tuple[Node, Node]:
    """(cosh x, sinh x) from e**|x| / 2, which overflows only where they do."""
    limit, part, factor, coefficients = HALVES[x.dtype]
    size = abs(x)
    is_far = size > limit
    grown = exp(size - where(is_far, like(part, x), 0.0)) * where(is_far, like(factor, x), 0.5)
    shrunk = 0.25 / grown
    square = size * size
    small = size + size * (square * polynomial(square, coefficients))
    sinh = where(size < 1.0, small, grown - shrunk)
    return grown + shrunk, copy_sign(sinh, x)


def cosh(x: Node) -> Node:
    return hyperbolic(x)[0]


def sinh(x: Node) -> Node:
    return hyperbolic(x)[1]


@dataclass(frozen=True, slots=True)
class Complement:
    """erfc of a type: polynomials of erf(x) / x - 1 in x*x up to `NEAR`, and of the tail; so many
    bits of x have an exact square; erfc is 0 from `end` on. Far out e**(-x*x) is computed about
    2**`SCALE` times too large, so that no denormals are on the way: e**`shift` times, whose
    difference to the square is exact; `beyond` is how much shift is over SCALE * log(2)."""

    near: Sequence[float]
    tail: Sequence[float]
    kept: int
    end: float
    shift: float
    beyond: float


SCALE = 64
COMPLEMENTS = {
    F32: Complement(ERF_NEAR_F32, ERFC_F32, 12, 10.1, 44.361419677734375, 1.2189787519729715e-07),
    F64: Complement(ERF_NEAR_F64, ERFC_F64, 26, 27.3, 44.36141955583639, -1.0806560032487666e-13),
}
NEAR = 0.5
PIVOT = 2.25
FAR_SQUARE = 32.0


def erfc(x: Node) -> Node:
    """1 - erf(x) near 0; beyond, e**(-x*x) h(t) / (x + p), t = (x - p) / (x + p), which is
    taken from 2 for negative x.

    |x| = high + low with few bits in `high`: x*x = high*high + rest, the first exactly, and
    e**-rest is a few terms.
    """
    form = COMPLEMENTS[x.dtype]
    size = abs(x)
    square = x * x
    near = 1.0 - (x + x * polynomial(square, form.near))

    limited = elementwise(Op.MIN, size, like(form.end, x))
    unit = 1 << (x.dtype.mantissa_bits - form.kept + 1)
    high = bitcast((bitcast(limited, signed_of(x.dtype)) + unit // 2) & -unit, x.dtype)
    square = high * high
    is_far = square > FAR_SQUARE
    power = exp(where(is_far, like(form.shift, x), 0.0) - square)
    total = limited + PIVOT
    reciprocal = 1.0 / total
    slope = polynomial((limited - PIVOT) * reciprocal, form.tail) / total
    lost = (limited - (total - PIVOT)) * reciprocal  # in the sum: becomes part of the exponent
    rest = (limited - high) * (limited + high) + (where(is_far, like(form.beyond, x), 0.0) + lost)
    power = power - power * (rest - rest * rest * polynomial(rest, (1 / 2, -1 / 6, 1 / 24)))
    tail = power * slope * where(is_far, like(2.0**-SCALE, x), 1.0)
    tail = where(size > form.end, 0.0, tail)
    tail = where(x < 0, 2.0 - tail, tail)
    return where(size < NEAR, near, tail)


# dtype -> (end of the piece, its center, whether in the root of w, polynomial)
ERF_INV = {
    F32: ((5.0, 2.625, False, ERF_INV_F32_CENTER), (inf, 3.0, True, ERF_INV_F32_TAIL)),
    F64: (
        (6.25, 3.125, False, ERF_INV_F64_CENTER),
        (16.0, 3.25, True, ERF_INV_F64_MIDDLE),
        (inf, 5.0, True, ERF_INV_F64_TAIL),
    ),
}


def erf_inv(x: Node) -> Node:
    """x P(w), w = -log(1 - x*x); infinite at -1 and 1, NaN beyond. In d = 1 - |x|, which is exact
    from 1/2 on, 1 - x*x is 2d - d*d: either difference loses but its own rounding."""
    one = like(1.0, x)
    size = abs(x)
    is_small, rest = size < 0.5, one - size
    factor = where(is_small, size, rest)
    w = -log(where(is_small, one, rest + rest) - factor * factor)
    root = sqrt(w)
    *pieces, last = ERF_INV[x.dtype]

    def value(piece: tuple[float, float, bool, Sequence[float]]) -> Node:
        _, center, in_root, coefficients = piece
        return polynomial((root if in_root else w) - center, coefficients)

    ratio = value(last)
    for piece in reversed(pieces):
        ratio = where(w < piece[0], value(piece), ratio)
    at_end = size.equals(one)
    return where(at_end, x * inf, x * ratio)


RULES: dict[str, Rule] = {
    "chlo.cosh": expansion(cosh),
    "chlo.sinh": expansion(sinh),
    "chlo.erfc": expansion(erfc),
    "chlo.erf_inv": expansion(erf_inv),
}
