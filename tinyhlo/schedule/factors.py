"""What products multiply, and what of it is stored: what products take as it is.

x @ cast(w)   ->  w, where products take its bfloat16 or its bytes as they are
"""

from __future__ import annotations

from collections.abc import Container, Set

from tinyhlo.ir import graph as ir
from tinyhlo.ir.contraction import find_contraction, is_exact_cast
from tinyhlo.ir.dtypes import BF16, F16, DType
from tinyhlo.ir.graph import Elementwise, Node
from tinyhlo.ir.ops import Op
from tinyhlo.ir.views import below_views
from tinyhlo.schedule.passes.planes import FEW_PRODUCTS
from tinyhlo.schedule.values import base, is_leaf, is_structure_value
from tinyhlo.target import MATRICES, Target


def taken_as_stored(target: Target) -> Set[DType]:
    """Floats of 16 bits that products multiply without widening them."""
    if any(map(target.has, MATRICES)):
        return {BF16, F16}
    return {BF16} if "bf16 bf16" in target.dots else set()


def operands(node: Node, narrow: Set[DType], stored: Container[Node]) -> tuple[Node, ...]:
    """Elementwise values that a product multiplies."""
    product = find_contraction(node)
    found = (product.left, product.right) if product is not None else repeated_factors(node)
    below = (narrowest(below_views(factor), narrow, stored) for factor in found)
    return tuple(value for value in below if isinstance(value, Elementwise))


def repeated_factors(node: Node) -> tuple[Node, ...]:
    """What a sum of two products at a time, as those of complex numbers are, takes many times."""
    if not isinstance(node, ir.Reduce) or node.inputs[0].type.size <= FEW_PRODUCTS:
        return ()
    terms = below_views(node.inputs[0], (ir.Permute,))
    if not isinstance(terms, Elementwise) or terms.op not in (Op.ADD, Op.SUB):
        return ()
    products = terms.inputs
    if not all(isinstance(each, Elementwise) and each.op is Op.MUL for each in products):
        return ()
    return tuple(f for each in products for f in each.inputs if isinstance(f, ir.Expand))


def narrowest(node: Node, narrow: Set[DType], stored: Container[Node]) -> Node:
    """What is stored for a value: exact casts of integers, of `narrow` floats (products take them
    as they are) and of what is in memory anyway are left to its readers. That is fewer bytes, and
    integers keep their known bounds."""
    node = base(node)
    while is_exact_cast(node):
        inner = below_views(node.inputs[0])
        small = inner.dtype.is_integer or inner.dtype in narrow
        if not (small or inner in stored or is_leaf(inner) or is_structure_value(inner)):
            return node
        node = inner
    return node
