"""Indices of which one is computed from the other."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.native import check
from tinyhlo.ir.build import param, permute, reshape
from tinyhlo.ir.dtypes import BF16, F32, DType
from tinyhlo.ir.graph import Graph


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_a_position_that_is_taken_apart_again_and_again(dtype: DType) -> None:
    """Rows become columns of other rows: the code grows with the chain, not twice each time."""
    x = y = param(0, (64,), dtype)
    for k in range(40):
        y = reshape(permute(reshape(y, ((4, 16), (8, 8))[k % 2]), (1, 0)), (64,))
    check(Graph((x.type,), (y + 1.0,)), [np.arange(64).astype(dtype.numpy)])
