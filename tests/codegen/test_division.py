"""Integers divided in lanes: every type, exactly, next to whole quotients and to the largest."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.native import run_native
from tinyhlo.codegen.llvm.kernel import render_kernel
from tinyhlo.codegen.lowering.fused import lower_fused
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.ir.build import elementwise, param
from tinyhlo.ir.dtypes import I8, I16, I32, I64, U8, U16, U32, U64, DType
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
