"""Products by images, printed: what texels are, which products read them. Right numbers:
`grid_programs.py` on QCOM, and `runtime/test_qcom.py` for what no image holds."""

from __future__ import annotations

import re
from dataclasses import replace

import jax.numpy as jnp
import pytest

from tests.codegen.grid_programs import Program, code_of, conv, dot, of, wide
from tests.codegen.test_contraction import dot as product_of
from tests.codegen.test_grid import DEVICE
from tinyhlo.codegen.expressions import Memory
from tinyhlo.codegen.grid.lower import lower
from tinyhlo.codegen.grid.products import images
from tinyhlo.codegen.grid.products.tiles import Tile
from tinyhlo.ir.build import elementwise, param
from tinyhlo.ir.dtypes import F32
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.ops import Op
from tinyhlo.schedule.program import Kernel

ADRENO = replace(
    DEVICE, device="QCOM", features="", fma=False, threads=12, group_items=1024, images=16384
)

PRODUCT = """\
product(x0: f32[1206], x1: f32[1188]) -> y0: f32[4422]
  [texels, tile 4x4x4 of 4x4]
  local left_texels: f32 image of 17x20 texels
  local right_texels: f32 image of 17x20 texels
  for left_texel in 340:
    left_texels((left_texel)//20, (left_texel)%20) = (0 <= (left_texel)%20 < 18 ? x0[(left_texel)%20 + (left_texel)//20*72] : 0.0), (0 <= (left_texel)%20 < 18 ? x0[(left_texel)%20 + (left_texel)//20*72 + 18] : 0.0), (0 <= (left_texel)%20 < 18 ? x0[(left_texel)%20 + (left_texel)//20*72 + 36] : 0.0), (0 <= (left_texel)//20*4 + 3 < 67 and 0 <= (left_texel)%20 < 18 ? x0[(left_texel)%20 + (left_texel)//20*72 + 54] : 0.0)
  for right_texel in 340:
    right_texels((right_texel)%17, (right_texel)//17) = (0 <= (right_texel)//17 < 18 ? x1[(right_texel)%17*4 + (right_texel)//17*66] : 0.0), (0 <= (right_texel)//17 < 18 ? x1[(right_texel)%17*4 + (right_texel)//17*66 + 1] : 0.0), (0 <= (right_texel)%17*4 + 2 < 66 and 0 <= (right_texel)//17 < 18 ? x1[(right_texel)%17*4 + (right_texel)//17*66 + 2] : 0.0), (0 <= (right_texel)%17*4 + 3 < 66 and 0 <= (right_texel)//17 < 18 ? x1[(right_texel)%17*4 + (right_texel)//17*66 + 3] : 0.0)
  for tile in 289 grid:
    for item in 1 item:
      sum0 = 0.0
      left_x = (tile)//17
      right_x = (tile)%17
      for step in 5 ordered:
        left0_0, left0_1, left0_2, left0_3 = left_texels(left_x, step*4)
        left1_0, left1_1, left1_2, left1_3 = left_texels(left_x, step*4 + 1)
        left2_0, left2_1, left2_2, left2_3 = left_texels(left_x, step*4 + 2)
        left3_0, left3_1, left3_2, left3_3 = left_texels(left_x, step*4 + 3)
        right0_0, right0_1, right0_2, right0_3 = right_texels(right_x, step*4)
        right1_0, right1_1, right1_2, right1_3 = right_texels(right_x, step*4 + 1)
        right2_0, right2_1, right2_2, right2_3 = right_texels(right_x, step*4 + 2)
        right3_0, right3_1, right3_2, right3_3 = right_texels(right_x, step*4 + 3)
        sum0 = fma(left0_0, right0_0, sum0)
        sum0 = fma(left1_0, right1_0, sum0)
        sum0 = fma(left2_0, right2_0, sum0)
        sum0 = fma(left3_0, right3_0, sum0)
      y0[(tile)%17*4 + (tile)//17*264] = neg(sum0)"""  # noqa: E501


def source(program: Program, **changes: int | bool) -> str:
    text = code_of(program, replace(ADRENO, **changes)).source
    return text[text.index("\nKERNEL(") :]


def images_of(program: Program) -> dict[str, Memory]:
    (code,) = code_of(program, ADRENO).kernels.values()
    return {image.name: image for each in code.dispatches for image in each.images}


