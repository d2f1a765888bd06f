"""Sums of large products for the interpreter, by NumPy's einsum: a matmul costs a matmul.

sum(x[m,k] * w[k,n]) over k, both expanded to [m,n,k]  ->  einsum("mk,kn->mn", x, w)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tinyhlo.ir.graph import Elementwise, Expand, Node, Reduce
from tinyhlo.ir.ops import MULTIPLICATIONS, Op

HUGE_PRODUCT = 1 << 22  # elements of a product; smaller ones are written out


def is_huge_contraction(node: Node) -> bool:
    """A sum over a product of two expanded values, too large to write out."""
    if not isinstance(node, Reduce) or node.op is not Op.ADD or not node.dtype.is_float:
        return False
    product = node.inputs[0]
    return (
        isinstance(product, Elementwise)
        and product.op in MULTIPLICATIONS
        and prod(product.shape) > HUGE_PRODUCT
        and all(isinstance(factor, Expand) for factor in product.inputs)
    )


def contract(node: Reduce, factors: Sequence[np.ndarray]) -> np.ndarray:
    """Sum of products by einsum over the axes that the factors have; they repeat along others.
    Shorter floats than f32 are summed in f32: NumPy's einsum does not know bf16."""
    whole = node.inputs[0].shape
    operands: list[object] = []
    present: set[int] = set()
    for array in factors:
        kept = [k for k, stride in enumerate(array.strides) if stride]
        own = array[tuple(slice(None) if k in kept else 0 for k in range(array.ndim))]
        operands += [own.astype(np.result_type(own, np.float32), copy=False), kept]
        present.update(kept)
    out = [k for k in range(len(whole)) if k not in node.axes]
    scale = prod(whole[k] for k in node.axes if k not in present)
    result = np.einsum(*operands, [k for k in out if k in present], optimize=True)  # type: ignore[arg-type]
    result = result.reshape([whole[k] if k in present else 1 for k in out])
    result = np.broadcast_to(result * scale, node.shape)
    return np.ascontiguousarray(result.astype(node.dtype.numpy)).reshape(node.shape)
