"""Division in lanes: integers of every type, exactly, next to whole quotients and to the largest;
floats by one divisor, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.native import run_native
from tinyhlo.codegen.llvm.kernel import render_kernel
from tinyhlo.codegen.lowering.fused import lower_fused
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.ir.build import elementwise, expand, param, reshape
from tinyhlo.ir.dtypes import F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel

SIZE = 6000


def both(dtype: DType, size: int) -> Graph:
    x, y = param(0, (size,), dtype), param(1, (size,), dtype)
    return Graph((x.type, y.type), (elementwise(Op.DIV, x, y), elementwise(Op.REM, x, y)))


def pairs(dtype: DType, largest: int) -> tuple[np.ndarray, np.ndarray]:
    """Multiples of numbers of all sizes and their neighbours, the ends of the type, and zeros."""
    random = np.random.default_rng(largest % 1000)
    low, high = max(int(dtype.bounds[0]), -largest), min(int(dtype.bounds[1]), largest)
    size = np.exp2(random.uniform(0, np.log2(high), SIZE)).astype(object)
    y = [int(value) for value in size]
    x = [int(random.random() * (high // b)) * b + k % 3 - 1 for k, b in enumerate(y)]
    ends = [low, low + 1, 0, 1, 2, high - 1, high] + ([-1, -2] if low < 0 else [])
    x += [a for a in ends for _ in ends]
    y += ends * len(ends)
    sign = random.choice([-1, 1], (2, len(x))) if low < 0 else np.ones((2, len(x)), int)
    signed = [
        [int(s) * a for s, a in zip(*part, strict=True)] for part in zip(sign, (x, y), strict=True)
    ]
    a, b = (np.array([min(max(v, low), high) for v in part], dtype.numpy) for part in signed)
    return a, b


def exact(x: int, y: int, dtype: DType) -> tuple[int, int]:
    """StableHLO's division rounds to zero; by zero it gives all ones and leaves everything."""
    if y == 0:
        return -1 if dtype.bounds[0] < 0 else int(dtype.bounds[1]), x
    quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    rest = x - quotient * y
    return (x if quotient > dtype.bounds[1] else quotient), rest


@pytest.mark.parametrize("largest", [1 << 63, 1 << 51, 1 << 20], ids=["all", "2^51", "2^20"])
@pytest.mark.parametrize("dtype", [I8, U8, I16, U16, I32, U32, I64, U64], ids=str)
def test_quotients_and_remainders(dtype: DType, largest: int) -> None:
    x, y = pairs(dtype, largest)
    found = run_native(both(dtype, x.size), [x, y])
    wanted = [exact(int(a), int(b), dtype) for a, b in zip(x, y, strict=True)]
    for got, want in zip(found, zip(*wanted, strict=True), strict=True):
        np.testing.assert_array_equal(got, np.array(want, dtype.numpy))


def test_every_pair_of_bytes() -> None:
    x, y = (m.ravel() for m in np.meshgrid(*[np.arange(-128, 128, dtype=np.int8)] * 2))
    found = run_native(both(I8, x.size), [x, y])
    wanted = [exact(int(a), int(b), I8) for a, b in zip(x, y, strict=True)]
    for got, want in zip(found, zip(*wanted, strict=True), strict=True):
        np.testing.assert_array_equal(got, np.array(want, np.int8))


@pytest.mark.parametrize("dtype", [I8, U16, I32, I64], ids=str)
def test_lanes_are_divided_as_floats(dtype: DType) -> None:
    there = named_target("x86-64-v3", threads=2)
    loops = choose_moves(lower_fused(Kernel("divided", both(dtype, 4096))), there)
    text = str(render_kernel(loops, there, "divided", False, {}))
    assert "fdiv <" in text


def ratios(dtype: DType, size: int) -> Graph:
    """A row by one number."""
    x, y = param(0, (size,), dtype), param(1, (), dtype)
    divisor = expand(reshape(y, (1,)), (size,))
    return Graph((x.type, y.type), (elementwise(Op.DIV, x, divisor),))


def near(dtype: DType, exponents: int, size: int, seed: int) -> np.ndarray:
    """Numbers of either sign between 2^-exponents and 2^exponents."""
    random = np.random.default_rng(seed)
    digits = random.integers(1 << 50, 1 << 51, size) | 1
    values = np.ldexp(digits.astype(np.float64), random.integers(-exponents, exponents, size) - 50)
    return (values * random.choice([-1, 1], size)).astype(dtype.numpy)


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("seed", range(40))
def test_many_dividends_by_one_divisor(dtype: DType, seed: int) -> None:
    """To the bit, with the ends of the range, zeros of both signs and denormals among them."""
    info = np.finfo(dtype.numpy)
    special = [0, -0.0, np.inf, -np.inf, np.nan, info.max, info.tiny, -info.smallest_subnormal, 1]
    x = near(dtype, 120, 5003, seed)
    x[seed * 7 : seed * 7 + len(special)] = special
    y = near(dtype, 26, 1, seed + 100)
    (got,) = run_native(ratios(dtype, x.size), [x, y.reshape(())])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got.view(np.uint8), (x / y).view(np.uint8))


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize(
    "divisor", [0.0, -0.0, np.inf, -np.inf, np.nan, 3e38, -1e-38, 1e-45, 2.0, 1 - 2**-24]
)
def test_divisors_that_have_no_useful_reciprocal(dtype: DType, divisor: float) -> None:
    x = np.concatenate([near(dtype, 120, 500, 1), np.array([0, -0.0, np.inf, np.nan], dtype.numpy)])
    y = np.array(divisor, dtype.numpy)
    (got,) = run_native(ratios(dtype, x.size), [x, y])
    with np.errstate(all="ignore"):
        want = x / y
    finite = ~np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), ~finite)
    np.testing.assert_array_equal(got[finite].view(np.uint8), want[finite].view(np.uint8))


@pytest.mark.parametrize(
    ("dtype", "name", "holds"),
    [
        (F32, "x86-64-v4", True),
        (F64, "x86-64-v4", True),
        (F32, "x86-64-v3", False),
        (F64, "x86-64-v3", True),
        (F64, "x86-64-v2", False),
    ],
)
def test_where_dividing_is_slow_a_reciprocal_serves_all_lanes(
    dtype: DType, name: str, holds: bool
) -> None:
    there = named_target(name, threads=2)
    loops = choose_moves(lower_fused(Kernel("divided", ratios(dtype, 4096))), there)
    text = str(render_kernel(loops, there, "divided", False, {}))
    assert ("@quotient." in text) == holds
