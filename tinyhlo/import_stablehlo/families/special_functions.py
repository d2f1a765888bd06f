"""Functions that CHLO's expansions give too few right digits: our own expansions.

    chlo.sinh      ->  half of (e**|x| - e**-|x|), near zero a polynomial
    chlo.erf_inv   ->  x times a polynomial of log((1 - x) (1 + x))

bf16 and f16 are computed in f32. Errors of all of them: docs/accuracy.md. erf_inv's variables are
those of Giles, "Approximating the erfinv function" (GPU Computing Gems, 2011); the polynomials are
fits of our own (`tools/fit_special_functions.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from tinyhlo.import_stablehlo.families.elementwise import expansion
from tinyhlo.import_stablehlo.families.special_tables import (
    ERF_INV_F32_CENTER,
    ERF_INV_F32_TAIL,
    ERF_INV_F64_CENTER,
    ERF_INV_F64_MIDDLE,
    ERF_INV_F64_TAIL,
    SINH_F32,
    SINH_F64,
)
from tinyhlo.import_stablehlo.operands import copy_sign
from tinyhlo.import_stablehlo.walker import Rule
from tinyhlo.ir.build import exp, log, sqrt, where
from tinyhlo.ir.dtypes import F32, F64
from tinyhlo.ir.graph import Node


def polynomial(x: Node, coefficients: Sequence[float]) -> Node:
    """c0 + c1 x + c2 x^2 + ... by Horner's rule."""
    *rest, last = coefficients
    total = x.constant(last)
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
    grown = exp(size - where(is_far, x.constant(part), 0.0)) * where(
        is_far, x.constant(factor), 0.5
    )
    shrunk = 0.25 / grown
    square = size * size
    small = size + size * (square * polynomial(square, coefficients))
    sinh = where(size < 1.0, small, grown - shrunk)
    return grown + shrunk, copy_sign(sinh, x)


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
    from 1/2 on, 1 - x*x is 2d - d*d: either difference is rounded only once."""
    one = x.constant(1.0)
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
    "chlo.cosh": expansion(lambda x: hyperbolic(x)[0]),
    "chlo.sinh": expansion(lambda x: hyperbolic(x)[1]),
    "chlo.erf_inv": expansion(erf_inv),
}
