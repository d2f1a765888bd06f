"""Values that are compared with extremes of themselves come out alike, wherever they are computed.

In: a Graph. Out: an equivalent one, where such values are sums of rounded products:

    x * y + z == max(x * y + z)   ->   rounded(x * y) + z == max(rounded(x * y) + z)

An argmax is the first element that is the greatest. Kernels compute it twice, and LLVM fuses a
product with a sum, which rounds once, where one block of code has both: in one of the two loops,
perhaps, and then no element is the greatest. The compilers of grids are told to fuse nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from tinyhlo.ir import build
from tinyhlo.ir.graph import VIEWS, Elementwise, Gather, Graph, Node, Reduce, Scan
from tinyhlo.ir.ops import COMPARISONS, Op
from tinyhlo.ir.simplify import rebuild
from tinyhlo.ir.views import below_views
from tinyhlo.ir.walks import has_control_flow, reachable
from tinyhlo.target import Target

SUMS = (Op.ADD, Op.SUB)


def alike(graph: Graph, target: Target) -> Graph:
    """The same Graph if nothing is to be rounded; regions of loops and branches included."""
    if target.runs_grids or not target.fma:
        return graph
    nodes = graph.nodes()
    sums = {node for node in reachable(compared(nodes), parts) if is_sum(node)}
    if not sums and not has_control_flow(nodes):
        return graph

    def changed(node: Node, inputs: list[Node]) -> Node:
        if node in sums:
            pairs = zip(node.inputs, inputs, strict=True)
            inputs = [rounded(new) if may_fuse(old) else new for old, new in pairs]
        return rebuild(node, inputs, partial(alike, target=target))

    return graph.mapped(changed)


def compared(nodes: Sequence[Node]) -> Iterator[Node]:
    """What is compared with an extreme, and what that is the extreme of."""
    for node in nodes:
        if isinstance(node, Elementwise) and node.op in COMPARISONS:
            for one, other in (node.inputs, node.inputs[::-1]):
                extreme = below_views(one)
                if isinstance(extreme, (Reduce, Scan)) and extreme.op in (Op.MAX, Op.MIN):
                    yield from (other, extreme.inputs[0])


def parts(node: Node) -> Sequence[Node]:
    """What a kernel that computes `node` may compute."""
    if isinstance(node, Gather):
        return node.inputs[:1]
    return node.inputs if isinstance(node, (Elementwise, *VIEWS)) else ()


def is_sum(node: Node) -> bool:
    return isinstance(node, Elementwise) and node.op in SUMS and node.dtype.is_float


def may_fuse(node: Node) -> bool:
    """Whether a term of a sum may be a product, or end with one as powers do."""
    value = below_views(node)
    return isinstance(value, Elementwise) and value.op not in SUMS


def rounded(node: Node) -> Node:
    return build.elementwise(Op.ROUNDED, node)
