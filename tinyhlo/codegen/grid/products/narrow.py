"""Products by instructions for matrices: whether a device has one, by which tile, and which way its
operands come to shared memory.

In: a Product. Out: a LoopProgram, or None.
"""

from __future__ import annotations

from dataclasses import replace

from tinyhlo.codegen.grid.products.ahead import AheadProduct
from tinyhlo.codegen.grid.products.contraction import Product
from tinyhlo.codegen.grid.products.fragments import MMA, OF_F32, TF32, WGMMA, fragment_of
from tinyhlo.codegen.grid.products.matrices import MatrixProduct
from tinyhlo.codegen.grid.products.operands import holds
from tinyhlo.codegen.grid.products.tf32 import RoundedProduct, SplitProduct
from tinyhlo.codegen.grid.products.tiles import soonest
from tinyhlo.codegen.grid.products.warpgroups import WarpgroupProduct
from tinyhlo.codegen.grid.products.warps import (
    COPIED,
    DEEP,
    HELD,
    Shape,
    WarpgroupTile,
    tiles_of,
    warpgroup_tiles,
)
from tinyhlo.codegen.loops import LoopProgram
from tinyhlo.ir.dtypes import BF16, F16, F32, U16, DType
from tinyhlo.ir.graph import Elementwise

LEAST = 16  # rows and columns that are worth a fragment
LEAST_STAGES = 3
MOST_WRITTEN = 4096  # operations of all epilogues of an item


def in_fragments(product: Product) -> LoopProgram | None:
    """None where the device has no such instruction, or not for this product."""
    if product.node.dtype is not F32:
        return None
    if min(product.rows, product.columns) < LEAST or product.depth < LEAST:
        return None
    fragment, dtype = fragment_of(product.target), dtype_of(product)
    if fragment is None or dtype is None:
        return in_tf32(product)
    if fragment.copies:
        return ahead(AheadProduct(product, dtype, fragment), COPIED)
    room = product.target.group_bytes
    tiles = [t for t in tiles_of(fragment, HELD) if t.stage_bytes <= room]
    tile = soonest(tiles, product.extents, product.written(), MOST_WRITTEN, product.target)
    return MatrixProduct(product, dtype, fragment).program(tile) if tile else None


def in_tf32(product: Product) -> LoopProgram | None:
    """Where a product of f32 may be that."""
    terms = product.node.inputs[0]
    fragment = OF_F32.get(terms.op) if isinstance(terms, Elementwise) else None
    operands = product.c.left, product.c.right
    if fragment is None or any(each.dtype is not F32 for each in operands):
        return None
    if not product.target.has(MMA.name):
        return None
    if fragment is TF32:
        return ahead(RoundedProduct(product, fragment), COPIED)
    return ahead(SplitProduct(product, fragment), tuple(s for s in COPIED if s[2] * s[3] <= 64))


def ahead(product: AheadProduct, shapes: tuple[Shape, ...]) -> LoopProgram | None:
    """Stages enough must fit: one is read, one is there, and others come. `shapes`: of tiles for
    operands that are copied."""
    fragment, target = product.fragment, product.target
    tiles = tiles_of(fragment, HELD)
    widths = [product.copies(*each) for each in product.operands]
    if all(widths):
        tiles = tiles_of(fragment, shapes)
        deep = DEEP * U16.itemsize // fragment.itemsize
        # Places of many words, copied one by one, would take many registers.
        if product.depth >= deep and min(widths) > 1:
            tiles += [replace(tile, depth=deep) for tile in tiles]
        if fragment is MMA and target.has(WGMMA.name) and product.depth >= DEEP:
            tiles += warpgroup_tiles()
    tiles = [t for t in tiles if t.stages(target) >= LEAST_STAGES]
    tile = soonest(tiles, product.extents, product.written(), MOST_WRITTEN, target)
    if isinstance(tile, WarpgroupTile):
        return WarpgroupProduct(product, product.dtype, WGMMA).program(tile)
    return product.program(tile) if tile else None


def dtype_of(product: Product) -> DType | None:
    """What both operands are."""
    operands = product.c.left, product.c.right
    found = (d for d in (BF16, F16) if all(holds(product, each, d) for each in operands))
    return next(found, None)
