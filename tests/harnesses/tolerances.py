"""How far a result may be from XLA:CPU's: as far as JAX's own tests of the primitive allow.

The default (`jax._src.test_util`) is relative and absolute 1e-6 in float32, 1e-15 in float64, 1e-3
in float16, 1e-2 in bfloat16; integers are equal. Primitives that need more have it in JAX's table
of elementwise operations, or in the tests named below.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from jax._src import test_util
from jax._src.internal_test_util import lax_test_util

Tolerance = dict[Any, float]

SINGLE = {np.float32: 1e-4, np.complex64: 1e-4}
SUMS: Tolerance = {np.float16: 1e-2, ml_dtypes.bfloat16: 1e-1, np.float32: 1e-5, np.float64: 1e-13}
LINEAR = {**SINGLE, np.float64: 1e-12, np.complex128: 1e-12}

# primitive -> tolerance by dtype, and the test that allows it
BY_PRIMITIVE: dict[str, Tolerance] = {
    # export_harnesses_multi_platform_test for float32; the others as other sums
    "conv_general_dilated": {**SUMS, **SINGLE, np.complex128: 1e-13},
    # fft_test
    "fft": {**SINGLE, np.float64: 1e-12, np.complex128: 1e-12},
    # linalg_test; of a random matrix times its transpose, which is badly conditioned when large
    "cholesky": dict.fromkeys(
        (np.float32, np.float64, np.complex64, np.complex128, ml_dtypes.bfloat16), 1e-3
    ),
    # linalg_test: 60 and 200 units of the norm, which is about 20
    "qr": LINEAR,
    "svd": LINEAR,
    # lax_numpy_reducers_test allows more: sums have any order, 16-bit ones round each step or once
    "dot_general": SUMS,
    "reduce_window_add": SUMS,
    "cumsum": SUMS,
    "cumprod": SUMS,
    "cumlogsumexp": SUMS,
}


@cache
def elementwise() -> dict[str, Tolerance]:
    """JAX's own table: atanh -> {float64: 1e-9}; one number stands for every dtype."""
    found: dict[str, Tolerance] = {}
    for record in lax_test_util.lax_ops():
        if isinstance(record.tol, dict):
            found[record.op] = record.tol
    return found


def tolerance(harness: Any) -> float | None:
    """For a harness; None: JAX's default for the dtype."""
    table = BY_PRIMITIVE.get(harness.group_name) or elementwise().get(harness.group_name)
    given = {np.dtype(dtype): value for dtype, value in (table or {}).items()}
    allowed = given.get(np.dtype(harness.dtype))
    return None if allowed is None else max(allowed, test_util.tolerance(harness.dtype))
