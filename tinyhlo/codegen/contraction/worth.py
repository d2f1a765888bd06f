"""Which products are worth tiles: others are loops with vectors along rows or columns.

In: a contraction, the sources of its operands, the Target. Small ones of 4x4 matrices are, where
the columns lie across memory: tiles turn them once, and loops would for every row.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyhlo.codegen.contraction.layout import Layout, operand_strides
from tinyhlo.codegen.contraction.operand import SHORTEST, Source
from tinyhlo.codegen.lowering.fused import Lowering
from tinyhlo.codegen.moves.row_sums import is_simple
from tinyhlo.codegen.moves.term_tiles import FEWEST_TERMS, ROWS
from tinyhlo.ir.contraction import Contraction
from tinyhlo.ir.dtypes import F32, F64, DType
from tinyhlo.ir.graph import Elementwise
from tinyhlo.ir.index import point_of
from tinyhlo.ir.ops import TRANSCENDENTAL
from tinyhlo.target import SHORT, Target

# multiply-adds of a matrix below which loops are as good: of a batch whose columns lie across
# memory, where columns fill vectors, and others
ACROSS_WORK, FILLED_WORK, MIN_WORK = 48, 1 << 8, 1 << 10
# vectors that a row has at least, for lanes along rows: of five columns and more, and of four and
# more on which something dear is done, which lanes along the columns do
ROW_VECTORS, ROW_VECTORS_OF_DEAR = 4, 16


def least_work(product: Contraction, right: Source | None, filled: bool) -> int:
    """Multiply-adds that are worth tiles; `filled`: columns fill vectors."""
    if right is not None and right.flat().coefficient(product.n[-1]) != 1:
        return max(ACROSS_WORK, FILLED_WORK // product.extent(product.batch))
    return FILLED_WORK if filled else MIN_WORK


def is_along_batch(layout: Layout, dtype: DType, target: Target, lowering: Lowering) -> bool:
    """Whether memory runs along the batch in both operands and in the result: tiles of vectors of
    it (`moves/term_tiles.py`) load and store whole vectors, where each product would gather."""
    c, result = layout.contraction, lowering.kernel.graph.results[0]
    lanes = target.vector_bytes // dtype.itemsize
    few = min(c.extent(c.m), c.extent(c.n)) < ROWS or c.extent(c.k) < FEWEST_TERMS
    if dtype not in (F32, F64) or few:
        return False
    left, right = (operand_strides(lowering, operand) for operand in (c.left, c.right))
    place = max(axis for axis, extent in enumerate(result.shape) if extent > 1)
    places, along = dict(zip(layout.kept, layout.places, strict=True)), 1
    for axis in sorted(c.batch, key=left.__getitem__):  # those that memory walks as one
        if left[axis] == right[axis] == along and places.get(axis) == place:
            along, place = along * c.left.shape[axis], place - 1
    return along >= lanes


def is_along_rows(
    layout: Layout, dtype: DType, target: Target, right: Source | None, lowering: Lowering
) -> bool:
    """Whether rows in memory are multiplied by columns that leave half of a vector idle, or more
    than that where half of a long one takes half as long: lanes along the rows are all of use then
    (`moves/row_sums.py`)."""
    c = layout.contraction
    if dtype not in (F32, F64) or len(c.n) != 1 or right is None:
        return False
    lanes, columns, depth = target.vector_bytes // dtype.itemsize, c.extent(c.n), c.extent(c.k)
    stored = right.argument is not None and right.argument.dtype is dtype
    most = lanes // 2 if target.vector_bytes <= SHORT else lanes // 2 - 1
    few = columns <= most and lanes <= depth
    if not (few and stored and is_one_run(c, operand_strides(lowering, c.left))):
        return False
    nodes = lowering.kernel.graph.nodes()
    dear = any(isinstance(node, Elementwise) and node.op in TRANSCENDENTAL for node in nodes)
    fewest = SHORTEST if dear else SHORTEST + 1
    if columns >= fewest and depth < lanes * (ROW_VECTORS_OF_DEAR if dear else ROW_VECTORS):
        return False
    return is_simple(lowering.value(c.left, list(point_of(c.left.shape))))


def is_one_run(c: Contraction, strides: Sequence[int]) -> bool:
    """Whether memory walks the axes of the depth, outermost first, as one."""
    run = 1
    for axis in reversed(c.k):
        if strides[axis] != run:
            return False
        run *= c.left.shape[axis]
    return True
