"""Print the coefficient tables of `tinyhlo/import_stablehlo/families/special_tables.py`.

python -m tools.fit_special_functions
"""

from __future__ import annotations

import textwrap

import mpmath as mp
import numpy as np

from tools.fit_polynomials import Fit, fit, over, relative, root


def inverse_ratio(w: mp.mpf) -> mp.mpf:
    """erf_inv(x) / x at w = -log(1 - x^2)."""
    if w == 0:
        return mp.sqrt(mp.pi) / 2
    x = mp.sqrt(-mp.expm1(-w))
    return mp.erfinv(x) / x


def around(center: float, root: bool = False):
    """inverse_ratio as a function of the distance of w (or its root) from `center`: one where it
    is nearly a number of the type, as the first coefficient is rounded."""
    return lambda d: inverse_ratio((d + center) ** 2 if root else d + center)


hyperbolic_sine = root(over(3, lambda x: mp.sinh(x) - x))


def task(name: str, function, low: float, high: float, count: int, dtype: type) -> Fit:
    return Fit(name, function, relative(function), low, high, count, dtype)


FITS = (
    Fit("SINH_F32", hyperbolic_sine, lambda z: z, 1e-12, 1.01, 4),
    Fit("SINH_F64", hyperbolic_sine, lambda z: z, 1e-12, 1.01, 8, np.float64),
    task("ERF_INV_F32_CENTER", around(2.625), -2.625, 2.4, 10, np.float32),
    task("ERF_INV_F32_TAIL", around(3.0, True), 5**0.5 - 3.01, 1.01, 10, np.float32),
    task("ERF_INV_F64_CENTER", around(3.125), -3.125, 3.13, 25, np.float64),
    task("ERF_INV_F64_MIDDLE", around(3.25, True), -0.76, 0.76, 21, np.float64),
    task("ERF_INV_F64_TAIL", around(5.0, True), -1.01, 1.02, 18, np.float64),
)


def main() -> None:
    for chosen in FITS:
        coefficients, error = fit(chosen)
        print(f"{chosen.name}: Table = (  # {error:.1e}")
        numbers = ", ".join(map(repr, coefficients)) + ","
        print(textwrap.indent(textwrap.fill(numbers, 96), " " * 4))
        print(")  # fmt: skip", flush=True)


if __name__ == "__main__":
    main()
