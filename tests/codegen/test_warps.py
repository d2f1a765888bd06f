"""Sums of a group through registers of its warps, and rows that a warp has each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.codegen.test_grid import rows_divided
from tests.codegen.test_several import GPU, kernel_of, text_of
from tinyhlo.codegen.grid.mapping import Piece, pieces_of
from tinyhlo.codegen.lowering.fused import lower_fused
from tinyhlo.ir.build import elementwise, param, reduce
from tinyhlo.ir.dtypes import F32
from tinyhlo.ir.ops import Op
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

WARPS = replace(GPU, features="fp64 warps")  # of which 320 fill it


def divided(rows: int, columns: int) -> Kernel:
    x = param(0, (rows, columns), F32)
    return kernel_of(rows_divided(x), x)


def piece_of(kernel: Kernel, target: Target = WARPS) -> Piece:
    (piece,), _ = pieces_of(lower_fused(kernel), target)
    return piece


def test_a_sum_of_a_group_waits_once() -> None:
    """Warps tell each other what they have found: 5 steps in each, then 3 among 8 of them."""
    x = param(0, (64, 3000), F32)
    text = text_of(kernel_of(reduce(Op.ADD, x, (1,)), x), WARPS)
    assert text.count("across(") == 8
    assert text.count("BARRIER;") == 3  # and around the store
    assert "SHARED f32 all_v11[8];" in text and "if (LANE == 0) {" in text


def test_others_wait_for_every_step() -> None:
    x = param(0, (64, 3000), F32)
    text = text_of(kernel_of(reduce(Op.ADD, x, (1,)), x), GPU)
    assert "across(" not in text and "LANE" not in text
    assert "for (i32 v6 = 128; v6 > 0; v6 /= 2) {" in text


@pytest.mark.parametrize("columns", [32, 100, 1024])
def test_a_warp_for_each_short_row(columns: int) -> None:
    kernel = divided(400, columns)
    piece = piece_of(kernel)
    assert (piece.groups, piece.items, piece.rows) == (50, 256, 8)
    text = text_of(kernel, WARPS)
    assert "SHARED" not in text and "\n  BARRIER" not in text
    assert "const i32 item_400 = GROUP * 8 + ITEM / 32;" in text
    assert text.count("across(") == 5


def test_the_last_group_may_have_fewer_rows() -> None:
    kernel = divided(401, 100)
    assert piece_of(kernel).groups == 51
    assert "if (item_401 < 401) {" in text_of(kernel, WARPS)


@pytest.mark.parametrize(
    ("rows", "columns", "target"), [(319, 100, WARPS), (400, 1025, WARPS), (400, 100, GPU)],
    ids=["few rows", "long rows", "without warps"],
)  # fmt: skip
def test_a_group_for_other_rows(rows: int, columns: int, target: Target) -> None:
    piece = piece_of(divided(rows, columns), target)
    assert (piece.groups, piece.rows) == (rows, 1)


def test_what_rows_read_again_is_written_out() -> None:
    """So that a compiler keeps it in registers."""
    text = text_of(divided(400, 1000), WARPS)
    assert text.count("UNROLLED for (i32 turn_32 = 0; turn_32 < 32; turn_32 += 1) {") == 2
    assert text.count("if (((LANE % 32) + turn_32 * 32) < 1000) {") == 2
    assert "for (i32 j_9000 = ITEM; j_9000 < 9000; j_9000 += 256) {" in text_of(
        divided(400, 9000), WARPS
    )


def test_much_work_is_not_written_out() -> None:
    x = param(0, (400, 1024), F32)
    value = x
    for _ in range(3):
        value = elementwise(Op.TANH, value)
    assert "UNROLLED" not in text_of(kernel_of(reduce(Op.ADD, value, (1,)), x), WARPS)