def test_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its sums, the first. A texel is four rows (or columns) at one depth, zero where there are
    none."""
    monkeypatch.setattr(images, "TILE", images.ImageTile(4, 4, 4, 4, 4))
    monkeypatch.setattr(images, "WORK", 1)
    left, right = param(0, (67, 18), F32), param(1, (18, 66), F32)
    graph = Graph((left.type, right.type), (elementwise(Op.NEG, product_of(left, right)),))
    text = str(lower(Kernel("product", graph), ADRENO))
    lines = [line for line in text.splitlines() if not re.search(r"sum[1-9]|^ +if ", line)]
    assert "\n".join(lines) == PRODUCT


def test_what_a_step_of_an_item_does() -> None:
    """4 depths: 8 texels, 64 multiply-adds; no memory of the group, nobody waits. Where the device
    fuses no products with sums, it may round twice."""
    text = source((dot, (of(512, 512), of(512, 512))))
    assert len(re.findall(r"= read_f32\(", text)) == 8
    assert text.count("= mad(") == 64 and "fma(" not in text
    assert text.count("write_f32(") == 2
    assert "BARRIER" not in text and "SHARED" not in text and "i64" not in text
    assert source((dot, (of(512, 512), of(512, 512))), fma=True).count("= fma(") == 64


def test_which_products() -> None:
    """Large enough for what packing costs, of f32 or floats that are widened to it."""

    def has(program: Program, **changes: int) -> bool:
        return "image2d_t" in source(program, **changes)

    assert has((dot, (of(64, 64), of(64, 64))))
    assert not has((dot, (of(64, 64), of(64, 64))), images=0)
    assert not has((dot, (of(64, 64), of(64, 64))), group_items=64)
    assert not has((dot, (of(24, 4096), of(4096, 4096))))  # each weight is read 24 times
    assert not has((dot, (of(4096, 8), of(8, 4096))))  # a sum of 8: its result is what takes time
    assert not has((dot, (of(64, 64, dtype="i4"), of(64, 64, dtype="i4"))))


def test_images_of_16_bits() -> None:
    """What an operand is widened from; f32 where it is computed in f32."""
    for dtype, name in (("f2", "f16"), (jnp.bfloat16, "bf16")):
        program = (wide, (of(128, 128, dtype=dtype), of(128, 128, dtype=dtype)))
        assert {image.dtype.name for image in images_of(program).values()} == {name}
        assert len(re.findall(rf"= read_{name}\(", source(program))) == 8
    mixed = (
        lambda x, y: (x.astype("f4") * 3) @ y.astype("f4"),
        (of(128, 128, dtype="f2"), of(128, 128, dtype="f2")),
    )
    found = images_of(mixed)
    assert found["left_texels"].dtype is F32 and found["right_texels"].dtype.name == "f16"


def size_of(program: Program, side: str = "left") -> tuple[int, int]:
    image = images_of(program)[f"{side}_texels"]
    return image.width, image.height


def test_how_large_images_are() -> None:
    """Rows of no power of two texels; what is too wide goes on further below."""
    assert size_of((dot, (of(512, 500), of(500, 400)))) == (129, 500)
    assert size_of((dot, (of(512, 500), of(500, 400))), "right") == (100, 500)
    assert size_of((dot, (of(512, 401), of(401, 400)))) == (129, 404)
    assert size_of((dot, (of(65536, 64), of(64, 64)))) == (16384, 64)
    assert size_of((dot, (of(70000, 64), of(64, 64)))) == (8750, 2 * 64)
    batch = (jnp.matmul, (of(300, 64, 64), of(300, 64, 256)))
    assert size_of(batch) == (300 * 16, 64)
    assert size_of(batch, "right") == (9600, 2 * 64)


def test_what_no_image_holds() -> None:
    """It is read from buffers."""
    assert "image2d_t" in source((dot, (of(64, 16384), of(16384, 64))))
    assert "image2d_t" not in source((dot, (of(64, 16388), of(16388, 64))))
    assert "image2d_t" not in source((dot, (of(70000, 9000), of(9000, 64))))


def test_windows_are_packed_once() -> None:
    """Texels are channels of a pixel of the padded picture, 58 x 58; a step reads one of an item's
    four windows each, where the next step reads what its neighbour has read."""
    program = (conv(1), (of(2, 64, 56, 56), of(96, 64, 3, 3)))
    found = images_of(program)
    assert [(i.width, i.height) for i in found.values()] == [(24, 576), (16 * 58, 2 * 58)]
    text = source(program)
    assert len(re.findall(r"= read_f32\(right_texels", text)) == 4
    assert "for (i32 step_9 = 0;" in text and "for (i32 run_16 = 0;" in text


def test_windows_of_few_channels() -> None:
    """Three of a texel's four are worth it; one alone is not."""
    assert size_of((conv(1), (of(1, 3, 64, 64), of(64, 3, 7, 7))), "right") == (70, 70)
    assert size_of((conv(1), (of(1, 1, 64, 64), of(64, 1, 7, 7))), "right") == (1024 + 1, 52)


def test_tiles_of_other_devices_are_as_they_were() -> None:
    assert str(images.TILE) == f"texels, {Tile(32, 64, 4, 4, 4)}"
    text = code_of((dot, (of(64, 64), of(64, 64))), DEVICE).source
    assert "texels" not in text and "fma(" in text
