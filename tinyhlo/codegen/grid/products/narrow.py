"""Products of floats of 16 bits: whether a device has an instruction for one, by which tile, and
which way its operands come to shared memory.

In: a Product. Out: a LoopProgram, or None.
"""

from __future__ import annotations

from dataclasses import replace

from tinyhlo.codegen.grid.products.ahead import AheadProduct
from tinyhlo.codegen.grid.products.contraction import Product
from tinyhlo.codegen.grid.products.fragments import WGMMA, Fragment, fragment_of
from tinyhlo.codegen.grid.products.grouped import GroupProduct
from tinyhlo.codegen.grid.products.matrices import MatrixProduct
from tinyhlo.codegen.grid.products.operands import holds
from tinyhlo.codegen.grid.products.tiles import soonest
from tinyhlo.codegen.grid.products.warps import COPIED, DEEP, HELD, GroupTile, group_tiles, tiles_of
from tinyhlo.codegen.loops import LoopProgram
from tinyhlo.ir.dtypes import BF16, F16, F32, DType

LEAST = 16  # rows and columns that are worth a fragment
LEAST_STAGES = 3
MOST_WRITTEN = 4096  # operations of all epilogues of an item


def in_fragments(product: Product) -> LoopProgram | None:
    """None where the device has no such instruction, or not for this product."""
    fragment, dtype = fragment_of(product.target), dtype_of(product)
    if fragment is None or dtype is None or product.node.dtype is not F32:
        return None
    if min(product.rows, product.columns) < LEAST or product.depth < LEAST:
        return None
    if fragment.copies:
        return ahead(product, dtype, fragment)
    room = product.target.group_bytes
    tiles = [t for t in tiles_of(fragment, HELD) if t.stage_bytes <= room]
    tile = soonest(tiles, product.extents, product.written(), MOST_WRITTEN, product.target)
    return MatrixProduct(product, dtype, fragment).program(tile) if tile else None


def ahead(product: Product, dtype: DType, fragment: Fragment) -> LoopProgram | None:
    """Stages enough must fit: one is read, one is there, and others come."""
    copying, target = AheadProduct(product, dtype, fragment), product.target
    tiles = tiles_of(fragment, HELD)
    if all(copying.copies(*each) for each in copying.operands):
        tiles = tiles_of(fragment, COPIED)
        if product.depth >= DEEP:
            tiles += [replace(tile, depth=DEEP) for tile in tiles]
            if "wgmma" in target.features.split():
                tiles += group_tiles(WGMMA)
    tiles = [t for t in tiles if t.stages(target) >= LEAST_STAGES]
    tile = soonest(tiles, product.extents, product.written(), MOST_WRITTEN, target)
    if isinstance(tile, GroupTile):
        return GroupProduct(product, dtype, WGMMA).program(tile)
    return copying.program(tile) if tile else None


def dtype_of(product: Product) -> DType | None:
    """What both operands are."""
    operands = product.c.left, product.c.right
    found = (d for d in (BF16, F16) if all(holds(product, each, d) for each in operands))
    return next(found, None)
