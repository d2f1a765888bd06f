"""Which way a Kernel becomes loops for a grid, by its root node."""

from __future__ import annotations

from dataclasses import replace

from tinyhlo.codegen.grid.across import turned
from tinyhlo.codegen.grid.factors.lower import lower_call
from tinyhlo.codegen.grid.parts import in_parts
from tinyhlo.codegen.grid.products.contraction import find_product, in_tiles
from tinyhlo.codegen.grid.products.images import in_images
from tinyhlo.codegen.grid.products.narrow import in_fragments
from tinyhlo.codegen.grid.products.wide import in_fours
from tinyhlo.codegen.grid.scan import lower_scan
from tinyhlo.codegen.grid.scatter.lower import lower_scatter
from tinyhlo.codegen.grid.sort.lower import lower_sort
from tinyhlo.codegen.grid.transform import lower_transform
from tinyhlo.codegen.loops import LoopProgram
from tinyhlo.codegen.lowering.fused import lower_fused
from tinyhlo.codegen.lowering.kernel import LOWERINGS as PROCESSOR_LOWERINGS
from tinyhlo.codegen.moves.basic import join
from tinyhlo.ir.graph import LibraryCall, Scan, Scatter, Sort
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

PRODUCTS = (in_fragments, in_images, in_fours, in_tiles)  # the best one first
LOWERINGS = {
    **PROCESSOR_LOWERINGS,
    LibraryCall: lower_call,
    Scan: lower_scan,
    Scatter: lower_scatter,
    Sort: lower_sort,
}


def lower(kernel: Kernel, target: Target) -> LoopProgram:
    """The LoopProgram of any kernel but library calls."""
    lowering = LOWERINGS.get(type(kernel.root))
    if lowering is not None:
        return lowering(kernel, target)
    transformed = lower_transform(kernel, target)
    if transformed:
        return transformed
    product = find_product(kernel, target)
    tiled = product and next(filter(None, (way(product) for way in PRODUCTS)), None)
    if tiled:
        return tiled
    program = lower_fused(kernel)
    program = in_parts(replace(program, body=join(program.body)), target)
    return turned(program, target)
