"""Arrays that kernels for grids read across, in tiles that a group shares."""

from __future__ import annotations

from dataclasses import replace

from tests.codegen.test_several import GPU, kernel_of, text_of
from tinyhlo.codegen.grid.lower import lower
from tinyhlo.ir.build import broadcast, elementwise, full, param, permute
from tinyhlo.ir.dtypes import BF16, F32, I8, DType
from tinyhlo.ir.graph import Node
from tinyhlo.ir.ops import Op
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

TURNED = """\
kernel(x0: f32[524288], x1: f32[524288]) -> y0: f32[524288]
  for group in 512 grid:
    i_first = (group)//16*32
    j_first = (group)%16*32
    local tile0: f32[1056]
    for item in 256 item:
      tile0[(item)%32 + (item)//32*33] = x0[(item)%32 + (item)//32*1024 + i_first + j_first*1024]
      tile0[(item)%32 + (item)//32*33 + 264] = x0[(item)%32 + (item)//32*1024 + i_first + j_first*1024 + 8192]
      tile0[(item)%32 + (item)//32*33 + 528] = x0[(item)%32 + (item)//32*1024 + i_first + j_first*1024 + 16384]
      tile0[(item)%32 + (item)//32*33 + 792] = x0[(item)%32 + (item)//32*1024 + i_first + j_first*1024 + 24576]
      synchronize
      y0[(item)%32 + (item)//32*512 + i_first*512 + j_first] = (tile0[(item)%32*33 + (item)//32] + x1[(item)%32 + (item)//32*512 + i_first*512 + j_first])
      y0[(item)%32 + (item)//32*512 + i_first*512 + j_first + 4096] = (tile0[(item)%32*33 + (item)//32 + 8] + x1[(item)%32 + (item)//32*512 + i_first*512 + j_first + 4096])
      y0[(item)%32 + (item)//32*512 + i_first*512 + j_first + 8192] = (tile0[(item)%32*33 + (item)//32 + 16] + x1[(item)%32 + (item)//32*512 + i_first*512 + j_first + 8192])
      y0[(item)%32 + (item)//32*512 + i_first*512 + j_first + 12288] = (tile0[(item)%32*33 + (item)//32 + 24] + x1[(item)%32 + (item)//32*512 + i_first*512 + j_first + 12288])"""  # noqa: E501


def sums(rows: int, columns: int, dtype: DType = F32) -> Kernel:
    """The transpose of x, and y."""
    x, y = param(0, (columns, rows), dtype), param(1, (rows, columns), dtype)
    return kernel_of(elementwise(Op.ADD, permute(x, (1, 0)), y), x, y)


def printed(kernel: Kernel, target: Target = GPU) -> str:
    return str(lower(kernel, target))


def test_a_tile_is_read_and_written_along_rows() -> None:
    assert printed(sums(1024, 512)) == TURNED


def test_the_last_tile_overlaps_the_one_before() -> None:
    """So that no element has a condition."""
    kernel = sums(300, 301)
    assert "for group in 100 grid" in printed(kernel)
    text = text_of(kernel)
    assert "if (" not in text
    assert "< (i32)268u ?" in text and "< (i32)269u ?" in text


def test_what_is_computed_in_place_is_computed_once() -> None:
    def in_place(kernel: Kernel) -> Kernel:
        return replace(kernel, in_place=((0, 1),))

    assert "tile0" not in printed(in_place(sums(300, 301)))
    assert "tile0" in printed(in_place(sums(320, 320)))


def test_narrow_elements_have_larger_tiles() -> None:
    """Of as many bytes a row, in other banks each."""
    assert "local tile0: bf16[4224]" in printed(sums(512, 512, BF16))
    assert "local tile0: i8[4352]" in printed(sums(512, 512, I8))
    assert "local tile0: bf16[1088]" in printed(sums(2080, 63, BF16))


def test_the_same_element_is_read_once() -> None:
    x = param(0, (512, 512), F32)
    turned = permute(x, (1, 0))
    value: Node = elementwise(Op.MUL, turned, elementwise(Op.SIN, turned))
    assert printed(kernel_of(elementwise(Op.ADD, value, x), x)).count("local tile") == 1


def test_what_a_group_shares_is_bounded() -> None:
    params = [param(k, (512, 512), F32) for k in range(6)]
    value: Node = permute(params[0], (1, 0))
    for each in params[1:]:
        value = elementwise(Op.ADD, value, permute(each, (1, 0)))
    text = printed(kernel_of(value, *params))
    assert text.count("local tile") == 3 and text.count("tile2[") == 8 and text.count("x5[") == 4


def test_others_have_no_tiles() -> None:
    x, b = param(0, (512, 512), F32), param(1, (512,), F32)
    column = broadcast(b, (512, 512), (0,))
    cases = [
        kernel_of(elementwise(Op.ADD, x, column), x, b),  # the same for all neighbours
        sums(200, 200),  # small
        sums(1 << 14, 8),  # narrow
        sums(2049, 33),  # mostly computed twice
    ]
    assert not any("local tile" in printed(kernel) for kernel in cases)
    processor = replace(GPU, features="fp64 processor")
    assert "local tile" not in printed(sums(1024, 512), processor)


def test_axes_around_tiles_are_groups() -> None:
    x = param(0, (3, 128, 512), F32)
    doubled = elementwise(Op.MUL, permute(x, (0, 2, 1)), full(2.0, (3, 512, 128), F32))
    text = printed(kernel_of(doubled, x))
    assert "for group in 192 grid" in text and "i = (group)//64" in text


def test_axes_that_count_on_are_one() -> None:
    """Channels from last to first: rows of an image are no edges."""
    x = param(0, (2, 20, 72, 64), F32)
    moved = permute(x, (0, 3, 1, 2))
    doubled = elementwise(Op.MUL, moved, full(2.0, moved.shape, F32))
    text = printed(kernel_of(doubled, x))
    assert "for group in 180 grid" in text and "local tile0" in text  # 2 of 45 by 2
    rows = broadcast(param(1, (20,), F32), moved.shape, (2,))
    text = printed(kernel_of(elementwise(Op.MUL, moved, rows), x, param(1, (20,), F32)))
    assert "for group in 240 grid" in text and "local tile0" in text  # 2 of 20 of 3 by 2
