"""Products by instructions for matrices: what a warp holds, and what they are used for. Right
numbers: `grid_programs.py`, on emulated GPUs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import jax.numpy as jnp
import pytest

from tests.codegen.grid_programs import code_of, dot, of, wide
from tests.codegen.test_grid_programs import NV
from tinyhlo.codegen.c.fragments import fragment_function
from tinyhlo.codegen.grid.fragments import FRAGMENTS, Fragment
from tinyhlo.ir.index import Index, Var, constant, index, substitute
from tinyhlo.target import Target

BF16, F16, F32 = jnp.bfloat16, "f2", "f4"


def at(place: Index, lane: Var, number: int) -> int:
    return substitute(place, {lane: constant(number)}).offset


@pytest.mark.parametrize("fragment", FRAGMENTS.values(), ids=FRAGMENTS)
def test_a_warp_holds_all_of_a_fragment(fragment: Fragment) -> None:
    """Each sum once, each word as often as any other one."""
    lane = Var("lane", fragment.lanes)
    shapes = (
        (fragment.left, fragment.rows, fragment.depth // 2),
        (fragment.right, fragment.columns, fragment.depth // 2),
        (fragment.sums, fragment.rows, fragment.columns),
    )
    for places, rows, columns in shapes:
        found = Counter(
            (at(row, lane, number), at(column, lane, number))
            for number in range(fragment.lanes)
            for row, column in places(index(lane))
        )
        assert set(found) == {(r, c) for r in range(rows) for c in range(columns)}
        assert len(set(found.values())) == 1
        assert places is not fragment.sums or set(found.values()) == {1}


def kernels(target: Target, dtype: object, *shape: int, function: object = wide) -> str:
    rows, depth, columns = shape
    program = (function, (of(rows, depth, dtype=dtype), of(depth, columns, dtype=dtype)))
    source = code_of(program, target).source  # type: ignore[arg-type]
    return source[source.index("\nKERNEL(") :]


def test_16_bit_floats_alone() -> None:
    """f32 is f32; integers have other instructions."""
    assert "mma_bf16(sum0" in kernels(NV, BF16, 64, 64, 64)
    assert "mma_f16(sum0" in kernels(NV, F16, 64, 64, 64)
    assert "mma_" not in kernels(NV, F32, 64, 64, 64, function=dot)
    assert "mma_" not in kernels(NV, "i1", 64, 64, 64)
    assert "mma_" not in kernels(replace(NV, features="fp64"), BF16, 64, 64, 64)
    assert "mma_" not in kernels(NV, BF16, 8, 512, 64)  # a row of fragments would be half empty


def test_operands_that_are_computed_in_more_than_16_bits() -> None:
    def scaled(x: jnp.ndarray, y: jnp.ndarray) -> jnp.ndarray:
        return (x.astype("f4") * 3) @ y.astype("f4")

    assert "mma_" not in kernels(NV, BF16, 64, 64, 64, function=scaled)


def test_runs_are_loaded_by_one_instruction() -> None:
    """Of the left operand along the depth, of the right one along the columns, two rows."""
    text = kernels(NV, BF16, 4096, 4096, 4096)
    assert text.count("load_4(left") == text.count("load_4(right") == 2 * 2
    assert "x0[" not in text and "x1[" not in text
    odd = kernels(NV, BF16, 64, 64, 61)
    assert "load_4(left" in odd and "load_4(right" not in odd and "x1[" in odd


def test_a_stage_or_two() -> None:
    """Two where several groups find room on a multiprocessor, with one barrier a step."""
    large = replace(NV, l1_bytes=228 << 10)
    assert kernels(large, BF16, 4096, 4096, 4096).count("BARRIER") == 1
    assert kernels(NV, BF16, 4096, 4096, 4096).count("BARRIER") == 2


def test_indices_of_32_bits_where_they_suffice() -> None:
    assert "i64" not in kernels(NV, F32, 512, 512, 512, function=dot)
    large = (lambda x: x + 1, (of(1 << 31, dtype="i1"),))
    assert "const i64 item" in code_of(large, NV).source


def test_functions_of_every_instruction() -> None:
    for name in ("mma", "mfma", "wmma"):
        for dtype in ("bf16", "f16"):
            assert f"FUNCTION void {name}_{dtype}(f32& c0" in fragment_function(f"{name}_{dtype}")
