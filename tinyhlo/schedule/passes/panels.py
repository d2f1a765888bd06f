"""Matrices that the products of a loop read again and again, laid out once for them.

In: a Loop. Out: one that carries each such matrix in panels of as many columns as a tile has:

    for t: h = tanh(h @ w)    ->    p[j, k, c] = w[k, 16*j + c]
                                    for t: h = tanh(sum over k of h[k] * p[j, k, c], as a row)

A product then walks through memory in order, where rows of `w` that are a power of two apart take
turns in a few sets of the first cache, and it packs nothing in any iteration
(docs/decisions/0028-panels-of-a-loop.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyhlo.ir import build
from tinyhlo.ir.contraction import Contraction, find_contraction
from tinyhlo.ir.dtypes import F32, F64
from tinyhlo.ir.graph import Loop, Node, Permute
from tinyhlo.ir.ops import Op
from tinyhlo.records import dataclass
from tinyhlo.schedule.passes.lift import Lift
from tinyhlo.target import Target

TILE_VECTORS = 2  # columns of a tile
ROW_VECTORS = 8  # columns that a single row is multiplied by side by side
FEW_ROWS = 4  # fewer are multiplied one by one
IN_PLACE_ROWS = 18  # as many read a matrix where it lies, and one beyond the cache but once
LEAST_DEPTH = 16


@dataclass(frozen=True, slots=True)
class Panels:
    """The columns of `factor`, one axis `own` of a product with one `depth`, by `width`."""

    factor: Node
    own: int
    depth: int
    width: int


def find_panels(node: Node, lift: Lift, target: Target) -> Panels | None:
    """The invariant matrix of a product that gains from panels."""
    product = find_contraction(node)
    if product is None or product.batch or len(product.k) != 1 or node.dtype not in (F32, F64):
        return None
    sides = [side for side in (product, product.turned) if side.right in lift.invariant]
    if len(sides) != 1 or len(sides[0].n) != 1:
        return None
    (product,) = sides
    (own,), (depth,), rows = product.n, product.k, product.extent(product.m)
    columns = product.extent((own,))
    vectors = TILE_VECTORS if rows >= FEW_ROWS else ROW_VECTORS
    width = vectors * target.vector_bytes // node.dtype.itemsize
    nbytes = columns * product.extent((depth,)) * node.dtype.itemsize
    if rows <= IN_PLACE_ROWS and nbytes > 2 * target.l2_bytes:
        return None
    large = 2 * nbytes >= target.l1_bytes
    in_order = own == max((*product.m, own))
    deep = product.extent((depth,)) >= LEAST_DEPTH
    if not (large and in_order and deep) or columns % width or columns == width:
        return None
    return Panels(product.right, own, depth, width)


def along(factor: Node, axes: Sequence[int]) -> Node:
    """`factor` along some of its axes, in that order, at 0 of the others."""
    rank = range(len(factor.shape))
    stop = [factor.shape[axis] if axis in axes else 1 for axis in rank]
    part = build.slice_(factor, [0] * len(stop), stop)
    order = (*(axis for axis in rank if axis not in axes), *axes)
    return build.reshape(build.permute(part, order), tuple(factor.shape[axis] for axis in axes))


def laid_out(panels: Panels, factor: Node) -> Node:
    """The matrix as (panel, depth, column)."""
    matrix = along(factor, (panels.depth, panels.own))
    depth, columns = matrix.shape
    split = build.reshape(matrix, (depth, columns // panels.width, panels.width))
    return build.permute(split, (1, 0, 2))


def product_with(panels: Panels, matrix: Node, node: Node) -> Node:
    """What `node` computes, from the matrix in panels."""
    product = find_contraction(node)
    assert isinstance(product, Contraction)
    side = product.turned if panels.own in product.m else product
    rows = side.m
    other = along(side.left, (*rows, panels.depth))
    count, depth, width = matrix.shape
    shape = (*other.shape[:-1], count, depth, width)
    first = len(rows)
    left = build.broadcast(other, shape, (*range(first), first + 1))
    right = build.broadcast(matrix, shape, (first, first + 1, first + 2))
    sums = build.reduce(Op.ADD, build.elementwise(Op.MUL, left, right), [first + 1])
    return build.reshape(sums, node.shape)


def in_panels(loop: Loop, lift: Lift, target: Target) -> dict[Node, Panels]:
    """The products of a loop that are to read panels: not those that are stored turned, whose rows
    are columns then, as the gradient of a matrix is."""
    nodes = loop.body.nodes()
    turned = {node.inputs[0] for node in nodes if isinstance(node, Permute)}
    found = ((node, find_panels(node, lift, target)) for node in nodes if node not in turned)
    return {node: panels for node, panels in found if panels is not None}
