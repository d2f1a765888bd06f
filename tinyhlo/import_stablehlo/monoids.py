"""Reduction regions: which are a monoid, and whether initial values matter to it.

^(a, b): return add(b, a)                      ->  Op.ADD
^(a, b): convert(add(convert a, convert b))    ->  Op.ADD   (halves added in f32)
"""

from __future__ import annotations

from tinyhlo.import_stablehlo.operands import accumulator, is_half, known_scalar
from tinyhlo.ir.build import broadcast, cast, elementwise
from tinyhlo.ir.dtypes import F32
from tinyhlo.ir.graph import Elementwise, Graph, Node, Param
from tinyhlo.ir.meaning import identity
from tinyhlo.ir.ops import MONOIDS, Op

ROUNDING = (Op.ADD, Op.MUL)  # monoids whose partial results round, so halves accumulate in f32


def monoids_of(graph: Graph) -> list[Op] | None:
    """The monoid of each value, where a region of 2n scalars combines each with its own kind, in
    either order of its operands."""
    count = len(graph.results)
    if len(graph.params) != 2 * count:
        return None
    found = [monoid_of(graph.results[k], {k, k + count}) for k in range(count)]
    return None if None in found else found  # type: ignore[return-value]


def monoid_of(result: Node, operands: set[int]) -> Op | None:
    """What combines two params; looks through a widening of halves around it."""
    if isinstance(result, Elementwise) and result.op is Op.CAST:
        if not is_half(result.dtype) or result.inputs[0].dtype is not F32:
            return None
        result = result.inputs[0]
    if not isinstance(result, Elementwise) or result.op not in MONOIDS:
        return None
    return result.op if {_position(node) for node in result.inputs} == operands else None


def _position(node: Node) -> int | None:
    """Which param a node is, looking through a widening cast."""
    if isinstance(node, Elementwise) and node.op is Op.CAST:
        node = node.inputs[0]
    return node.position if isinstance(node, Param) else None


def is_identity(op: Op, initial: Node) -> bool:
    """Whether combining with `initial` changes nothing (but the sign of a zero)."""
    known = known_scalar(initial)
    return known is not None and bool(known == identity(op, initial.dtype))


def is_idle(op: Op, initial: Node) -> bool:
    """Whether it does not matter how often `initial` is combined."""
    return op in (Op.MAX, Op.MIN, Op.AND, Op.OR) or is_identity(op, initial)


def widen(op: Op, node: Node) -> Node:
    """The node in the type in which `op` accumulates it. Maxima of halves are found in f32 as well:
    it is exact, and only the last one has to be made a half again."""
    wide = op in ROUNDING or op in (Op.MAX, Op.MIN)
    return cast(node, accumulator(node.dtype)) if wide else node


def with_initial(op: Op, reduced: Node, initial: Node) -> Node:
    """`reduced` combined with the initial value of a reduction, where that matters."""
    if is_identity(op, initial):
        return reduced
    start = broadcast(cast(initial, reduced.dtype), reduced.shape)
    return elementwise(op, reduced, start)
