"""Print the coefficient tables of `tinyhlo/codegen/math/tables.py`.

    python tools/fit_polynomials.py

Each polynomial is a weighted least squares fit on Chebyshev nodes, re-weighted until the error is
level (Lawson's method, close to minimax), in 60-digit arithmetic. Coefficients are rounded to the
target type one after the other from the lowest power, and the rest fitted again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp
import numpy as np

from tinyhlo.codegen.math.tables import ERFC_PIVOT, TANH_POLYNOMIAL

Function = Callable[[mp.mpf], mp.mpf]
mp.mp.dps = 60


@dataclass(frozen=True)
class Fit:
    """Approximate `function` on [low, high]; errors are scaled by `weight`."""

    name: str
    function: Function
    weight: Function
    low: float
    high: float
    count: int
    dtype: type = np.float32


def solve(nodes: list[mp.mpf], values: list[mp.mpf], weights: list[mp.mpf], first: int, count: int):
    """Weighted least squares of `values` by powers first .. first + count - 1."""
    rows = mp.matrix(len(nodes), count)
    right = mp.matrix(len(nodes), 1)
    for i, (node, value, weight) in enumerate(zip(nodes, values, weights, strict=True)):
        for k in range(count):
            rows[i, k] = weight * node ** (first + k)
        right[i] = weight * value
    return list(mp.lu_solve(rows.T * rows, rows.T * right))


def fit(task: Fit) -> tuple[list[float], float]:
    """Coefficients from the lowest power up, and the largest weighted error."""
    size = 8 * task.count
    middle, half = mp.mpf(task.low + task.high) / 2, mp.mpf(task.high - task.low) / 2
    nodes = [middle + half * mp.cos(mp.pi * (2 * k + 1) / (2 * size)) for k in range(size)]
    values = [task.function(x) for x in nodes]
    scale = [task.weight(x) for x in nodes]
    lawson = [mp.mpf(1)] * size
    done: list[float] = []
    error = mp.mpf(0)
    for position in range(task.count):
        left = [
            v - sum((mp.mpf(c) * x**k for k, c in enumerate(done)), mp.mpf(0))
            for v, x in zip(values, nodes, strict=True)
        ]
        for _ in range(12 if position == 0 else 3):
            weights = [s * mp.sqrt(w) for s, w in zip(scale, lawson, strict=True)]
            found = solve(nodes, left, weights, position, task.count - position)
            errors = [
                abs(s * (v - sum(c * x ** (position + k) for k, c in enumerate(found))))
                for s, v, x in zip(scale, left, nodes, strict=True)
            ]
            total = sum(w * e for w, e in zip(lawson, errors, strict=True)) or mp.mpf(1)
            lawson = [
                size * w * e / total + mp.mpf("1e-6") for w, e in zip(lawson, errors, strict=True)
            ]
            error = max(errors)
        done.append(float(task.dtype(found[0])))
    return done, float(error)


def over(power: int, function: Function) -> Function:
    """function(x) / x**power, for functions that vanish like that at 0."""
    return lambda x: function(x) / x**power


def root(function: Function) -> Function:
    """As a function of z = x*x."""
    return lambda z: function(mp.sqrt(z))


def relative(function: Function) -> Function:
    """The weight of relative errors."""
    return lambda x: 1 / abs(function(x))


def scaled_erfc(t: mp.mpf) -> mp.mpf:
    """(x + pivot) e^(x^2) erfc(x), a smooth function of t that tends to 1/sqrt(pi)."""
    x = ERFC_PIVOT * (1 + t) / (1 - t)
    return (x + ERFC_PIVOT) * mp.exp(x * x) * mp.erfc(x)


def t_of(x: float) -> float:
    return (x - ERFC_PIVOT) / (x + ERFC_PIVOT)


def of_erf(x: mp.mpf) -> mp.mpf:
    """The weight of what an error in log(erfc(x)) / x is of erf(x)."""
    return x * mp.erfc(x) / mp.erf(x)


HALF_LN2 = float(mp.log(2) / 2) * 1.001
SHORT = HALF_LN2 / 16
TAN_EIGHTH = float(mp.sqrt(2) - 1) * 1.001
QUARTER_PI = float(mp.pi / 4) * 1.001
LOG_LOW, LOG_HIGH = float(mp.sqrt(0.5)) - 1, float(mp.sqrt(2)) - 1
S_HIGH = (LOG_HIGH / (2 + LOG_HIGH)) ** 2 * 1.01

exponential = over(2, lambda r: mp.expm1(r) - r)
logarithm = over(3, lambda f: mp.log1p(f) - f + f * f / 2)
sine = root(over(3, lambda r: mp.sin(r) - r))
cosine = root(over(4, lambda r: mp.cos(r) - 1 + r * r / 2))
tangent_hyperbolic = root(over(3, lambda x: mp.tanh(x) - x))
arctangent = root(over(3, lambda a: mp.atan(a) - a))
error_exponent = over(1, lambda x: mp.log(mp.erfc(x)) + x)
# log(1 + f) with s = f / (2 + f) is 2 s + s z R(z), z = s * s
logarithm_ratio = root(lambda s: (2 * mp.atanh(s) / s - 2) / s**2)
# ... and 2 s + s z (2/3 + z Q(z))
long_logarithm_ratio = root(lambda s: ((2 * mp.atanh(s) / s - 2) / s**2 - mp.mpf(2) / 3) / s**2)

FITS = (
    Fit("EXP_F32", exponential, lambda r: r * r / mp.exp(r), -HALF_LN2, HALF_LN2, 5),
    Fit("SHORT_F32", exponential, lambda r: r * r / mp.exp(r), -SHORT, SHORT, 2),
    Fit("EXPM1_F32", exponential, lambda r: r * r / mp.expm1(r), -HALF_LN2, HALF_LN2, 6),
    Fit("EXP_F64", exponential, abs, -HALF_LN2, HALF_LN2, 10, np.float64),
    Fit("SHORT_F64", exponential, lambda r: r * r / mp.exp(r), -SHORT, SHORT, 5, np.float64),
    Fit("SHORT_EXPM1", exponential, lambda r: r * r / mp.expm1(r), -1 / 16, 1 / 16, 7, np.float64),
    Fit("EXPM1_F64", exponential, abs, -0.51, 0.51, 12, np.float64),
    Fit("LOG_F32", logarithm, lambda f: abs(f**3 / mp.log1p(f)), LOG_LOW, LOG_HIGH, 9),
    Fit("LOG_F64", logarithm_ratio, lambda z: z, 1e-12, S_HIGH, 7, np.float64),
    Fit(
        "LONG_LOG_F64",
        long_logarithm_ratio,
        relative(long_logarithm_ratio),
        1e-12,
        S_HIGH,
        8,
        np.float64,
    ),
    Fit("SIN_F32", sine, lambda z: z, 1e-12, QUARTER_PI**2, 3),
    Fit("COS_F32", cosine, lambda z: z * z, 1e-12, QUARTER_PI**2, 3),
    Fit("SIN_F64", sine, lambda z: z, 1e-12, QUARTER_PI**2, 6, np.float64),
    Fit("COS_F64", cosine, lambda z: z * z, 1e-12, QUARTER_PI**2, 6, np.float64),
    Fit("TANH_F32", tangent_hyperbolic, lambda z: z, 1e-12, TANH_POLYNOMIAL**2, 3),
    Fit("ATAN_F32", arctangent, lambda z: z, 1e-12, 1.0, 9),
    Fit("ATAN_F64", arctangent, lambda z: z, 1e-12, TAN_EIGHTH**2, 11, np.float64),
    Fit("ERF_F32", error_exponent, of_erf, 1e-6, 4.0, 9),
    Fit("ERF_F64", error_exponent, of_erf, 1e-6, 6.0, 24, np.float64),
    Fit("ERFC_F32", scaled_erfc, relative(scaled_erfc), -1.0, t_of(10.1), 10),
    Fit("ERFC_F64", scaled_erfc, relative(scaled_erfc), -1.0, t_of(27.3), 25, np.float64),
)


def main() -> None:
    for task in FITS:
        coefficients, error = fit(task)
        print(f"{task.name} = (  # {error:.1e}")
        for value in coefficients:
            print(f"    {value!r},")
        print(")")
    print("# 1/(2 pi) from bit 28k on: pairs of doubles")
    mp.mp.dps = 120
    for shift in (0, 28, 56, 84):
        rest = 1 / (2 * mp.pi)
        rest -= mp.floor(rest * mp.mpf(2) ** shift) / mp.mpf(2) ** shift
        first = float(rest)
        second = float(rest - mp.mpf(first))
        print(f"    ({first!r}, {second!r}),")
    ln2 = mp.log(2)
    for dtype, bits in ((np.float32, 24), (np.float64, 53)):
        high = mp.floor(ln2 * mp.mpf(2) ** (bits - 11)) / mp.mpf(2) ** (bits - 11)
        print("LN2", dtype.__name__, float(high), float(dtype(ln2 - high)))


if __name__ == "__main__":
    main()
