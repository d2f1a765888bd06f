"""What ops mean on scalars: the constant folder meets arrays without axes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.random_graphs import BOOL_OPS, FLOAT_OPS, INTEGER_OPS
from tinyhlo.ir import dtypes
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.meaning import evaluate

INTEGERS = (dtypes.I8, dtypes.U8, dtypes.I16, dtypes.I32, dtypes.U32, dtypes.I64, dtypes.U64)
FLOATS = (dtypes.BF16, dtypes.F16, dtypes.F32, dtypes.F64)


def numbers(dtype: DType) -> np.ndarray:
    if dtype.kind == "bool":
        return np.array([False, True])
    if dtype.is_float:
        return np.array([0.0, -0.0, 1.5, -7.0, np.inf, np.nan]).astype(dtype.numpy)
    limits = np.iinfo(dtype.numpy)
    return np.array([0, 1, 7, limits.min, limits.max], dtype.numpy)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, dtypes.BOOL], ids=str)
def test_scalars_as_elements(dtype: DType) -> None:
    ops = BOOL_OPS if dtype.kind == "bool" else FLOAT_OPS if dtype.is_float else INTEGER_OPS
    given = numbers(dtype)
    for op in ops:
        pairs = np.meshgrid(*[given] * op.arity, indexing="ij")
        flat = [np.ascontiguousarray(p.reshape(-1)) for p in pairs]
        whole = evaluate(op, flat, dtype)
        assert whole.dtype == dtype.numpy
        for k, element in enumerate(whole):
            single = evaluate(op, [np.asarray(p[k]) for p in flat], dtype)
            assert single.shape == () and single.dtype == whole.dtype, op
            assert single.tobytes() == element.tobytes(), (op, [p[k] for p in flat])
