"""Our expansions of CHLO functions: digits against SciPy, and special values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from tinyhlo.compiler import compile_module
from tinyhlo.config import Config

INF, NAN = np.inf, np.nan


def run(op: str, x: np.ndarray) -> np.ndarray:
    element = {4: "f32", 8: "f64"}[x.dtype.itemsize]
    type_ = f"tensor<{len(x)}x{element}>"
    text = f"""func.func @main(%x: {type_}) -> {type_} {{
      %0 = "{op}"(%x) : ({type_}) -> {type_}
      return %0 : {type_} }}"""
    return compile_module(text, Config())(x)[0]


# op -> (exact function, domain, largest error in units in the last place)
CASES = {
    "chlo.sinh": (np.sinh, (-89.4, 89.4), 2.4),
    "chlo.cosh": (np.cosh, (-89.4, 89.4), 1.6),
    "chlo.erfc": (special.erfc, (-6, 10.0), 4.1),
    "chlo.erf_inv": (special.erfinv, (-1, 1), 2.1),
    "stablehlo.logistic": (special.expit, (-100, 40), 2.4),
}


@pytest.mark.parametrize("op", CASES)
def test_digits_in_float32(op: str) -> None:
    function, (low, high), limit = CASES[op]
    x = np.linspace(low, high, 400_001).astype(np.float32)[1:-1]
    exact = function(x.astype(np.float64))
    with np.errstate(over="ignore"):
        unit = np.spacing(np.maximum(np.abs(exact), np.finfo(np.float32).tiny).astype(np.float32))
        finite = np.abs(exact) < np.finfo(np.float32).max
    error = np.abs(run(op, x).astype(np.float64) - exact) / unit
    assert error[finite].max() < limit


SPECIAL = {
    "chlo.sinh": ([0.0, -0.0, INF, -INF, NAN, 800.0, 1e-310],
                  [0.0, -0.0, INF, -INF, NAN, INF, 1e-310]),
    "chlo.cosh": ([0.0, -0.0, INF, -INF, NAN, -800.0], [1.0, 1.0, INF, INF, NAN, INF]),
    "chlo.erfc": ([0.0, INF, -INF, NAN, 30.0, -30.0], [1.0, 0.0, 2.0, NAN, 0.0, 2.0]),
    "chlo.erf_inv": ([0.0, -0.0, 1.0, -1.0, 1.5, NAN], [0.0, -0.0, INF, -INF, NAN, NAN]),
    "stablehlo.logistic": ([0.0, INF, -INF, NAN, -800.0], [0.5, 1.0, 0.0, NAN, 0.0]),
}  # fmt: skip


@pytest.mark.parametrize("op", SPECIAL)
def test_special_values(op: str) -> None:
    given, expected = map(np.array, SPECIAL[op])
    found = run(op, given)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(
        np.signbit(found[found == 0]), np.signbit(expected[expected == 0])
    )
