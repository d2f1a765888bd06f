"""What ops mean on scalars: the constant folder meets arrays without axes."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tests.random_graphs import BOOL_OPS, FLOAT_OPS, INTEGER_OPS
from tinyhlo.ir import dtypes, einsum
from tinyhlo.ir.build import broadcast, elementwise, param, reduce
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.meaning import evaluate
from tinyhlo.ir.ops import Op

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


def test_folding_the_error_function_imports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds of truncated normal numbers, in the first program of most networks."""
    monkeypatch.setitem(sys.modules, "scipy", None)  # type: ignore[arg-type]
    x = np.array([-np.inf, -1, 0, 0.5, np.nan], np.float32)
    found = evaluate(Op.ERF, [x], dtypes.F32)
    np.testing.assert_array_equal(found, np.float32([-1, -0.8427008, 0, 0.5204999, np.nan]))
    np.testing.assert_array_equal(evaluate(Op.ERFC, [x], dtypes.F32)[3], np.float32(0.47950011))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            np.int64([2**60 + 2**52 + 1, -(2**60) - 2**52 - 1]),
            [2.0**60 + 2**53, -(2.0**60) - 2**53],
        ),
        (np.uint64([2**63 + 2**55 + 1, 2**64 - 1]), [2.0**63 + 2**56, 2.0**64]),
        (np.int32([2**28 + 2**20 + 1, -(2**31)]), [2.0**28 + 2**21, -(2.0**31)]),
        (np.float64([1 + 2**-8 + 2.0**-40, 1 + 2**-8]), [1 + 2**-7, 1]),
        (np.float64([np.inf, -0.0]), [np.inf, -0.0]),
    ],
    ids=lambda x: getattr(x, "dtype", ""),
)
def test_numbers_are_rounded_once(source: np.ndarray, expected: list[float]) -> None:
    """Just above the middle of two numbers of bf16: the nearest f32 is the middle."""
    found = evaluate(Op.CAST, [source], dtypes.BF16)
    np.testing.assert_array_equal(found.astype(np.float64), expected)


def test_integers_as_halves_are_rounded_once() -> None:
    found = evaluate(Op.CAST, [np.int64([2049 * 16 + 1, 70_000])], dtypes.F16)
    np.testing.assert_array_equal(found.astype(np.float64), [2050 * 16, np.inf])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_large_products_are_summed_without_writing_them_out(
    dtype: DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(einsum, "HUGE_PRODUCT", 1)
    x, w = param(0, (3, 4), dtype), param(1, (4, 5), dtype)
    wide = [broadcast(x, (3, 4, 5), (0, 1)), broadcast(w, (3, 4, 5), (1, 2))]
    total = reduce(Op.ADD, elementwise(Op.MUL, *wide), (1,))
    left, right = (np.arange(n.type.size).reshape(n.shape).astype(dtype.numpy) for n in (x, w))
    (found,) = run_graph(Graph((x.type, w.type), (total,)), (left, right))
    assert found.dtype == dtype.numpy
    expected = left.astype(float) @ right.astype(float)
    np.testing.assert_allclose(found.astype(float), expected, rtol=1e-2)
