"""What simplifies elementwise work by its operands: constants, identities, bounds of integers.

    x * 1 -> x,   cast(cast(x, f32), f64) -> cast(x, f64),   x ** 2 -> x * x

In: a node. Out: an equal one, or None where the step does not apply.
"""

from __future__ import annotations

import numpy as np

from tinyhlo.ir import build
from tinyhlo.ir.build import splat_value
from tinyhlo.ir.dtypes import holds_positions
from tinyhlo.ir.graph import (
    Constant,
    Elementwise,
    Expand,
    Flip,
    Iota,
    Node,
    Permute,
    Reshape,
    Slice,
)
from tinyhlo.ir.meaning import evaluate
from tinyhlo.ir.ops import Op
from tinyhlo.ir.steps.algebra import ALGEBRA, joins
from tinyhlo.ir.steps.rewrite import rewrite

MOST_FOLDED = 1024  # elements: larger constants are never computed at compile time
MOST_COMPARED = 1 << 16  # and of which limits are found


def algebra(node: Elementwise) -> Node | None:
    return rewrite(node, ALGEBRA)


def double_cast(node: Elementwise) -> Node | None:
    inner = node.inputs[0]
    if node.op is not Op.CAST or not isinstance(inner, Elementwise) or inner.op is not Op.CAST:
        return None
    source = inner.inputs[0]
    if not joins(source.dtype, inner.dtype, node.dtype):
        return None
    return build.cast(source, node.dtype)


def fold_constants(node: Elementwise) -> Node | None:
    """Small dense constants and scalars; a splat is computed once, on its scalar."""
    splats = [splat_value(child) for child in node.inputs]
    if all(value is not None for value in splats):
        value = evaluate(node.op, splats, node.dtype)  # type: ignore[arg-type]
        return build.broadcast(build.constant(np.asarray(value)), node.shape)
    if node.type.size > MOST_FOLDED:
        return None
    arrays: list[np.ndarray] = []
    for child, splat in zip(node.inputs, splats, strict=True):
        if splat is not None:
            arrays.append(np.broadcast_to(splat, node.shape))
        elif isinstance(child, Constant):
            arrays.append(child.value)
        else:
            return None
    return build.constant(evaluate(node.op, arrays, node.dtype))


def clamps(node: Elementwise) -> Node | None:
    """Integers between constants are min(max(x, low), high), each bound once, and neither that
    they keep anyway.

    In the other order ptxas up to 13.0 takes max(min(x, 7), 0) == 7 to be true on sm_90, whatever x
    is (docs/decisions/0052)."""
    found = bounded(node)
    if found is not None:
        (least, most), bound = limits(found[0]), found[1]
        if least >= bound if node.op is Op.MAX else most <= bound:
            return found[0]
    match found:
        case (Elementwise() as source, bound) if (inner := bounded(source)) is not None:
            x, first = inner
        case _:
            return None
    nearer = max if node.op is Op.MAX else min
    if source.op is node.op:
        return build.elementwise(node.op, x, x.constant(nearer(bound, first)))
    if nearer(bound, first) == bound:  # all that is on the other side of the first bound
        return x.constant(bound)
    if node.op is Op.MIN:
        return None
    low = x.at_least(bound)
    low = (clamps(low) if isinstance(low, Elementwise) else None) or low
    return low.at_most(first)


def bounded(node: Node) -> tuple[Node, int] | None:
    """What is not above, or not below, a constant, and that."""
    if not isinstance(node, Elementwise) or node.op not in (Op.MIN, Op.MAX):
        return None
    if not node.dtype.is_integer:
        return None
    for x, other in (node.inputs, node.inputs[::-1]):
        value = splat_value(other)
        if value is not None:
            return x, int(value)
    return None


def certain(node: Elementwise) -> Node | None:
    """A comparison of integers whose bounds decide it."""
    x, y = node.inputs[0], node.inputs[-1]
    if node.op not in (Op.LT, Op.LE) or not x.dtype.is_integer:
        return None
    (least, most), (low, high) = limits(x), limits(y)
    if node.op is Op.LE:
        low, high = low + 1, high + 1
    if most < low or least >= high:
        return build.full(most < low, node.shape, node.dtype)
    return None


def limits(node: Node) -> tuple[int, int]:
    """The least and the largest that an integer can be, as far as constants say."""
    value = splat_value(node)
    if value is not None:
        return int(value), int(value)
    match node:
        case Iota(shape=shape, axis=axis) if holds_positions(node.dtype, shape[axis]):
            return 0, max(shape[axis] - 1, 0)
        case Constant(value=known) if 0 < known.size <= MOST_COMPARED and known.dtype.kind in "iu":
            return int(known.min()), int(known.max())
        case Reshape() | Permute() | Expand() | Slice() | Flip():
            return limits(node.inputs[0])
        case Elementwise(op=Op.MIN | Op.MAX as op) if (found := bounded(node)) is not None:
            nearer, each = (max if op is Op.MAX else min), limits(found[0])
            return nearer(each[0], found[1]), nearer(each[1], found[1])
        case _:
            low, high = node.dtype.bounds
            return int(low), int(high)


def plain_power(node: Elementwise) -> Node | None:
    """Powers of 1, 2, 3, +-1/2 and +-3/2 by products and a square root, within 2 ulp; types
    narrower than 32 bits would round too early."""
    if node.op is not Op.POW or node.dtype.bits < 32:
        return None
    x, splat = node.inputs[0], splat_value(node.inputs[1])
    if splat is None:
        return None
    match exponent := float(splat):
        case 1.0:
            return x
        case 2.0:
            return x * x
        case 3.0:
            return x * x * x
        case 0.5:
            result = build.sqrt(x) + 0.0  # -0 has the power +0
        case 1.5:
            result = x * build.sqrt(x)
        case -0.5:
            result = 1 / (build.sqrt(x) + 0.0)
        case -1.5:
            result = 1 / x / build.sqrt(x)
        case _:
            return None
    # the only negative with a power
    return build.where(x.equals(-np.inf), np.inf if exponent > 0 else 0.0, result)
