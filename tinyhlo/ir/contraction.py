"""Recognise a contraction by its axes: which operand of a summed product varies along which axis.

`sum(x[m,k] * w[k,n])` is `Reduce(ADD, MUL(left, right))` over the axes (m, n, k), where `left`
does not change along n and `right` not along m. dot_general and convolution arrive in that form; a
contraction that a user wrote as broadcast, multiply and sum has it too.
"""

from __future__ import annotations

from math import prod
from weakref import WeakKeyDictionary

from tinyhlo.ir.dtypes import is_lossless
from tinyhlo.ir.graph import (
    VIEWS,
    Elementwise,
    Expand,
    Flip,
    Gather,
    Iota,
    Node,
    Pad,
    Permute,
    Reduce,
    Reshape,
    Slice,
    Window,
)
from tinyhlo.ir.ops import MULTIPLICATIONS, Op
from tinyhlo.ir.views import axis_groups
from tinyhlo.records import dataclass

Axes = frozenset[int]
THROUGH = frozenset((Elementwise, Gather, *VIEWS))  # a value varies as its inputs do


@dataclass(frozen=True, eq=False, slots=True)
class Contraction:
    """Axes are those of the product's shape: `batch` in both operands and the result, `m` in left
    and result, `n` in right and result, `k` summed, in both or, of a product with m and n, in one.
    `left` and `right` have the product's full shape (with repeated values along the axes they do
    not have)."""

    left: Node
    right: Node
    batch: tuple[int, ...]
    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]

    def extent(self, axes: tuple[int, ...]) -> int:
        """Number of points along `axes`."""
        return prod(self.left.shape[axis] for axis in axes)

    @property
    def turned(self) -> Contraction:
        """The same with its factors exchanged."""
        return Contraction(self.right, self.left, self.batch, self.n, self.m, self.k)


# found once a node
_contractions: WeakKeyDictionary[Node, Contraction | None] = WeakKeyDictionary()
_varying: WeakKeyDictionary[Node, Axes] = WeakKeyDictionary()


def find_contraction(node: Node) -> Contraction | None:
    """The contraction that `node` computes, or None: at least one k axis and one of m or n."""
    if not isinstance(node, Reduce) or node.op is not Op.ADD:
        return None
    product = node.inputs[0]
    if not isinstance(product, Elementwise) or product.op not in MULTIPLICATIONS:
        return None
    if node not in _contractions:
        _contractions[node] = contraction_of(node, product)
    return _contractions[node]


def contraction_of(node: Reduce, product: Elementwise) -> Contraction | None:
    """The same for a sum of a product."""
    left, right = product.inputs
    in_left, in_right = varies(left), varies(right)
    axes = [axis for axis, extent in enumerate(product.shape) if extent != 1]
    k = tuple(axis for axis in axes if axis in node.axes)
    if not k or any(axis not in in_left | in_right for axis in k):
        return None
    kept = [axis for axis in axes if axis not in node.axes]
    batch = tuple(axis for axis in kept if axis in in_left and axis in in_right)
    m = tuple(axis for axis in kept if axis in in_left and axis not in in_right)
    n = tuple(axis for axis in kept if axis in in_right and axis not in in_left)
    if len(batch) + len(m) + len(n) != len(kept) or not (m or n):
        return None
    if not (m and n) and any(axis not in in_left & in_right for axis in k):
        return None
    return Contraction(left, right, batch, m, n, k)


def is_exact_cast(node: Node) -> bool:
    """Whether a node is a cast of numbers to a type that has them all."""
    if not isinstance(node, Elementwise) or node.op is not Op.CAST:
        return False
    narrow = node.inputs[0].dtype
    return narrow.kind != "bool" and is_lossless(narrow, node.dtype)


def varies(node: Node) -> Axes:
    """Axes of extent > 1 along which the value of `node` may change."""
    pending = [node]
    while pending:
        each = pending[-1]
        inputs = each.inputs if type(each) in THROUGH else ()
        missing = [child for child in inputs if child not in _varying]
        if missing:
            pending += missing
            continue
        pending.pop()
        if each not in _varying:
            shape = each.shape
            _varying[each] = frozenset([k for k in _varies(each) if shape[k] > 1])
    return _varying[node]


def _varies(node: Node) -> Axes:
    """The same for a node whose inputs are known, axes of extent 1 included."""
    rank = range(len(node.shape))
    match node:
        case Iota(axis=axis):
            return frozenset((axis,))
        case Elementwise(inputs=inputs):
            return frozenset().union(*(_varying[child] for child in inputs))
        case Expand(inputs=(source,)) | Slice(inputs=(source,)) | Flip(inputs=(source,)):
            return _varying[source]
        case Permute(inputs=(source,), order=order):
            return frozenset(k for k, axis in enumerate(order) if axis in _varying[source])
        case Pad(inputs=(source, _)):
            padded = (
                k for k in rank if node.low[k] > 0 or node.high[k] > 0 or node.interior[k] > 0
            )
            return _varying[source] | frozenset(padded)
        case Window(inputs=(source,)):
            half = len(source.shape)
            return frozenset(k for k in rank if k % half in _varying[source])
        case Reshape(inputs=(source,)):
            return reshaped(source.shape, node.shape, _varying[source])
        case Gather(inputs=(_, *indices)):
            return frozenset().union(*(_varying[child] for child in indices))
    return frozenset(rank)


def reshaped(source: tuple[int, ...], result: tuple[int, ...], inner: Axes) -> Axes:
    """A group of result axes varies when any axis of the source group it is made of does."""
    return frozenset(
        axis
        for first, stop, start, end in axis_groups(source, result)
        if not inner.isdisjoint(range(first, stop))
        for axis in range(start, end)
    )
