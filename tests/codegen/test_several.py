"""Kernels of large arrays, whose items have several elements each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.codegen.test_grid import DEVICE
from tinyhlo.codegen.grid.mapping import pieces_of
from tinyhlo.codegen.grid.render import device_code
from tinyhlo.codegen.lowering.fused import lower_fused
from tinyhlo.ir.build import broadcast, elementwise, param, reduce
from tinyhlo.ir.dtypes import BF16, F32, F64, U8, DType
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.ops import Op
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

GPU = replace(DEVICE, device="NV", threads=10)


def sums(*shape: int, dtype: DType = F32) -> Kernel:
    """x + y, where y is the same in each row."""
    x, y = param(0, shape, dtype), param(1, shape[-1:], dtype)
    wide = y if len(shape) == 1 else broadcast(y, shape, (len(shape) - 1,))
    return kernel_of(elementwise(Op.ADD, x, wide), x, y)


def kernel_of(result: Node, *params: Node) -> Kernel:
    return Kernel("kernel", Graph(tuple(each.type for each in params), (result,)))


def items_of(kernel: Kernel, target: Target = GPU) -> list[tuple[int, int]]:
    pieces, _ = pieces_of(lower_fused(kernel), target)
    return [(piece.groups, piece.items) for piece in pieces]


def text_of(kernel: Kernel, target: Target = GPU) -> str:
    source = device_code([kernel], target).source
    return source[source.index("\nKERNEL(") :]


@pytest.mark.parametrize(
    ("dtype", "each"), [(F64, 2), (F32, 4), (BF16, 8), (U8, 8)], ids=lambda x: str(x)
)
def test_an_item_has_as_many_bytes_of_each_type(dtype: DType, each: int) -> None:
    assert items_of(sums(1 << 20, dtype=dtype)) == [((1 << 20) // 256 // each, 256)]


def test_small_arrays_fill_the_device_first() -> None:
    assert items_of(sums(20479)) == [(80, 256)]
    assert items_of(sums(2 * 20480)) == [(80, 256)]
    assert items_of(sums(4 * 20480)) == [(80, 256)]


def test_a_processor_has_vectors_instead() -> None:
    processor = replace(GPU, features="fp64 processor")
    assert items_of(sums(1 << 20), processor) == [(4096, 256)]


def test_work_that_takes_longer_than_memory_is_not_written_out() -> None:
    x = param(0, (1 << 20,), F32)
    value: Node = x
    for _ in range(9):
        value = elementwise(Op.SIN, value)
    assert items_of(kernel_of(value, x)) == [(4096, 256)]


def test_loads_come_before_stores() -> None:
    lines = text_of(sums(300, 1024)).splitlines()
    kinds = ["load" if "= x0[" in x else "store" if "y0[" in x else "" for x in lines]
    assert [kind for kind in kinds if kind] == ["load"] * 4 + ["store"] * 4


def test_a_quarter_of_rows_each_divides_once() -> None:
    """And loads once what is the same in all of them."""
    text = text_of(sums(1000, 900))
    assert text.count("/") == 1 and text.count("%") == 1
    assert text.count("= x0[") == 4 and text.count("= x1[") == 1


def test_ranges_overlap_where_nothing_can_be_cut() -> None:
    """And no item has a condition but that it is one."""
    kernel = sums(901, 999)
    text = text_of(kernel)
    assert text.count("if (") == 1 and text.count("y0[") == 4
    assert items_of(kernel) == [(880, 256)]
    lines = [line for line in text.splitlines() if "y0[" in line]
    assert f"+ {901 * 999 - 225056})" in lines[-1]  # the last of them ends with the array


def test_what_is_computed_in_place_is_computed_once() -> None:
    kernel = sums(901, 999)
    assert items_of(replace(kernel, in_place=((0, 0),))) == [(3517, 256)]


def test_what_sums_keeps_its_own_mapping() -> None:
    x = param(0, (100000, 16), F32)
    assert items_of(kernel_of(reduce(Op.ADD, x, (1,)), x)) == [(391, 256)]
