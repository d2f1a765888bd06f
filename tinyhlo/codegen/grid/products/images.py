"""A contraction whose operands are read as images: textures, which the GPU of a phone reads by
hardware of their own, through a cache of their own.

In: a Product on a Target with images. Out: a LoopProgram, or None where images do not pay or fit:

    local left_texels: f32 image of 129x512 texels; local right_texels: ..
    for texel in 65536: left_texels(..) = four rows at one depth
    for texel in 65536: right_texels(..) = four columns at one depth
    for tile in 128 grid:
      for item in 128 item:
        sum0 = 0 .. sum15 = 0                   # of the item: 4 rows by 4 columns
        for step in 128 ordered:                # 4 depths
          left0_0, .., left0_3 = left_texels(..)
          right0_0, .., right0_3 = right_texels(..)
          sum0 += left0_0 * right0_0 ..
        y[..] = epilogue(sum0) ..

What is before the sum is computed once, as an operand is packed (`texels.py`); items share no
memory and do not wait for each other.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tinyhlo.codegen.expressions import Memory, Read
from tinyhlo.codegen.grid.products.contraction import Place, Product
from tinyhlo.codegen.grid.products.texels import TEXEL, Blocks, Depths, Windows, find_windows
from tinyhlo.codegen.grid.products.tiles import Tile
from tinyhlo.codegen.loops import Allocate, Assign, Axis, Body, Loop, LoopProgram, Statement
from tinyhlo.ir.dtypes import F32
from tinyhlo.ir.index import Index, Var, index, unravel
from tinyhlo.records import dataclass

LEAST_DEPTH = 16
WORK = 32  # multiply-adds for each element that is packed; docs/decisions/0060-qcom.md
MOST_BYTES = 256 << 20  # of an image


@dataclass(frozen=True, slots=True)
class ImageTile(Tile):
    """An item's sums are neighbours."""

    def places(self, item: Index) -> list[tuple[Index, Index]]:
        y, x = unravel(item, self.shape)
        return [
            (y * self.item_rows + r, x * self.item_columns + c)
            for r in range(self.item_rows)
            for c in range(self.item_columns)
        ]

    def __str__(self) -> str:
        return f"texels, {Tile.__str__(self)}"


# 128 items, a wave of Adreno's; those that lie side by side read texels that do.
TILE = ImageTile(8 * TEXEL, 16 * TEXEL, TEXEL, TEXEL, TEXEL)


def in_images(product: Product) -> LoopProgram | None:
    """None where the device has no images, they would be too large, or packing costs too much."""
    target = product.target
    if not target.images or product.node.dtype is not F32 or TILE.items > target.group_items:
        return None
    if product.depth < LEAST_DEPTH:
        return None
    work = prod(product.extents)
    pays = (images for images in ways_of(product) if images.packing <= work and images.fit)
    images = min(pays, key=lambda images: images.packing + prod(images.extents), default=None)
    return None if images is None else images.program(images.tile)


def ways_of(product: Product) -> list[ImageProduct]:
    """By both operands as they are, and by windows of an array where one is that."""
    c = product.c
    windows = [
        ImageProduct(product, found)
        for found in (
            find_windows(product, c.left, c.m, "left"),
            find_windows(product, c.right, c.n, "right"),
        )
        if found is not None
    ]
    return [ImageProduct(product), *windows]


class ImageProduct(Product):
    """The same product by images; `windows` is one side, if any."""

    def __init__(self, product: Product, windows: Windows | None = None) -> None:
        super().__init__(product.kernel, product.node, product.layout, product.target)
        self.depths = windows.depths if windows else Depths.of(self, self.c.k, True)
        self.depth = self.depths.padded
        self.tile = replace(TILE, depth=windows.channels * TEXEL if windows else TEXEL)
        self.sides = tuple(
            windows if windows and windows.name == name else Blocks(self, operand, axes, name)
            for name, operand, axes in (
                ("left", self.c.left, self.c.m),
                ("right", self.c.right, self.c.n),
            )
        )

    @property
    def packing(self) -> int:
        """In multiply-adds."""
        return WORK * sum(side.image.size for side in self.sides)

    @property
    def fit(self) -> bool:
        most = self.target.images
        images = [side.image for side in self.sides]
        return all(max(i.width, i.height) <= most and i.nbytes <= MOST_BYTES for i in images)

    def program(self, tile: Tile) -> LoopProgram:
        program = super().program(tile)
        images = (Allocate(side.image) for side in self.sides)
        packed = (side.packed(self) for side in self.sides)
        return replace(program, body=(*images, *packed, *program.body))

    def multiplied(self, tile: Tile, place: Place) -> tuple[list[Memory], Body, Body]:
        before: list[Statement] = []
        body: list[Statement] = []
        run = Var("run", tile.depth // TEXEL)
        own = unravel(index(place.item), tile.shape)
        for side, first, number in zip(self.sides, (place.row, place.column), own, strict=True):
            binds, reads = side.reads(self, place, first + number * TEXEL, index(run))
            before += binds
            body += reads
        for deep in range(TEXEL):
            for number in range(tile.sums):
                r, c = divmod(number, tile.item_columns)
                factors = Read(f"left{deep}_{r}", F32), Read(f"right{deep}_{c}", F32)
                total = Read(f"sum{number}", F32)
                body.append(Assign((total.name,), (self.multiply_add(factors, total),)))
        runs = (Loop(run, Axis.ORDERED, tuple(body)),) if run.extent > 1 else tuple(body)
        return [], tuple(before), runs
