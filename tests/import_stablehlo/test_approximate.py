"""approx_max_k and approx_min_k on tiny give the exact elements."""

from __future__ import annotations

import jax
import numpy as np
import pytest

TINY = jax.devices("tiny")[0]
X = np.random.default_rng(0).standard_normal((3, 600)).astype(np.float32)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("aggregate", [True, False])
def test_elements_and_positions(axis: int, aggregate: bool) -> None:
    x = jax.device_put(X, TINY)
    k = 2 if axis == 0 else 5
    for function, order in ((jax.lax.approx_max_k, -X), (jax.lax.approx_min_k, X)):
        values, positions = function(x, k, reduction_dimension=axis, aggregate_to_topk=aggregate)
        exact = np.argsort(order, axis=axis, kind="stable").take(range(k), axis)
        assert values.shape[axis] >= k
        np.testing.assert_array_equal(np.asarray(positions).take(range(k), axis), exact)
        np.testing.assert_array_equal(values, np.take_along_axis(X, np.asarray(positions), axis))
