"""Recognise a product with a small constant matrix: a Fourier butterfly, a change of colours.

    y[k, j] = sum over t of where(M[k, t] != 0, M[k, t] * x[t, j], 0)

with M constant and the mask optional (with it, a zero coefficient hides an infinity in x; without
it, 0 * inf is NaN and the coefficient counts). Small means that a register can be spent on every
coefficient: code generation computes such a product without a loop over t or k.
"""

from __future__ import annotations

from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from tinyhlo.ir.build import splat_value
from tinyhlo.ir.contraction import varies
from tinyhlo.ir.graph import Constant, Elementwise, Graph, Node, Reduce
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import MULTIPLICATIONS, Op
from tinyhlo.ir.views import ARRANGED, below_views
from tinyhlo.records import dataclass

_found: WeakKeyDictionary[Node, Transform | None] = WeakKeyDictionary()
MAX_SIDE = 32  # rows and columns of the matrix
MAX_COEFFICIENTS = 16  # that differ in more than their sign: more would wait in memory


@dataclass(frozen=True, eq=False, slots=True)
class Transform:
    """`matrix` has one row for each point of the `row_axes` of the summed product, and one column
    for each point of its summed axes; `source` has the product's shape and is the same along
    `row_axes`. `constants` are the nodes that hold matrix and mask."""

    matrix: np.ndarray[Any, Any]
    row_axes: tuple[int, ...]
    source: Node
    constants: tuple[Node, ...]


def find_transform(node: Node) -> Transform | None:
    """The product with a small constant matrix that `node` computes, or None; found once a node."""
    if not isinstance(node, Reduce) or node.op is not Op.ADD or not node.dtype.is_float:
        return None
    masked = masked_product(node.inputs[0])
    if masked is None:
        return None
    if node not in _found:
        _found[node] = transform_of(node, *masked)
    return _found[node]


def transform_of(node: Reduce, mask: Node | None, product: Elementwise) -> Transform | None:
    """The same for a sum of masked products."""
    for factor, source in (product.inputs, product.inputs[::-1]):
        if not is_small_constant(factor):
            continue
        in_matrix, in_source = varies(factor), varies(source)
        rows = tuple(sorted(in_matrix - set(node.axes)))
        shape = product.shape
        sides = prod(shape[k] for k in rows), prod(shape[k] for k in node.axes)
        if in_source & set(rows) or max(sides) > MAX_SIDE or min(sides) < 2:
            return None
        if mask is not None and not (
            is_small_constant(mask) and varies(mask).issubset((*rows, *node.axes))
        ):
            return None
        matrix = values(factor, rows, node.axes).reshape(sides)
        kept = np.True_ if mask is None else values(mask, rows, node.axes).reshape(sides)
        if not np.isfinite(matrix).all() or not np.all((matrix != 0) == kept):
            return None
        if len(np.unique(np.abs(matrix))) > MAX_COEFFICIENTS:
            return None
        constants = tuple(below_views(n, ARRANGED) for n in (factor, mask) if n is not None)
        return Transform(matrix, rows, source, constants)
    return None


def masked_product(node: Node) -> tuple[Node | None, Elementwise] | None:
    """(mask, product) of where(mask, product, 0), or (None, product)."""
    match node:
        case Elementwise(op=op) if op in MULTIPLICATIONS:
            return None, node
        case Elementwise(op=Op.WHERE, inputs=(mask, Elementwise() as product, zero)):
            if product.op not in MULTIPLICATIONS:
                return None
            return (mask, product) if splat_value(zero) == 0 else None
    return None


def is_small_constant(node: Node) -> bool:
    """Views that only repeat and rearrange a constant array."""
    node = below_views(node, ARRANGED)
    return isinstance(node, Constant) and 1 < node.value.size <= MAX_SIDE * MAX_SIDE


def values(node: Node, rows: tuple[int, ...], columns: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The values of such views along `rows` and `columns`; they are the same along other axes."""
    (array,) = run_graph(Graph((), (node,)), ())
    others = tuple(k for k in range(array.ndim) if k not in rows and k not in columns)
    picked = array[tuple(0 if k in others else slice(None) for k in range(array.ndim))]
    kept = [k for k in range(array.ndim) if k not in others]
    return picked.transpose([kept.index(k) for k in (*rows, *columns)])
